"""Evaluation: models against the same held-out tasks in sandboxes, and the paired statistics of their verdicts."""
