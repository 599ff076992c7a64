"""The night in the order a reader asks: what was decided, how much better, where, and what it took.

Turns a run's files into values ready to be shown; how they look is left to the page, the terminal and the
artifacts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.evaluate.paired import Score, by_task, paired, score
from tasks.report import wording
from tasks.report.data import Record, RunData

NAMES = {"base": "Base model", "sft": "After SFT", "rl": "After RL", "prod": "prod so far"}
SETS = ("heldout", "regression")
DECISIONS = {
    "promote": ("good", "Promoted: the candidate now serves as prod."),
    "keep": ("kept", "Kept: prod stays as it was."),
    "not_enough_data": ("unsure", "Not enough data to decide: prod stays as it was."),
}


@dataclass(frozen=True)
class Verdict:
    """The banner: a tone ("good", "kept", "unsure", "bad"), the decision, one sentence, and the reasons."""

    tone: str
    title: str
    sentence: str
    reasons: Sequence[str]


@dataclass(frozen=True)
class Step:
    """One model on the ladder from base to candidate; `gain` is over the step before, by `added_by`."""

    name: str
    label: str
    score: Score
    added_by: str | None
    gain: Record | None


@dataclass(frozen=True)
class TaskRow:
    """One task met by both: their rewards by sample (None is no verdict) and the mean paired difference."""

    task: str
    kind: str
    incumbent: Sequence[float | None]
    candidate: Sequence[float | None]
    difference: float | None


@dataclass(frozen=True)
class KindRow:
    """All tasks of one kind in one set; scores are means over tasks."""

    kind: str
    set: str
    tasks: int
    incumbent: float | None
    candidate: float | None
    difference: float | None


@dataclass(frozen=True)
class Comparison:
    """Candidate against incumbent on one set."""

    set: str
    statistics: Record
    rows: Sequence[TaskRow]


@dataclass(frozen=True)
class Stage:
    """One stage as it last stood; `share` is its part of all seconds, 0…1."""

    name: str
    state: str
    seconds: float | None
    reused: bool
    note: str
    share: float


@dataclass(frozen=True)
class View:
    """Everything but curves, rollouts and lineage."""

    id: str
    state: str
    created_at: str
    seconds: float
    candidate: str
    incumbent: str
    verdict: Verdict
    ladder: Sequence[Step]
    comparisons: Sequence[Comparison]
    kinds: Sequence[KindRow]
    stages: Sequence[Stage]
    missing: Sequence[str]


def build(data: RunData) -> View:
    """The view of a run."""
    comparisons = _comparisons(data)
    stages = _stages(data)
    return View(
        id=str(data.manifest.get("id", "")),
        state=str(data.manifest.get("state", "unknown")),
        created_at=str(data.manifest.get("created_at", "")),
        seconds=sum(stage.seconds or 0.0 for stage in stages),
        candidate=_label(data.evaluations.get("candidate")),
        incumbent=_label(data.evaluations.get("incumbent")),
        verdict=_verdict(data, comparisons),
        ladder=_ladder(data),
        comparisons=comparisons,
        kinds=[row for comparison in comparisons for row in _kinds(comparison)],
        stages=stages,
        missing=data.missing,
    )


def model(data: RunData, name: Any) -> Record:
    """The evaluated model of this name; {} if there is none."""
    return next((m for m in data.evaluations.get("models", []) if m.get("name") == name), {})


def _label(name: Any) -> str:
    return NAMES.get(str(name), str(name or "unknown"))


def _rows(data: RunData, name: Any, which: str) -> list[Record]:
    return [row for row in model(data, name).get("results", []) if row.get("set", "heldout") == which]


def _verdict(data: RunData, comparisons: Sequence[Comparison]) -> Verdict:
    # What the run says was done comes before the evidence: a decision may be kept back after it was made.
    done = data.manifest.get("promotion") or {}
    decision = done if done.get("outcome") else data.evidence.get("decision") or {}
    tone, title = DECISIONS.get(str(decision.get("outcome")), ("", ""))
    if not title:
        state = str(data.manifest.get("state", "unknown"))
        tone = "unsure" if state in ("completed", "running") else "bad"
        title = f"No decision about promotion: the night is {state}."
    elif data.evidence.get("forced"):
        title = "Promoted by a person, without the gate."
    reasons = [str(reason) for reason in decision.get("reasons", [])]
    if error := data.manifest.get("error"):
        reasons.append(str(error))
    return Verdict(tone, title, _sentence(data, comparisons), reasons)


def _sentence(data: RunData, comparisons: Sequence[Comparison]) -> str:
    heldout = next((c for c in comparisons if c.set == "heldout"), None)
    if heldout is None or heldout.statistics.get("difference") is None:
        return "Candidate and incumbent were not compared on the same tasks."
    before, after = (_score(data, data.evaluations.get(side)) for side in ("incumbent", "candidate"))
    found = heldout.statistics
    incumbent = _label(data.evaluations.get("incumbent")).lower()
    return (
        f"On {found['n_tasks']} tasks it never trained on, the candidate passes "
        f"{wording.percent(after.mean)}; the incumbent ({incumbent}) passes {wording.percent(before.mean)}. "
        f"Difference {wording.points(found['difference'])} points, 95% interval "
        f"{wording.between(found['low'], found['high'])}, {wording.p_value(found['p_value'])}."
    )


def _score(data: RunData, name: Any) -> Score:
    if kept := model(data, name).get("score"):
        return Score(kept.get("mean"), kept.get("low"), kept.get("high"), int(kept.get("n") or 0))
    return score(by_task(_rows(data, name, "heldout")))


def _ladder(data: RunData) -> list[Step]:
    """prod so far, base, SFT, RL: those that were evaluated, in the order of training."""
    present = [name for name in ("prod", "base", "sft", "rl") if model(data, name)]
    steps: list[Step] = []
    for name in present:
        before = steps[-1].name if steps and name != "base" else None
        gain = _statistics(data, f"{name}_over_{before}", name, before, "heldout") if before else None
        added_by = {"sft": "SFT", "rl": "RL"}.get(name) if before else None
        steps.append(Step(name, _label(name), _score(data, name), added_by, gain))
    return steps


def _statistics(data: RunData, key: str, candidate: Any, incumbent: Any, which: str) -> Record:
    if kept := (data.evaluations.get("paired") or {}).get(key):
        return dict(kept)
    sides = (by_task(_rows(data, name, which)) for name in (candidate, incumbent))
    return paired(*sides, seed=0).to_json()


def _comparisons(data: RunData) -> list[Comparison]:
    names = (data.evaluations.get("candidate"), data.evaluations.get("incumbent"))
    decided = data.evidence.get("statistics") or {}
    found = []
    for which in SETS:
        candidate, incumbent = (_rows(data, name, which) for name in names)
        if candidate and incumbent:
            statistics = decided.get(which) or _statistics(data, which, *names, which)
            complete = {"n_tasks": len({row["task"] for row in candidate}), **statistics}
            found.append(Comparison(which, complete, _task_rows(candidate, incumbent)))
    return found


def _task_rows(candidate: list[Record], incumbent: list[Record]) -> list[TaskRow]:
    kinds = {row["task"]: str(row.get("kind") or wording.NONE) for row in (*incumbent, *candidate)}
    after, before = by_task(candidate), by_task(incumbent)
    rows = []
    for task in sorted(kinds, key=lambda name: (kinds[name], name)):
        left, right = after.get(task, []), before.get(task, [])
        difference = paired({task: left}, {task: right}, seed=0).difference
        rows.append(TaskRow(task, kinds[task], right, left, difference))
    return rows


def _kinds(comparison: Comparison) -> list[KindRow]:
    rows = []
    for kind in sorted({row.kind for row in comparison.rows}):
        mine = [row for row in comparison.rows if row.kind == kind]
        before, after = [_mean(r.incumbent) for r in mine], [_mean(r.candidate) for r in mine]
        difference = _mean([row.difference for row in mine])
        rows.append(KindRow(kind, comparison.set, len(mine), _mean(before), _mean(after), difference))
    return rows


def _mean(values: Sequence[float | None]) -> float | None:
    kept = [value for value in values if value is not None]
    return sum(kept) / len(kept) if kept else None


def _stages(data: RunData) -> list[Stage]:
    """The last word of each stage, in the order in which the stages first appeared."""
    last: dict[str, Record] = {}
    for event in data.events:
        if event.get("name") == "stage" and event.get("stage"):
            last[str(event["stage"])] = {**last.get(str(event["stage"]), {}), **event}
    total = sum(float(event.get("seconds") or 0.0) for event in last.values())
    return [
        Stage(
            name,
            str(event.get("state", "unknown")),
            event.get("seconds"),
            bool(event.get("reused")),
            str(event.get("note") or ""),
            float(event.get("seconds") or 0.0) / total if total else 0.0,
        )
        for name, event in last.items()
    ]
