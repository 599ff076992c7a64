"""The benchmark's collecting part, on made-up homes: it runs nothing."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAGES = {"ingest": 2.0, "convert": 3.0, "sft": 100.0, "rl": 200.0, "evaluate": 50.0, "promote": 1.0}
# One letter a task: 24 held out, 12 for regression. The base does nothing, SFT some, RL most.
VERDICTS = {
    "base": ("0" * 24, "0" * 12),
    "sft": ("1" * 10 + "0" * 14, "0" * 12),
    "rl": ("1" * 22 + "00", "1" + "0" * 11),
}


@pytest.fixture
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("first_night", ROOT / "benchmarks" / "first_night.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["first_night"] = module
    spec.loader.exec_module(module)
    return module


def rows(heldout: str, regression: str) -> list[dict[str, Any]]:
    return [
        {"set": at, "task": f"{at}-{i:02}", "kind": "count", "sample": 0, "outcome": "", "reward": reward}
        for at, verdicts in (("heldout", heldout), ("regression", regression))
        for i, reward in enumerate(None if v == "-" else float(v) for v in verdicts)
    ]


def night(
    home: Path,
    run: str,
    *,
    state: str = "completed",
    reused: set[str] = frozenset(),  # type: ignore[assignment]
    until: str | None = None,
    seed: int = 1,
    **changed: tuple[str, str],
) -> None:
    """A run directory as a night leaves it; `until` names the last stage that it reached."""
    path = home / "runs" / run
    path.mkdir(parents=True)
    promotion = {"promoted": True, "outcome": "promote", "previous": "base", "reasons": ["better"]}
    manifest = {"kind": "nightly", "state": state, "config": {"seed": seed}, "promotion": promotion}
    (path / "manifest.json").write_text(json.dumps(manifest))
    names = list(STAGES)
    events = [
        {
            "name": "stage",
            "stage": name,
            "state": "completed",
            "seconds": 0.1 if name in reused else STAGES[name],
            "reused": name in reused,
            "output": {"checkpoint": f"ckpt-{name}", "steps": 8, "tokens": 9, "metrics": {"loss_last": 0.1}},
        }
        for name in names[: names.index(until) + 1 if until else None]
    ]
    other: list[dict[str, Any]] = [{"name": "tasks", "digests": {}}]
    (path / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events + other))
    if not until:
        models = [
            {"name": name, "ref": name, "results": rows(*verdicts)}
            for name, verdicts in {**VERDICTS, **changed}.items()
        ]
        (path / "evaluations.json").write_text(json.dumps({"models": models}))


def test_scores_and_differences_come_from_the_verdicts(benchmark: ModuleType, tmp_path: Path) -> None:
    night(tmp_path, "20260101-000000-aaaa")

    found = benchmark.collect(tmp_path)

    assert found["scores"]["rl"]["heldout"]["mean"] == pytest.approx(22 / 24)
    assert found["scores"]["base"]["regression"]["n"] == 12
    gain = found["paired"]["rl_over_base"]["heldout"]
    assert gain["difference"] == pytest.approx(22 / 24) and gain["low"] > 0.5 and gain["p_value"] < 0.001
    assert found["paired"]["rl_over_sft"]["heldout"]["wins"] == 12
    assert found["promotion"] == {
        "promoted": True, "outcome": "promote", "previous": "base", "reasons": ["better"], "recomputed": None,
    }  # fmt: skip
    assert found["total_s"] == 356.0 and found["stage_seconds"]["rl"] == 200.0 and not found["resumed"]
    assert found["trained"]["sft"]["checkpoint"] == "ckpt-sft"
    assert found["wall_s"] is found["peak_rss_gib"] is found["second_night"] is None


def test_a_sample_without_a_verdict_is_in_no_score_and_in_no_pair(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    night(tmp_path, "20260101-000000-aaaa", rl=("1" * 20 + "----", "0" * 12))

    found = benchmark.collect(tmp_path)

    assert found["scores"]["rl"]["heldout"]["n"] == 20
    assert found["paired"]["rl_over_base"]["heldout"]["n_missing"] == 4


def test_a_night_that_was_interrupted_is_charged_for_what_was_done_before(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    night(tmp_path, "20260101-000000-aaaa", state="interrupted", until="sft")
    night(tmp_path, "20260101-010000-bbbb", reused={"ingest", "convert", "sft"})

    found = benchmark.collect(tmp_path)

    assert found["run"] == "20260101-010000-bbbb" and found["resumed"]
    assert found["total_s"] == 356.0


def test_the_repetition_is_the_second_night_and_not_the_result(benchmark: ModuleType, tmp_path: Path) -> None:
    night(tmp_path, "20260101-000000-aaaa")
    night(tmp_path, "20260101-010000-bbbb", reused=set(STAGES))

    found = benchmark.collect(tmp_path)

    assert found["run"] == "20260101-000000-aaaa" and found["total_s"] == 356.0
    assert found["second_night"] == pytest.approx(0.6)


def test_a_measured_night_says_its_seconds_and_memory(benchmark: ModuleType, tmp_path: Path) -> None:
    night(tmp_path, "20260101-000000-aaaa")

    found = benchmark.collect(tmp_path, benchmark.Measured(400.0, 5.5), benchmark.Measured(30.0, 1.0))

    assert (found["wall_s"], found["peak_rss_gib"], found["second_night"]) == (400.0, 5.5, 30.0)


def test_a_home_without_a_completed_night_is_named(benchmark: ModuleType, tmp_path: Path) -> None:
    night(tmp_path, "20260101-000000-aaaa", state="failed", until="rl")

    with pytest.raises(benchmark.NoNight, match=tmp_path.name):
        benchmark.collect(tmp_path)


def test_a_gain_holds_only_if_it_is_beyond_chance_for_every_seed(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    night(tmp_path / "a", "20260101-000000-aaaa", seed=1)
    night(tmp_path / "b", "20260101-000000-bbbb", seed=2, rl=("1" + "0" * 23, "0" * 12))
    good, weak = (benchmark.collect(tmp_path / name) for name in "ab")

    assert benchmark.ratios([good])["rl_minus_base"]["met"]
    both = benchmark.ratios([good, weak])["rl_minus_base"]
    assert not both["met"] and both["low"] <= 0
    assert both["median"] == pytest.approx((22 / 24 + 1 / 24) / 2)


def test_the_promises_are_held_against_the_worst_seed(benchmark: ModuleType, tmp_path: Path) -> None:
    night(tmp_path, "20260101-000000-aaaa")
    slow = benchmark.collect(tmp_path, benchmark.Measured(901.0, 5.0))
    quick = benchmark.collect(tmp_path, benchmark.Measured(500.0, 5.0), benchmark.Measured(20.0, 1.0))

    found = benchmark.ratios([slow, quick])

    assert found["first_night_s"]["high"] == 901.0 and not found["first_night_s"]["met"]
    assert found["second_night_s"]["met"] and found["peak_rss_gib"]["met"]
    assert found["rl_minus_base_regression"]["met"]


def test_the_document_has_the_contracts_keys(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    night(tmp_path / "home", "20260101-000000-aaaa")
    file = tmp_path / "first_night.json"

    benchmark.report([benchmark.collect(tmp_path / "home")], file)

    document = json.loads(file.read_text())
    assert set(document) == {"name", "machine", "versions", "n", "results", "ratios"}
    assert document["n"] == 1 and document["versions"]["skyrl"] == "0.4.0"
    assert all(set(r) == {"median", "low", "high", "goal", "met"} for r in document["ratios"].values())
    assert "0.92" in capsys.readouterr().out
