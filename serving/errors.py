"""Errors of the serving floor: what happened, to what, and the remedy."""


class ServingError(Exception):
    """Anything the serving floor refuses or cannot do; the message names the thing and the remedy."""


class RendererError(ServingError):
    """A model whose chat template we cannot reproduce token by token, or a message we cannot render."""


class ServerFailed(ServingError):
    """A server process did not come up, or died; the message holds the end of its log."""
