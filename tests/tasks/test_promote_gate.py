"""The gate: what it asks for, one rule at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from tasks.evaluate.paired import Paired
from tasks.promote.config import GateConfig
from tasks.promote.gate import Facts, decide

FACTS = Facts("smol", "smol", "chatml d1", "chatml d1")
CONFIG = GateConfig()
GAIN = Paired(0.3, 0.1, 0.5, 0.001, 24, 24, 0, 9, 2, 13)
EVEN = Paired(0.0, -0.15, 0.15, 1.0, 16, 16, 0, 1, 1, 14)


def test_a_gain_beyond_chance_without_a_loss_elsewhere_is_promoted() -> None:
    decision = decide(GAIN, EVEN, CONFIG, FACTS)
    assert decision.outcome == "promote"
    assert "30.0 points better" in decision.reasons[0]
    assert "too few tasks to exclude one" in decision.reasons[1]


@pytest.mark.parametrize(
    "heldout",
    [
        replace(GAIN, low=0.0),
        replace(GAIN, p_value=0.05),
        replace(GAIN, difference=-0.3, low=-0.5, high=-0.1),
    ],
)
def test_no_gain_beyond_chance_keeps_the_incumbent(heldout: Paired) -> None:
    decision = decide(heldout, EVEN, CONFIG, FACTS)
    assert decision.outcome == "keep"
    assert "not shown to be better" in decision.reasons[0]


def test_a_gain_below_the_configured_one_keeps_the_incumbent() -> None:
    assert decide(GAIN, EVEN, GateConfig(min_gain=0.2), FACTS).outcome == "keep"


def test_too_few_tasks_are_not_enough_data() -> None:
    decision = decide(replace(GAIN, n_tasks=19), EVEN, CONFIG, FACTS)
    assert decision.outcome == "not_enough_data"
    assert "Only 19" in decision.reasons[0]


def test_no_task_at_all_is_not_enough_data() -> None:
    nothing = Paired(None, None, None, 1.0, 0, 0, 0, 0, 0, 0)
    assert decide(nothing, None, CONFIG, FACTS).outcome == "not_enough_data"


def test_many_missing_verdicts_are_not_enough_data() -> None:
    decision = decide(replace(GAIN, n_pairs=24, n_missing=3), EVEN, CONFIG, FACTS)
    assert decision.outcome == "not_enough_data"
    assert "3 of 27" in decision.reasons[0]


def test_a_mean_loss_beyond_the_margin_on_the_regression_set_keeps_the_incumbent() -> None:
    worse = replace(EVEN, difference=-0.125, low=-0.3, high=0.05)
    decision = decide(GAIN, worse, CONFIG, FACTS)
    assert decision.outcome == "keep"
    assert "12.5 points worse" in decision.reasons[1]


def test_a_small_loss_that_is_beyond_chance_keeps_the_incumbent() -> None:
    assert (
        decide(GAIN, replace(EVEN, difference=-0.05, low=-0.09, high=-0.01), CONFIG, FACTS).outcome == "keep"
    )


def test_the_strict_rule_asks_the_whole_interval_to_stay_within_the_margin() -> None:
    strict = GateConfig(regression_rule="interval")
    assert decide(GAIN, EVEN, strict, FACTS).outcome == "keep"
    assert decide(GAIN, replace(EVEN, low=-0.09), strict, FACTS).outcome == "promote"


def test_a_regression_set_that_was_not_measured_is_said() -> None:
    decision = decide(GAIN, None, CONFIG, FACTS)
    assert decision.outcome == "promote"
    assert decision.reasons[1] == "No regression set was measured."


def test_a_regression_set_without_verdicts_keeps_the_incumbent() -> None:
    assert decide(GAIN, Paired(None, None, None, 1.0, 0, 0, 8, 0, 0, 0), CONFIG, FACTS).outcome == "keep"


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (replace(FACTS, candidate_base_model="big"), "base model"),
        (replace(FACTS, candidate_renderer="chatml d2"), "renderer"),
        (replace(FACTS, failed_audits=("a planted reward scored 1",)), "planted reward"),
        (replace(FACTS, overtaken_by="ckpt-9"), "prod became ckpt-9"),
    ],
)
def test_a_broken_precondition_keeps_the_incumbent_whatever_the_gain(facts: Facts, word: str) -> None:
    decision = decide(GAIN, EVEN, CONFIG, facts)
    assert decision.outcome == "keep"
    assert word in decision.reasons[0]


def test_the_config_is_frozen_and_knows_its_keys() -> None:
    with pytest.raises(ValidationError):
        GateConfig.model_validate({"min_gian": 0.1})
    with pytest.raises(ValidationError):
        setattr(CONFIG, "min_gain", 0.5)  # noqa: B010
