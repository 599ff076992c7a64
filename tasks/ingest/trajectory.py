"""Plain trajectory files: a list of messages under `traj`, `trajectory` or `messages`, and the reward they
earned.

The messages are those of Chat Completions; the envelope has already brought them under `messages`.
"""

from __future__ import annotations

from tasks.ingest.openai_chat import paths, tools

__all__ = ["paths", "tools"]
