"""Stages and runs of a night: done once, written down, and closed whatever ends them."""

from pathlib import Path
from typing import Any

import pytest

from flows.config import NightConfig
from flows.night import Night
from flows.runs import LOCK, running
from flows.stage import StageResult, Stages
from storage.errors import LockHeld
from storage.home import Home
from storage.locks import hold
from storage.registry import Registry
from storage.runs import Run
from tasks.progress import silent

ENDS = [(ValueError("why"), "failed"), (KeyboardInterrupt(), "interrupted")]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path)


def stages(home: Home) -> Stages:
    return Stages(home, Run.create(home, "nightly", {}), lambda _name, _result: None)


def counted(calls: list[int]) -> dict[str, Any]:
    calls.append(1)
    return {"answer": 42}


def test_the_same_inputs_are_worked_on_once(home: Home) -> None:
    calls: list[int] = []

    for _ in range(2):
        night = stages(home)
        output = night.do("convert", lambda: counted(calls), lambda: {"lake": "a"})

    assert len(calls) == 1
    assert output["answer"] == 42
    assert night.results[0].reused


def test_other_inputs_are_worked_on_again(home: Home) -> None:
    calls: list[int] = []

    for version in ("a", "b"):
        stages(home).do("convert", lambda: counted(calls), lambda version=version: {"lake": version})

    assert len(calls) == 2


@pytest.mark.parametrize("there", [lambda _: False, lambda output: output["gone"]])
def test_a_result_that_is_gone_is_made_again(home: Home, there: Any) -> None:
    calls: list[int] = []

    for _ in range(2):
        stages(home).do("sft", lambda: counted(calls), lambda: {"seed": 1}, there)

    assert len(calls) == 2


def test_a_stage_without_inputs_says_itself_whether_it_was_reused(home: Home) -> None:
    night = stages(home)

    night.do("evaluate", lambda: {"reused": True})

    assert night.results[0].reused


def test_a_reused_stage_brings_its_curves_along(home: Home) -> None:
    first, second = stages(home), stages(home)

    def work() -> dict[str, Any]:
        first.run.metric("sft", 0, loss=2.5)
        return {}

    first.do("sft", work, lambda: {"seed": 1}, lambda _: True)
    second.do("sft", work, lambda: {"seed": 1}, lambda _: True)

    assert [record["loss"] for record in second.run.metrics("sft")] == [2.5]


@pytest.mark.parametrize(("error", "state"), ENDS)
def test_a_stage_that_breaks_off_is_written_down_and_not_recorded(
    home: Home, error: BaseException, state: str
) -> None:
    night, calls = stages(home), []

    def work() -> dict[str, Any]:
        raise error

    with pytest.raises(type(error)):
        night.do("rl", work, lambda: {"seed": 1})
    stages(home).do("rl", lambda: counted(calls), lambda: {"seed": 1})

    assert night.run.events()[-1]["state"] == state
    assert len(calls) == 1


def test_every_stage_is_told_when_it_begins_and_when_it_ends(home: Home) -> None:
    heard: list[tuple[str, StageResult | None]] = []
    night = Stages(home, Run.create(home, "nightly", {}), lambda name, result: heard.append((name, result)))

    night.do("ingest", lambda: {"new": 3})
    night.skip("rl", "there are no tasks")

    assert [(name, result and result.state) for name, result in heard] == [
        ("ingest", None),
        ("ingest", "completed"),
        ("rl", "skipped"),
    ]


def test_a_run_that_ends_well_is_completed(home: Home) -> None:
    with running(home, "train-sft", {"steps": 1}) as run:
        assert run.manifest()["state"] == "running"

    assert run.manifest()["state"] == "completed"


@pytest.mark.parametrize(("error", "state"), ENDS)
def test_a_run_that_breaks_off_says_so(home: Home, error: BaseException, state: str) -> None:
    with pytest.raises(type(error)), running(home, "nightly", {}) as run:
        raise error

    assert run.manifest()["state"] == state


def test_only_one_run_is_at_work_in_a_home_and_the_next_one_may_begin(home: Home) -> None:
    with (
        running(home, "nightly", {}),
        pytest.raises(LockHeld, match="nightly"),
        running(home, "train-rl", {}),
    ):
        pytest.fail("two at once")

    with running(home, "train-rl", {}):
        pass


def test_a_run_that_was_killed_is_closed_by_the_next(home: Home) -> None:
    killed = Run.create(home, "nightly", {})

    with running(home, "nightly", {}):
        pass

    assert killed.manifest()["state"] == "interrupted"


def test_a_refused_night_leaves_no_run(home: Home) -> None:
    with hold(home.locks / LOCK, "somebody"), pytest.raises(LockHeld), running(home, "nightly", {}):
        pass

    assert Run.latest(home) is None


@pytest.fixture
def night(home: Home, tmp_path: Path) -> Night:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}", encoding="utf-8")
    night = Night(home, Run.create(home, "nightly", {}), NightConfig(), silent)
    night.model_dir = model
    return night


def checkpoint(home: Home, weights: bytes, base_model: str) -> str:
    path = home.root / "weights"
    path.write_bytes(weights)
    return Registry(home).add(path, None, {"kind": "sft", "base_model": base_model, "renderer": "r"}).id


def test_the_first_candidate_has_to_beat_the_base_model(home: Home, night: Night) -> None:
    assert night.incumbent("ckpt-new") == "base"


def test_a_candidate_has_to_beat_prod_and_prod_itself_what_was_before(home: Home, night: Night) -> None:
    from serving.model import model_digest

    base = model_digest(night.model_dir)
    old, new = checkpoint(home, b"old", base), checkpoint(home, b"new", base)
    registry = Registry(home)

    registry.promote(old)
    assert night.incumbent(new) == old
    assert night.incumbent(old) == "base"
    registry.promote(new)
    assert night.incumbent(new) == old


def test_a_prod_of_another_base_model_is_no_opponent(home: Home, night: Night) -> None:
    Registry(home).promote(checkpoint(home, b"old", "another model"))

    assert night.incumbent("ckpt-new") == "base"
