"""A whole night, nothing replaced: real traces, a real server on a tiny random model, real sandboxes."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.docker, pytest.mark.server, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "first_night"
STAGES = ["ingest", "convert", "sft", "rl", "evaluate", "promote", "report"]
PROGRAM = [sys.executable, "-c", "from flows.cli import app; app()"]


@pytest.fixture
def folder(tmp_path: Path, tiny_model_dir: Path) -> Path:
    """A configuration of the smallest doses beside one training task and two held-out ones."""
    for name, count in (("train", 1), ("heldout", 2)):
        for task in sorted((EXAMPLE / "tasks" / name).iterdir())[:count]:
            shutil.copytree(task, tmp_path / "tasks" / name / task.name)
    (tmp_path / "nightschool.toml").write_text(
        f'[traces]\npaths = ["{EXAMPLE}/traces"]\n[model]\npath = "{tiny_model_dir}"\n'
        "[agent]\nmax_turns = 1\nmax_tokens_per_turn = 8\nmax_context_tokens = 4096\n"
        "[convert]\nmax_tokens = 4096\n[sft]\nmax_steps = 2\nbatch_rows = 2\n"
        "[rl]\nsteps = 1\ngroups_per_step = 1\ngroup_size = 2\n",
        encoding="utf-8",
    )
    return tmp_path


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    places = ["--home", str(folder / "home"), "--config", str(folder / "nightschool.toml")]
    environment = {key: value for key, value in os.environ.items() if key != "PREFECT_HOME"}
    return subprocess.Popen(
        [*PROGRAM, *arguments, "--json", *places],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: "subprocess.Popen[str]", code: int) -> dict[str, Any]:
    """The one JSON document of a command that ends with `code`."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, (out, err)
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def wait_for_line(process: "subprocess.Popen[str]", pattern: str) -> None:
    assert process.stderr is not None
    while line := process.stderr.readline():
        if re.search(pattern, line):
            return
    pytest.fail(f"no line like {pattern!r}")


def left_running(folder: Path) -> list[str]:
    """Every process that a night of this test's home has started."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if each.environ().get("PREFECT_HOME", "").startswith(str(folder)):
                found.append(" ".join(each.cmdline()))
    return found


def test_a_night_is_interrupted_goes_on_is_reused_and_refuses_a_second(folder: Path) -> None:
    first = start(folder, "nightly")
    wait_for_line(first, r"\[sft\] started")
    time.sleep(1.0)
    second = ended(start(folder, "nightly"), 3)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does
    interrupted = ended(first, 130)

    assert f"pid {first.pid}" in second["error"]
    assert "interrupted" in interrupted["error"]
    assert left_running(folder) == []

    night = ended(start(folder, "nightly"), 0)

    assert [stage["name"] for stage in night["stages"]] == STAGES
    assert {stage["state"] for stage in night["stages"]} == {"completed"}
    assert [stage["name"] for stage in night["stages"] if stage["reused"]] == ["ingest", "convert"]
    assert night["promotion"]["promoted"] is False
    assert Path(night["report"]).is_file()
    manifests = sorted((folder / "home/runs").glob("*/manifest.json"))
    states = [json.loads(path.read_text(encoding="utf-8"))["state"] for path in manifests]
    assert states == ["interrupted", "completed"]

    again = ended(start(folder, "nightly"), 0)

    assert [stage["name"] for stage in again["stages"] if not stage["reused"]] == ["report"]
    assert left_running(folder) == []


def test_a_night_whose_traces_are_not_there_fails_with_its_name_and_keeps_a_report(folder: Path) -> None:
    found = ended(start(folder, "nightly", "--traces", "/no/such/traces.jsonl"), 2)

    assert "ingest failed: /no/such/traces.jsonl" in found["error"]
    assert found["state"] == "failed"
    assert Path(found["report"]).is_file()


def test_a_night_without_tasks_trains_and_says_what_it_skipped(folder: Path) -> None:
    shutil.rmtree(folder / "tasks")

    found = ended(start(folder, "nightly"), 0)

    states = {stage["name"]: stage["state"] for stage in found["stages"]}
    assert states == {
        **dict.fromkeys(["ingest", "convert", "sft", "report"], "completed"),
        **dict.fromkeys(["rl", "evaluate", "promote"], "skipped"),
    }
