"""A run from beginning to end: it holds the home's lock, and its manifest says how it ended, however it
ended."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from storage.home import Home
from storage.locks import hold
from storage.runs import Run

LOCK = "night.lock"


@contextmanager
def running(home: Home, kind: str, config: Mapping[str, Any]) -> Iterator[Run]:
    """A run of this kind, alone in its home: one that trains or evaluates at a time.

    Raises:
        LockHeld: another is at work; the message names it.
    """
    with hold(home.locks / LOCK, f"another run ({kind})"):
        _bury(home)
        run = Run.create(home, kind, config)
        try:
            yield run
        except Exception as error:
            run.finish("failed", error=str(error) or type(error).__name__)
            raise
        except BaseException:  # Ctrl-C, SIGTERM, Prefect's cancellation
            run.finish("interrupted")
            raise
        if run.manifest()["state"] == "running":
            run.finish("completed")


def _bury(home: Home) -> None:
    """A run killed with -9 still says that it runs; nobody else can be at work while we hold the lock."""
    last = Run.latest(home)
    if last is not None and last.manifest().get("state") == "running":
        last.finish("interrupted", error="its process was killed")
