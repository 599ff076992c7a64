"""Paired statistics: hand numbers, no verdict is never 0, and the error rates they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.evaluate import paired as paired_module
from tasks.evaluate.paired import Paired, Verdicts, by_task, paired, score

reward = st.sampled_from([0.0, 0.5, 1.0, None])
verdicts = st.dictionaries(st.sampled_from("abcdefgh"), st.lists(reward, min_size=1, max_size=3), min_size=1)


def one_each(values: str) -> dict[str, list[float | None]]:
    """One sample a task: "10-" is passed, failed, no verdict."""
    return {f"t{i:02}": [None if v == "-" else float(v)] for i, v in enumerate(values)}


def test_hand_numbers_of_a_small_comparison() -> None:
    found = paired(one_each("1111100"), one_each("0000011"), seed=0)
    assert (found.wins, found.losses, found.ties) == (5, 2, 0)
    assert (found.n_tasks, found.n_pairs, found.n_missing) == (7, 7, 0)
    assert found.difference == pytest.approx(3 / 7)
    # Sign test: 2 * P(at most 2 of 7) = 2 * (1 + 7 + 21) / 128.
    assert found.p_value == pytest.approx(58 / 128)


def test_the_p_value_of_few_tasks_is_exact() -> None:
    found = paired(one_each("1111111111"), one_each("0000000000"), seed=0)
    assert found.p_value == pytest.approx(2 / 2**10)


def test_a_task_counts_once_however_many_samples_it_has() -> None:
    candidate: Verdicts = {"many": [1.0] * 9, "few": [0.0]}
    incumbent: Verdicts = {"many": [0.0] * 9, "few": [1.0]}
    found = paired(candidate, incumbent, seed=0)
    assert found.difference == pytest.approx(0.0)
    assert (found.n_tasks, found.n_pairs) == (2, 10)


def test_no_verdict_takes_its_partner_with_it_and_is_never_a_failure() -> None:
    with_gaps = paired(one_each("11-01"), one_each("10-0-"), seed=0)
    without = paired(one_each("110"), one_each("100"), seed=0)
    assert with_gaps.difference == pytest.approx(1 / 3) == without.difference
    assert (with_gaps.n_tasks, with_gaps.n_missing) == (3, 2)


def test_samples_are_paired_by_their_number() -> None:
    found = paired({"t": [1.0, None, 0.0]}, {"t": [None, 1.0, 1.0]}, seed=0)
    assert (found.difference, found.n_pairs, found.n_missing) == (-1.0, 1, 2)


def test_a_task_only_one_side_met_is_missing() -> None:
    found = paired({"a": [1.0], "b": [1.0, 1.0]}, {"a": [0.0]}, seed=0)
    assert (found.n_tasks, found.n_missing) == (1, 2)


def test_nothing_in_common_has_no_difference() -> None:
    found = paired({"a": [None]}, {"a": [1.0]}, seed=0)
    assert (found.difference, found.low, found.high, found.p_value) == (None, None, None, 1.0)


def test_one_task_has_a_difference_but_no_interval() -> None:
    found = paired({"a": [1.0]}, {"a": [0.0]}, seed=0)
    assert (found.difference, found.low, found.high, found.p_value) == (1.0, None, None, 1.0)


def test_equal_differences_leave_the_uncertainty_that_their_number_leaves() -> None:
    few = paired(one_each("1" * 5), one_each("1" * 5), seed=0)
    many = paired(one_each("1" * 50), one_each("1" * 50), seed=0)
    assert few.low is not None and many.low is not None and few.high is not None
    assert few.low < many.low < 0 < few.high
    assert many.low == pytest.approx(-(1 - 0.025 ** (1 / 50)))
    assert many.p_value == 1.0


def test_a_win_on_every_task_is_beyond_chance_without_claiming_certainty() -> None:
    found = paired(one_each("1" * 24), one_each("0" * 24), seed=0)
    assert found.difference == found.high == 1.0
    assert found.low is not None and 0.6 < found.low < 0.9
    assert found.p_value < 0.001


def test_the_same_seed_gives_the_same_numbers() -> None:
    arguments = (one_each("110100111011010111011"), one_each("010100011001010101001"))
    assert paired(*arguments, seed=3) == paired(*arguments, seed=3)


@settings(max_examples=40, deadline=None)
@given(verdicts, verdicts)
def test_swapping_the_sides_mirrors_the_result(a: Verdicts, b: Verdicts) -> None:
    there, back = paired(a, b, seed=0), paired(b, a, seed=0)
    assert (there.wins, there.losses, there.n_pairs) == (back.losses, back.wins, back.n_pairs)
    assert there.p_value == pytest.approx(back.p_value, abs=0.02)
    if there.difference is None or back.difference is None:
        assert there.difference is back.difference
    else:
        assert there.difference == pytest.approx(-back.difference)


@settings(max_examples=40, deadline=None)
@given(verdicts, verdicts)
def test_the_interval_holds_the_difference_and_every_number_is_finite(a: Verdicts, b: Verdicts) -> None:
    found = paired(a, b, seed=0)
    assert 0.0 < found.p_value <= 1.0
    if found.low is not None and found.high is not None and found.difference is not None:
        assert math.isfinite(found.low) and math.isfinite(found.high)
        assert found.low - 1e-9 <= found.difference <= found.high + 1e-9


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations need many comparisons, and none of them to three digits."""
    monkeypatch.setattr(paired_module, "BOOTSTRAP_RESAMPLES", 999)
    monkeypatch.setattr(paired_module, "PERMUTATIONS", 999)
    monkeypatch.setattr(paired_module, "EXACT_UP_TO", 9)


