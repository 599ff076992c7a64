"""Errors of the storage floor. Each message says what went wrong, with which value, and what to do about
it."""


class StorageError(Exception):
    """Something under the home directory could not be read or written as asked."""


class NotFound(StorageError, KeyError):
    """The thing that was named is not in the store."""

    def __str__(self) -> str:
        """The message itself: KeyError would show its repr."""
        return str(self.args[0]) if self.args else ""


class LockHeld(StorageError):
    """Another process holds the lock; `holder` is what it wrote about itself (it may be empty)."""

    def __init__(self, message: str, holder: dict[str, object]) -> None:
        super().__init__(message)
        self.holder = holder


class QueryError(StorageError):
    """A query over the lake was refused or failed."""
