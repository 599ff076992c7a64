"""Errors of the steps: what could not be done, with which value, and the remedy."""


class TaskError(Exception):
    """A step that cannot do its work as asked."""