def drawn(rng: np.random.Generator, n_tasks: int, gain: float) -> Paired:
    """Two models on tasks of differing difficulty, two samples each; the true difference is `gain`."""
    difficulty = rng.uniform(0.1, 0.6, n_tasks)
    incumbent = {str(i): [float(rng.random() < p) for _ in range(2)] for i, p in enumerate(difficulty)}
    candidate = {str(i): [float(rng.random() < p + gain) for _ in range(2)] for i, p in enumerate(difficulty)}
    return paired(candidate, incumbent, seed=int(rng.integers(2**31)))


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("gain", [0.0, 0.3])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(gain: float) -> None:
    rng = np.random.default_rng(11)
    draws = [drawn(rng, 24, gain) for _ in range(300)]
    covered = sum(d.low is not None and d.high is not None and d.low <= gain <= d.high for d in draws)
    assert 0.90 <= covered / len(draws) <= 0.99


@pytest.mark.usefixtures("few_resamples")
def test_no_difference_is_seldom_called_one_and_a_real_one_usually_is() -> None:
    rng = np.random.default_rng(12)
    rates = [sum(drawn(rng, 24, gain).p_value < 0.05 for _ in range(200)) / 200 for gain in (0.0, 0.4)]
    assert rates[0] <= 0.08
    assert rates[1] >= 0.85


def test_a_score_of_single_verdicts_has_wilsons_interval() -> None:
    found = score(one_each("1" * 12 + "0" * 12))
    assert (found.mean, found.n) == (0.5, 24)
    assert found.low == pytest.approx(0.3143, abs=1e-4)
    assert found.high == pytest.approx(0.6857, abs=1e-4)


def test_a_score_leaves_out_what_has_no_verdict() -> None:
    assert score(one_each("1-")) == score(one_each("1"))
    assert score({"a": [None]}).mean is None


def test_a_score_of_several_samples_weighs_tasks_equally() -> None:
    found = score({"a": [1.0, 1.0, 1.0, 1.0], "b": [0.0], "c": [1.0, 0.0]})
    assert found.mean == pytest.approx(0.5)
    assert found.n == 7
    assert found.low is not None and found.high is not None and found.low < 0.5 < found.high


def test_rows_become_verdicts_by_task_and_sample() -> None:
    rows = [
        {"task": "b", "sample": 1, "reward": 1.0},
        {"task": "a", "sample": 0, "reward": None},
        {"task": "b", "sample": 2, "reward": 0.0},
    ]
    assert by_task(rows) == {"a": [None], "b": [None, 1.0, 0.0]}
