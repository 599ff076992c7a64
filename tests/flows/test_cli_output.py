"""Progress as plain lines: few, and never a second time the same."""

import pytest

from flows import output
from flows.output import PlainProgress, plain
from tasks.progress import ProgressEvent


def lines(capsys: pytest.CaptureFixture[str], *events: ProgressEvent) -> list[str]:
    progress = PlainProgress()
    for event in events:
        progress.tell(event)
    return capsys.readouterr().err.splitlines()


def test_the_first_and_the_last_of_many_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    events = [ProgressEvent("sft", step, 100, f"step {step}") for step in range(1, 101)]

    assert lines(capsys, *events) == ["[sft] 1/100 step 1", "[sft] 100/100 step 100"]


def test_the_end_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, *[ProgressEvent("ingest", 5, 5, "a.jsonl")] * 3) == ["[ingest] 5/5 a.jsonl"]


def test_a_long_stage_is_heard_of_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 400, 4))  # seconds
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))

    told = lines(capsys, *[ProgressEvent("rl", step, 100) for step in range(1, 10)])

    assert told == ["[rl] 1/100", "[rl] 4/100", "[rl] 7/100"]


def test_strict_json_has_no_nan() -> None:
    assert plain({"a": [float("nan"), float("inf"), 1.5], 2: b"x"}) == {"a": [None, None, 1.5], "2": "x"}
