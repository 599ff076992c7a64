"""Locks between processes: flock on a file that says who holds it.

The lock is the kernel's, so it is gone the moment its holder dies, however it dies. The file's content is
only for people; the file itself stays (removing it would let two holders lock two different files of one
name).
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage.errors import LockHeld, StorageError

_RETRY_S = 0.05


@contextmanager
def hold(path: Path, holder: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock at `path` while the block runs; `holder` names the run or the job for others to read.

    Waits at most `wait_s` seconds. Raises LockHeld, naming holder, process and since when, if it stays taken.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(f"cannot open the lock {path}: {error.strerror or error}.") from error
    try:
        _acquire(descriptor, path, wait_s)
        _write_holder(descriptor, holder)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def read_holder(path: Path) -> dict[str, Any]:
    """What the present or last holder wrote about itself: run, pid, started_at, command; {} if nothing."""
    try:
        found = json.loads(path.read_text() or "{}")
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _acquire(descriptor: int, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise _held(path) from None
        except OSError as error:
            raise StorageError(
                f"cannot lock {path}: {error.strerror or error}. The home needs a file system with flock."
            ) from error
        time.sleep(_RETRY_S)


def _held(path: Path) -> LockHeld:
    holder = read_holder(path)
    who = holder.get("run", "another process")
    message = (
        f"{path.name} is held by {who} (pid {holder.get('pid', 'unknown')}, "
        f"since {holder.get('started_at', 'an unknown time')}). Wait for it to end, or stop that process."
    )
    return LockHeld(message, holder)


def _write_holder(descriptor: int, holder: str) -> None:
    text = json.dumps(
        {
            "run": holder,
            "pid": os.getpid(),
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": " ".join(sys.argv),
        }
    )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
