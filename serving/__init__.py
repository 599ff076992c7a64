"""What answers: the model, its chat renderer, and SkyRL's Tinker server as we run it.

Keeps true: the text form of a conversation is decided here and nowhere else; every server process is a supervised
child that dies with its whole tree; nothing here knows a training step, a lake or a sandbox.
"""
