"""The doctor: what it finds, what it demands, and that it looks without touching."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows import doctor
from flows.config import NightConfig
from flows.doctor import Check
from storage.home import Home
from storage.locks import hold

NAMES = ["python", "packages", "prefect", "docker", "base image", "disk", "memory", "processor", "gpu"]
NAMES += ["embedded model", "device"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def test_it_looks_at_everything_a_night_needs_and_changes_nothing(home: Home) -> None:
    found = doctor.checks(home, NightConfig())

    assert [check.name for check in found] == NAMES
    assert list(home.root.iterdir()) == []


def test_whatever_is_not_well_comes_with_a_remedy(home: Home) -> None:
    assert [
        check.name for check in doctor.checks(home, NightConfig()) if not check.ok and not check.remedy
    ] == []


def test_only_what_is_required_decides() -> None:
    spare = Check("spare", ok=False, required=False, detail="missing", remedy="get one")
    needed = Check("needed", ok=False, required=True, detail="missing", remedy="get one")

    assert doctor.report([spare])["ok"] is True
    assert doctor.report([spare, needed])["ok"] is False


def test_the_document_has_the_keys_that_programs_rely_on() -> None:
    document = doctor.report([Check("spare", ok=True, required=False, detail="here")])

    assert set(document) == {"ok", "checks"}
    assert set(document["checks"][0]) == {"name", "ok", "required", "detail", "remedy"}


def test_this_environment_is_the_pinned_one() -> None:
    assert doctor.packages(doctor.PINS).detail == "as pinned in pipeline.txt"


def test_a_package_of_another_version_is_named_with_both_versions() -> None:
    (wrong,) = doctor.different(["typer==0.0.1"])

    assert wrong.startswith("typer ")
    assert wrong.endswith("(pinned ==0.0.1)")


def test_a_missing_package_is_named() -> None:
    assert doctor.different(["no-such-package==1.0"]) == ["no-such-package missing (pinned ==1.0)"]


def test_a_pin_for_another_system_is_passed_over() -> None:
    assert doctor.different(["no-such-package==1.0 ; sys_platform == 'nowhere'"]) == []


def test_an_installation_without_pins_is_well(tmp_path: Path) -> None:
    assert doctor.packages(tmp_path / "pipeline.txt").ok


def test_a_docker_engine_that_does_not_answer_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")

    engine, image = doctor.docker_engine(), doctor.base_image("nightschool-base:bookworm")

    assert (engine.ok, engine.required) == (False, True)
    assert "no Docker engine answers" in engine.detail
    assert not image.ok


@pytest.mark.docker
def test_a_docker_engine_that_answers_tells_its_version() -> None:
    assert doctor.docker_engine().detail.startswith("engine ")


@pytest.mark.docker
def test_an_image_that_is_not_there_is_missed_by_name() -> None:
    found = doctor.base_image("nightschool-no-such-image:none")

    assert (found.ok, found.detail) == (False, "nightschool-no-such-image:none: not there")


def test_a_full_disk_is_a_reason_not_to_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**9))

    found = doctor.disk(tmp_path)

    assert (found.ok, found.required) == (False, True)
    assert "1.0 GB free" in found.detail


def test_a_machine_without_gpu_is_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")

    assert doctor.gpu() == Check("gpu", True, False, "none: the night runs on the processor")


@pytest.mark.parametrize(
    ("script", "ok", "said"),
    [
        ("echo 'NVIDIA Tiny, 1024 MiB, 3 MiB'", True, "NVIDIA Tiny, 1024 MiB, 3 MiB"),
        ("exit 9", False, "nvidia-smi fails"),
    ],
)
def test_a_gpu_is_what_its_driver_says(
    script: str, ok: bool, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")

    found = doctor.gpu()

    assert found.ok is ok
    assert said in found.detail


def test_the_model_of_the_first_night_is_found_where_it_is_made(home: Home) -> None:
    assert not doctor.embedded_model(home.models).ok

    made = home.models / "smollm2-135m-instruct"
    made.mkdir(parents=True)
    (made / "config.json").write_text("{}", encoding="utf-8")

    assert doctor.embedded_model(home.models).ok


def test_a_running_night_is_named_with_its_process(home: Home) -> None:
    with hold(home.locks / "device.lock", "night-1"):
        found = doctor.device(home.locks)

    assert not found.ok
    assert f"device by night-1 (pid {os.getpid()}" in found.detail
    assert doctor.device(home.locks).ok


def test_a_night_that_was_killed_holds_nothing(home: Home) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        "from storage.locks import hold\n"
        "with hold(pathlib.Path(sys.argv[1]), 'night-2'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    lock = home.locks / "device.lock"

    subprocess.run([sys.executable, "-c", program, str(lock)], check=False)

    assert "night-2" in lock.read_text(encoding="utf-8")
    assert doctor.device(home.locks).ok


def test_looking_does_not_load_torch(home: Home) -> None:
    program = (
        "import pathlib, sys\n"
        "from flows import doctor\n"
        "from flows.config import NightConfig\n"
        "from storage.home import Home\n"
        "doctor.checks(Home(pathlib.Path(sys.argv[1])), NightConfig())\n"
        "print('torch' in sys.modules, 'prefect' in sys.modules)\n"
    )
    command: list[Any] = [sys.executable, "-c", program, home.root]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]
