"""Exit codes, and the one boundary where an error becomes a line and a code.

Keeps true: 0 done, 1 the work failed, 2 bad usage or unreadable input, 3 refused on purpose, 130 interrupted;
whoever asked for JSON gets one document also then. Errors we do not know are shown as a bug: short, with the
way to see more.
"""

import contextlib
import errno
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

SERVICES = ("tinker", "docker", "requests", "httpx", "prefect")  # whose errors are about what they reach
DONE, FAILED, USAGE, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130


class Stop(Exception):
    """Ends the command with a code and a message; `document` is what --json prints besides."""

    def __init__(self, code: int, message: str, document: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.document = code, document or {}


def classify(error: BaseException) -> tuple[int, str] | None:
    """Exit code and message of an error that is not a bug; None for one that is."""
    from flows.config import ConfigError
    from sandbox.errors import SandboxError
    from serving.errors import ServingError
    from storage.errors import LockHeld, NotFound, QueryError, StorageError
    from tasks.errors import TaskError
    from tasks.ingest.errors import IngestError
    from tasks.promote.errors import PromoteError

    if isinstance(error, Stop):
        return error.code, str(error)
    if _no_space(error):
        return FAILED, f"the disk is full: {error}. Free some space and run the same command again."
    if isinstance(error, LockHeld):
        return REFUSED, str(error)
    if isinstance(error, ConfigError | IngestError | NotFound | QueryError):
        return USAGE, str(error)
    if isinstance(error, StorageError | SandboxError | ServingError | TaskError | PromoteError):
        return FAILED, str(error)
    if isinstance(error, MemoryError):
        return (
            FAILED,
            "out of memory. Lower engine.tokens_per_pass, engine.sample_rows or sandbox.concurrency.",
        )
    if isinstance(error, OSError):
        return FAILED, str(error)
    service = type(error).__module__.partition(".")[0]
    return (FAILED, f"{service} says: {error}") if service in SERVICES else None


def _no_space(error: BaseException | None) -> bool:
    """Whether a full disk is at the bottom of it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does, so that everything is cleaned up.

    SIGINT as well, where a shell started us in the background with it ignored. An ignored SIGHUP is nohup's,
    and stays so.
    """
    before: dict[signal.Signals, Any] = {}
    with contextlib.suppress(ValueError):  # not in the main thread
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
