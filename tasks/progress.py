"""How long work tells what it has done so far; a terminal bar, a plain line or a Prefect artifact may listen."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressEvent:
    """`done` of `total` units of `stage`; `note` says what the unit is, or how it goes. `total` 0: not known."""

    stage: str
    done: int
    total: int
    note: str = ""


Progress = Callable[[ProgressEvent], None]


def silent(_event: ProgressEvent) -> None:
    """Listens to nothing."""
