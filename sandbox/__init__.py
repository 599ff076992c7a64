"""Sandboxes: Harbor-format tasks run by agents in Docker containers, and verdicts an agent cannot reach."""
