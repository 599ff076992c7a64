"""From the lake to training rows: which conversations, which of their tokens."""
