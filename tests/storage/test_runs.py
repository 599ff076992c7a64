"""Run directories: whole lines, ids that sort by time, and what is left of a killed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import NotFound, StorageError
from storage.home import Home
from storage.runs import Run


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def placed(home: Home, run_id: str, kind: str = "nightly") -> Run:
    """A run with a chosen id, as an earlier moment would have made it."""
    run = Run(home, run_id)
    run._write_manifest({"id": run_id, "kind": kind, "state": "completed"})
    return run


def test_a_new_run_is_running_and_says_with_what(home: Home) -> None:
    run = Run.create(home, "nightly", {"steps": 3})
    manifest = run.manifest()
    assert manifest["state"] == "running"
    assert manifest["config"] == {"steps": 3}
    assert manifest["id"] == run.id == run.path.name


def test_finish_keeps_the_manifest_and_adds_the_end(home: Home) -> None:
    run = Run.create(home, "nightly", {})
    run.finish("failed", error="no space")
    manifest = run.manifest()
    assert (manifest["kind"], manifest["state"], manifest["error"]) == ("nightly", "failed", "no space")
    assert manifest["finished_at"] >= manifest["created_at"]


def test_events_and_metrics_come_back_in_order(home: Home) -> None:
    run = Run.create(home, "nightly", {})
    run.event("stage", stage="ingest", state="completed")
    run.event("stage", stage="convert", state="completed")
    run.metric("sft", 1, loss=2.0)
    run.metric("rl", 1, reward=0.5)
    assert [event["stage"] for event in run.events()] == ["ingest", "convert"]
    assert [metric["loss"] for metric in run.metrics("sft")] == [2.0]
    assert len(run.metrics()) == 2


def test_a_measurement_that_is_not_a_number_is_kept_as_null(home: Home) -> None:
    run = Run.create(home, "nightly", {})
    run.metric("sft", 1, loss=float("nan"), grad_norm=float("inf"))
    assert run.metrics()[0]["loss"] is None
    assert run.metrics()[0]["grad_norm"] is None


def test_a_line_cut_short_by_a_kill_costs_only_itself(home: Home) -> None:
    run = Run.create(home, "nightly", {})
    run.metric("sft", 1, loss=2.0)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "sft", "st')
    run.metric("sft", 3, loss=1.0)
    assert [metric["step"] for metric in run.metrics()] == [1, 3]


def test_the_latest_run_is_the_newest_of_its_kind(home: Home) -> None:
    assert Run.latest(home, "nightly") is None
    placed(home, "20260101-020000-aaaa")
    newest = placed(home, "20260102-020000-0000")
    placed(home, "20260103-020000-0000", kind="evaluate")
    assert Run.latest(home, "nightly") == newest
    assert Run.latest(home) == Run(home, "20260103-020000-0000")


def test_a_run_is_found_by_a_unique_prefix(home: Home) -> None:
    placed(home, "20260101-020000-aaaa")
    placed(home, "20260101-030000-bbbb")
    assert Run.open(home, "20260101-03").id == "20260101-030000-bbbb"
    with pytest.raises(StorageError, match="ambiguous"):
        Run.open(home, "20260101")
    with pytest.raises(NotFound, match="20260101-030000-bbbb"):
        Run.open(home, "1999")


def test_a_path_is_not_a_run_id(home: Home) -> None:
    with pytest.raises(NotFound):
        Run.open(home, "../checkpoints")
