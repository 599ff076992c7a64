"""Finished stages are found again by their inputs, and by nothing less."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import stages
from storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def test_a_recorded_stage_is_reused_for_equal_inputs_in_any_order(home: Home) -> None:
    stages.record(home, "convert", {"a": 1, "b": [2]}, {"dataset": "ds-1"})
    assert stages.reuse(home, "convert", {"b": [2], "a": 1}) == {"dataset": "ds-1"}


@pytest.mark.parametrize(("name", "inputs"), [("convert", {"a": 2}), ("train", {"a": 1}), ("convert", {})])
def test_other_inputs_or_another_stage_are_not_reused(home: Home, name: str, inputs: dict[str, int]) -> None:
    stages.record(home, "convert", {"a": 1}, {"dataset": "ds-1"})
    assert stages.reuse(home, name, inputs) is None


def test_a_record_that_cannot_be_read_counts_as_none(home: Home) -> None:
    stages.record(home, "convert", {"a": 1}, {"dataset": "ds-1"})
    (path,) = (home.stages / "convert").iterdir()
    path.write_text("{")
    assert stages.reuse(home, "convert", {"a": 1}) is None
    path.write_text("[]")
    assert stages.reuse(home, "convert", {"a": 1}) is None


def test_the_last_record_of_the_same_inputs_wins(home: Home) -> None:
    stages.record(home, "convert", {"a": 1}, {"dataset": "ds-1"})
    stages.record(home, "convert", {"a": 1}, {"dataset": "ds-2"})
    assert stages.reuse(home, "convert", {"a": 1}) == {"dataset": "ds-2"}
