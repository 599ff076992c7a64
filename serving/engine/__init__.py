"""The torch backend inside SkyRL's engine: one device, LoRA adapters, every loss in one forward-backward.

Runs only in the engine's own process, so torch, peft and skyrl are imported at module level here and nowhere else.
"""
