"""What people and programs see: one JSON document or readable tables on stdout, everything else on stderr.

Keeps true: with --json nothing but the document reaches stdout; bars and colour appear only on a terminal,
elsewhere progress is a plain line now and then.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tasks.progress import Progress, ProgressEvent

LINE_EVERY_S = 10.0  # between two plain lines of one stage
PIPE_WIDTH = 200  # columns, where there is no terminal to ask


@dataclass(frozen=True)
class Output:
    """Where one command prints; `as_json` is --json."""

    as_json: bool = False

    def emit(self, document: Mapping[str, Any], show: Callable[["Console"], None]) -> None:
        """The result: the document for programs, or what `show` prints for people."""
        if self.as_json:
            _print_json(document)
        else:
            show(console(sys.stdout))

    def say(self, text: str) -> None:
        """A line of prose on stderr."""
        console(sys.stderr).print(text, markup=False, highlight=False)

    def fail(self, code: int, message: str, document: Mapping[str, Any]) -> None:
        """An error: its message on stderr, and with --json the document on stdout."""
        if self.as_json:
            _print_json({**document, "error": message, "exit_code": code})
        sys.stderr.write(f"error: {message}\n")

    @contextmanager
    def progress(self) -> Iterator["Progress"]:
        """A listener for `tasks.progress`: live bars on a terminal, else plain lines."""
        if not sys.stderr.isatty():
            yield PlainProgress().tell
            return
        with _bars() as tell:
            yield tell


def _print_json(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(plain(document), ensure_ascii=False) + "\n")
    sys.stdout.flush()


class PlainProgress:
    """One line when a stage begins and ends, and at most one every `LINE_EVERY_S` seconds in between."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._ended: dict[str, str | None] = {}

    def tell(self, event: "ProgressEvent") -> None:
        """Print the event, unless the stage spoke a moment ago."""
        now = time.monotonic()
        ended = bool(event.total) and event.done >= event.total
        due = now - self._last.get(event.stage, -math.inf) >= LINE_EVERY_S
        news = ended and event.note != self._ended.get(event.stage)
        self._ended[event.stage] = event.note if ended else None
        if not news and (ended or not due):
            return
        self._last[event.stage] = now
        of = f"{event.done}/{event.total}" if event.total else str(event.done or "")
        sys.stderr.write(" ".join(part for part in (f"[{event.stage}]", of, event.note) if part) + "\n")
        sys.stderr.flush()


@contextmanager
def _bars() -> Iterator["Progress"]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[of]:>11}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console(sys.stderr)) as bars:
        known: dict[str, Any] = {}

        def tell(event: "ProgressEvent") -> None:
            if event.stage not in known:
                known[event.stage] = bars.add_task(event.stage, total=event.total or None, of="", note="")
            of = f"{event.done}/{event.total}" if event.total else ""
            bars.update(
                known[event.stage], completed=event.done, total=event.total or None, of=of, note=event.note
            )

        yield tell


def console(stream: Any) -> "Console":
    """A Rich console on a stream; wide where there is no terminal, so that nothing is cut."""
    from rich.console import Console

    return Console(file=stream, width=None if stream.isatty() else PIPE_WIDTH, soft_wrap=not stream.isatty())


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> "Table":
    """A Rich table of plain values."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column)
    for row in rows:
        made.add_row(*(escape(cell(value)) for value in row))
    return made


def pairs(document: Mapping[str, Any], title: str | None = None) -> "Table":
    """A table of keys and values, one a line."""
    return table(("", ""), document.items(), title)


def cell(value: Any) -> str:
    """A value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(each)}" for key, each in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value)) or "-"
    return str(value)


def plain(value: Any) -> Any:
    """A value as strict JSON can hold it: NaN and infinity are null, what JSON does not know is text."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
