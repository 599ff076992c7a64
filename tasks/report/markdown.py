"""The night as Markdown and rows, the two forms that Prefect's artifacts take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storage.home import Home
from tasks.report import wording
from tasks.report.data import load
from tasks.report.view import View, build

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")


@dataclass(frozen=True)
class Artifacts:
    """`summary` is Markdown; `paired` has one row a task, with plain values."""

    summary: str
    paired: list[dict[str, Any]]


def markdown_tables(home: Home, run_id: str) -> Artifacts:
    """The artifacts' contents. Raises NotFound if there is no such run."""
    view = build(load(home, run_id))
    return Artifacts(summary=_summary(view), paired=_paired(view))


def _summary(view: View) -> str:
    lines = [f"# {_cell(view.verdict.title)}", "", _cell(view.verdict.sentence), ""]
    lines += [f"- {_cell(reason)}" for reason in view.verdict.reasons]
    lines += ["", *_table(("Held-out tasks", "Passed", "95% interval", "Added, points"), _score_rows(view))]
    lines += ["", *_table(("Stage", "State", "Time"), _stage_rows(view))]
    lines += ["", *(f"- {_cell(line)}" for line in view.missing)]
    return "\n".join(lines).strip() + "\n"


def _score_rows(view: View) -> list[Sequence[str]]:
    return [
        (
            step.label,
            wording.percent(step.score.mean),
            f"{wording.percent(step.score.low)} to {wording.percent(step.score.high)}",
            f"{step.added_by} {wording.points(step.gain['difference'])}"
            if step.added_by and step.gain
            else "",
        )
        for step in view.ladder
    ]


def _stage_rows(view: View) -> list[Sequence[str]]:
    return [
        (
            stage.name,
            f"{stage.state}, reused" if stage.reused else stage.state,
            wording.duration(stage.seconds),
        )
        for stage in view.stages
    ]


def _paired(view: View) -> list[dict[str, Any]]:
    return [
        {
            "set": comparison.set,
            "task": wording.visible(row.task, 200),
            "kind": wording.visible(row.kind, 200),
            view.incumbent: _rewards(row.incumbent),
            view.candidate: _rewards(row.candidate),
            "difference": row.difference,
        }
        for comparison in view.comparisons
        for row in comparison.rows
    ]


def _rewards(values: Sequence[float | None]) -> str:
    return " ".join("no verdict" if value is None else f"{value:g}" for value in values)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    rule = "|".join(" --- " for _ in header)
    return [f"| {' | '.join(header)} |", f"|{rule}|", *(f"| {' | '.join(map(_cell, row))} |" for row in rows)]


def _cell(text: str) -> str:
    """Foreign text on one line, with nothing in it that Markdown or HTML would read."""
    return (
        _SPECIAL.sub(r"\\\1", wording.visible(" ".join(text.split()), 500))
        .replace("\\<", "&lt;")
        .replace("\\>", "&gt;")
    )
