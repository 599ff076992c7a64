"""Errors of the sandbox floor.

Each message says what went wrong, with which value, and what to do about it.
"""


class SandboxError(Exception):
    """A task could not be run as asked: no verdict, and none may be assumed."""


class TaskError(SandboxError):
    """A task directory is not a Harbor task we can read; the message names the file and the field."""


class DockerUnavailable(SandboxError):
    """No Docker engine answers."""


class ImageError(SandboxError):
    """A task's image is missing or does not build."""


class SandboxStopped(SandboxError):
    """The container is gone: removed by a cancellation, or stopped from outside."""


class ProviderError(SandboxError):
    """The policy (a model behind an endpoint) failed; says nothing about the task or the agent."""


class VerifierError(SandboxError):
    """The tests ran but gave no verdict; `kind` is Harbor's name for the failure."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class Cancelled(SandboxError):
    """The trial was called off before it had a verdict."""
