"""Statistics of verdicts: one model's score, and the paired difference between two models on the same tasks.

Samples of one task are not independent, so a task is the unit: its mean (or its mean difference) counts once,
and intervals and tests resample tasks. A sample without a verdict (None) is left out, never counted as 0; in
a pair it takes its partner with it. Rewards lie in 0…1. What follows from a difference is the gate's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

type Verdicts = Mapping[str, Sequence[float | None]]
"""Task name to the rewards of its samples, in the order of their seeds; None is no verdict."""

type Interval = tuple[float | None, float | None]

CONFIDENCE = 0.95
BOOTSTRAP_RESAMPLES = 9_999
EXACT_UP_TO = 16
"""With at most this many tasks that differ, the sign-flip test goes through all 2^n assignments."""
PERMUTATIONS = 20_000
_SAME = 1e-12


@dataclass(frozen=True)
class Score:
    """Mean reward over tasks with its 95% interval; `n` counts verdicts. None: there is nothing to say."""

    mean: float | None
    low: float | None
    high: float | None
    n: int

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line's contract."""
        return asdict(self)


@dataclass(frozen=True)
class Paired:
    """Candidate minus incumbent, mean over tasks, with its 95% interval and a two-sided p-value.

    `n_tasks` have at least one pair, `n_pairs` counts pairs, `n_missing` the pairs lost for want of a
    verdict. `wins`, `losses` and `ties` count tasks. Difference and interval are None where the data allow
    none.
    """

    difference: float | None
    low: float | None
    high: float | None
    p_value: float
    n_tasks: int
    n_pairs: int
    n_missing: int
    wins: int
    losses: int
    ties: int

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line's contract, and more."""
        return asdict(self)


def by_task(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Result rows {"task", "sample", "reward"} as Verdicts; a sample that has no row has no verdict."""
    rewards: dict[str, dict[int, float | None]] = {}
    for row in rows:
        rewards.setdefault(str(row["task"]), {})[int(row.get("sample") or 0)] = row.get("reward")
    return {
        task: [samples.get(index) for index in range(max(samples) + 1)]
        for task, samples in sorted(rewards.items())
    }


def score(results: Verdicts, *, seed: int = 0) -> Score:
    """One model's mean reward over tasks.

    The interval is Wilson's where every task has one pass-or-fail verdict, else a bootstrap over tasks.
    """
    import numpy as np

    verdicts = {
        task: kept for task, rewards in results.items() if (kept := [r for r in rewards if r is not None])
    }
    n = sum(map(len, verdicts.values()))
    if not verdicts:
        return Score(None, None, None, 0)
    means = np.array([np.mean(rewards) for rewards in verdicts.values()])
    binary = n == len(means) and bool(np.isin(means, (0.0, 1.0)).all())
    low, high = _wilson(means) if binary else _bootstrap(means, seed=seed, bounds=(0.0, 1.0))
    return Score(float(means.mean()), low, high, n)


def paired(candidate: Verdicts, incumbent: Verdicts, *, seed: int) -> Paired:
    """Compare two models over the tasks both met, sample by sample.

    A sample counts as missing if either side lacks its verdict, also where one side was never asked.
    """
    import numpy as np

    differences: list[float] = []
    n_pairs = n_missing = 0
    for task in sorted(candidate.keys() | incumbent.keys()):
        left, right = candidate.get(task, ()), incumbent.get(task, ())
        pairs = [a - b for a, b in zip(left, right, strict=False) if a is not None and b is not None]
        n_pairs += len(pairs)
        n_missing += max(len(left), len(right)) - len(pairs)
        if pairs:
            differences.append(float(np.mean(pairs)))
    return _summarise(np.array(differences), n_pairs, n_missing, seed)


def _summarise(differences: np.ndarray[Any, Any], n_pairs: int, n_missing: int, seed: int) -> Paired:
    low, high = _bootstrap(differences, seed=seed, bounds=(-1.0, 1.0))
    wins, losses = int((differences > _SAME).sum()), int((differences < -_SAME).sum())
    return Paired(
        difference=float(differences.mean()) if len(differences) else None,
        low=low,
        high=high,
        p_value=_sign_flip(differences, seed=seed),
        n_tasks=len(differences),
        n_pairs=n_pairs,
        n_missing=n_missing,
        wins=wins,
        losses=losses,
        ties=len(differences) - wins - losses,
    )


def _wilson(passed: np.ndarray[Any, Any]) -> Interval:
    from scipy import stats

    interval = stats.binomtest(int(passed.sum()), len(passed)).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def _bootstrap(values: np.ndarray[Any, Any], *, seed: int, bounds: tuple[float, float]) -> Interval:
    """Interval of the mean: BCa over tasks. Fewer than two tasks have none."""
    import numpy as np
    from scipy import stats

    if len(values) < 2:
        return None, None
    if float(np.ptp(values)) <= _SAME:
        return _interval_of_equals(float(values[0]), len(values), bounds)
    interval = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=BOOTSTRAP_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def _interval_of_equals(value: float, n: int, bounds: tuple[float, float]) -> Interval:
    """What n equal tasks still leave open, where a bootstrap would claim certainty.

    At most a share q of all tasks can be otherwise with (1 - q)^n = 2.5% (the exact binomial bound); at worst
    those lie at the bounds.
    """
    q = 1.0 - ((1.0 - CONFIDENCE) / 2) ** (1.0 / n)
    low, high = min(bounds[0], value), max(bounds[1], value)
    return value - q * (value - low), value + q * (high - value)


def _sign_flip(differences: np.ndarray[Any, Any], *, seed: int) -> float:
    """Two-sided p-value of a mean of 0, were each task's difference as likely to have the other sign."""
    import numpy as np
    from scipy import stats

    # A task without a difference is the same under both signs; leaving it out changes nothing but the cost.
    moved = differences[np.abs(differences) > _SAME]
    if len(moved) < 2:
        return 1.0
    result = stats.permutation_test(
        (moved, np.zeros_like(moved)),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**EXACT_UP_TO if len(moved) <= EXACT_UP_TO else PERMUTATIONS,
        batch=4_096,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)
