"""How long work tells what it has done so far; a bar, a plain line or a Prefect artifact may listen."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressEvent:
    """`done` of `total` units of `stage` (`total` 0: not known); `note` says the unit, or how it goes."""

    stage: str
    done: int
    total: int
    note: str = ""


Progress = Callable[[ProgressEvent], None]


def silent(_event: ProgressEvent) -> None:
    """Listens to nothing."""
