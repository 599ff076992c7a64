"""The gate: from paired statistics and a few facts to promote, keep, or not enough data, with reasons.

Pure and deterministic: the same numbers give the same decision on any machine. Training reward is not among
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tasks.evaluate.paired import Paired
from tasks.promote.config import GateConfig

type Outcome = Literal["promote", "keep", "not_enough_data"]


@dataclass(frozen=True)
class Facts:
    """What must be the same on both sides for a comparison to mean anything; renderers as name and digest."""

    candidate_base_model: str
    incumbent_base_model: str
    candidate_renderer: str
    incumbent_renderer: str
    failed_audits: tuple[str, ...] = ()
    overtaken_by: str | None = None
    """What prod became since the candidate was measured against the incumbent."""


@dataclass(frozen=True)
class Decision:
    """What to do, and why, in sentences."""

    outcome: Outcome
    reasons: list[str]


def decide(heldout: Paired, regression: Paired | None, config: GateConfig, facts: Facts) -> Decision:
    """Whether the candidate may replace the incumbent.

    A broken precondition or a loss keeps the incumbent; too few verdicts are not enough data; all else needs
    a gain beyond chance on the held-out tasks.
    """
    if blocked := list(_broken_preconditions(facts)):
        return Decision("keep", blocked)
    if lacking := list(_lacking(heldout, config)):
        return Decision("not_enough_data", lacking)
    gain, gained = _gain(heldout, config)
    loss, lost = _regression(regression, config)
    outcome: Outcome = "promote" if gained and not lost else "keep"
    return Decision(outcome, [gain, loss])


def _broken_preconditions(facts: Facts) -> Iterator[str]:
    if facts.candidate_base_model != facts.incumbent_base_model:
        yield (
            f"The base model changed from {facts.incumbent_base_model} to {facts.candidate_base_model}: "
            "the two cannot be compared as one line of checkpoints."
        )
    if facts.candidate_renderer != facts.incumbent_renderer:
        yield (
            f"The renderer changed from {facts.incumbent_renderer} to {facts.candidate_renderer}: "
            "the two read the same conversation as different tokens."
        )
    if facts.overtaken_by:
        yield f"prod became {facts.overtaken_by} since the candidate was measured: evaluate against that."
    for audit in facts.failed_audits:
        yield f"An audit of the tasks failed: {audit}."


def _lacking(heldout: Paired, config: GateConfig) -> Iterator[str]:
    if heldout.n_tasks < config.min_tasks:
        yield (
            f"Only {heldout.n_tasks} held-out tasks have a verdict on both sides; "
            f"at least {config.min_tasks} are needed."
        )
    asked = heldout.n_pairs + heldout.n_missing
    if asked and heldout.n_missing / asked > config.max_missing_fraction:
        yield (
            f"{heldout.n_missing} of {asked} held-out samples have no verdict on both sides; "
            f"at most {config.max_missing_fraction:.0%} may be missing, or what remains is a biased choice."
        )


def _gain(heldout: Paired, config: GateConfig) -> tuple[str, bool]:
    """The sentence about the held-out tasks, and whether the gain is beyond chance."""
    assert heldout.low is not None  # min_tasks is at least 2, and two tasks have an interval
    what = f"On {heldout.n_tasks} held-out tasks the candidate is {_described(heldout)}"
    bar = f"more than {config.min_gain * 100:g} points" if config.min_gain else "better"
    if heldout.low > config.min_gain and heldout.p_value < config.max_p_value:
        return f"{what}: {bar} beyond chance.", True
    return f"{what}: not shown to be {bar}.", False


def _regression(regression: Paired | None, config: GateConfig) -> tuple[str, bool]:
    """The sentence about the regression set, and whether the candidate lost too much there."""
    if regression is None:
        return "No regression set was measured.", False
    if regression.difference is None or regression.low is None or regression.high is None:
        return f"The regression set has verdicts on {regression.n_tasks} tasks, too few to tell.", True
    what = f"On {regression.n_tasks} regression tasks the candidate is {_described(regression)}"
    margin = f"{config.regression_margin * 100:g} points"
    if regression.high < 0:
        return f"{what}: worse beyond chance.", True
    judged = regression.low if config.regression_rule == "interval" else regression.difference
    if judged < -config.regression_margin:
        return f"{what}: a loss of more than {margin} {_cannot_stand(config)}.", True
    if regression.low < -config.regression_margin:
        return f"{what}: no loss beyond {margin} on average, though too few tasks to exclude one.", False
    return f"{what}: a loss of more than {margin} is excluded.", False


def _cannot_stand(config: GateConfig) -> str:
    return "cannot be excluded" if config.regression_rule == "interval" else "on average is too much"


def _described(paired: Paired) -> str:
    assert paired.difference is not None and paired.low is not None and paired.high is not None
    points = paired.difference * 100
    direction = (
        "as good as the incumbent"
        if not points
        else f"{abs(points):.1f} points " + ("better" if points > 0 else "worse")
    )
    interval = f"95% interval {paired.low * 100:+.1f} to {paired.high * 100:+.1f}"
    return f"{direction} ({interval}; {_p_value(paired.p_value)})"


def _p_value(p: float) -> str:
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"
