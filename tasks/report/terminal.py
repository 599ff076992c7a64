"""The night in one screen of the terminal: the decision, the scores, the stages, and where the page is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from storage.home import Home
from tasks.report import wording
from tasks.report.data import load
from tasks.report.html import FILE_NAME
from tasks.report.view import Step, View, build

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

STYLES = {"good": "green", "kept": "cyan", "unsure": "yellow", "bad": "red"}
BAR_WIDTH = 24


def summary(home: Home, run_id: str) -> RenderableType:
    """A Rich renderable. Raises NotFound if there is no such run."""
    from rich.console import Group

    view = build(load(home, run_id))
    parts: list[RenderableType] = [_banner(view)]
    if view.ladder:
        parts.append(_scores(view.ladder))
    if view.stages:
        parts.append(_stages(view))
    return Group(*parts, _notes(view, home.runs / view.id / FILE_NAME))


def _banner(view: View) -> RenderableType:
    from rich.panel import Panel
    from rich.text import Text

    style = STYLES[view.verdict.tone]
    text = Text(view.verdict.title, style=f"bold {style}").append(
        f"\n{view.verdict.sentence}", style="default not bold"
    )
    for reason in view.verdict.reasons:
        text.append(f"\n· {reason}", style="dim not bold")
    return Panel(text, title=f"night {view.id}", title_align="left", border_style=style)


def _scores(ladder: Sequence[Step]) -> Table:
    table = _table("held-out tasks passed", "", "95% interval", "what was added, points")
    for step in ladder:
        filled = round((step.score.mean or 0.0) * BAR_WIDTH)
        bar = f"{'█' * filled}{'░' * (BAR_WIDTH - filled)} {wording.percent(step.score.mean)}"
        interval = f"{wording.percent(step.score.low)} to {wording.percent(step.score.high)}"
        table.add_row(_plain(step.label), bar, interval, _added(step))
    return table


def _added(step: Step) -> str:
    if not step.added_by or not step.gain:
        return ""
    gain = step.gain
    interval = wording.between(gain["low"], gain["high"])
    return f"{step.added_by} {wording.points(gain['difference'])} ({interval})"


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0))
    for column in columns:
        table.add_column(column)
    return table


def _plain(text: str) -> Text:
    """Text that is not read as Rich markup."""
    from rich.text import Text

    return Text(wording.visible(text, 80))


def _stages(view: View) -> Table:
    table = _table("stage", "state", "time")
    for stage in view.stages:
        state = f"{stage.state}, reused" if stage.reused else stage.state
        table.add_row(_plain(stage.name), _plain(state), wording.duration(stage.seconds))
    table.add_row("all", "", wording.duration(view.seconds), style="bold")
    return table


def _notes(view: View, page: Path) -> Text:
    from rich.text import Text

    lines = [*view.missing, f"Report: {page}" if page.is_file() else "The page is not written yet."]
    return Text("\n".join(lines))
