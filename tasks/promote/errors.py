"""Errors of the promote step."""


class PromoteError(Exception):
    """The evidence or the candidate cannot be used as given; the message says what to do about it."""
