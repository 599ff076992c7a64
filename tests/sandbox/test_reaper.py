"""What a killed owner leaves is removed; what a living one has is not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import engine
from sandbox.config import SandboxConfig
from sandbox.container import Limits, Sandbox
from sandbox.reaper import reap, remove_runs

pytestmark = pytest.mark.docker
LIMITS = Limits(cpus=1, memory_mb=64, pids=20, file_mb=1, lifetime_s=60)
IMAGE = "nightschool-base:bookworm"
OWNER = f"""
import time
from sandbox.config import SandboxConfig
from sandbox.container import Limits, Sandbox
limits = Limits(cpus=1, memory_mb=64, pids=20, file_mb=1, lifetime_s=60)
for n in range(2):
    box = Sandbox("{IMAGE}", SandboxConfig(), user="1000", run_id="owner", limits=limits, start=n == 0)
    print(box.id, flush=True)
time.sleep(100)
"""


def exists(container: str) -> bool:
    found = engine.connect().api.containers(all=True, filters={"id": container})
    return bool(found)


def test_nothing_is_left_of_a_killed_owner(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER], env=env, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    left = [owner.stdout.readline().strip() for _ in range(2)]
    reap()
    assert all(exists(container) for container in left), "the owner lives"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    assert reap().containers >= 2
    assert not any(exists(container) for container in left)


def test_an_expired_container_is_removed_though_its_owner_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    expired = {**engine.labels("test", 60), engine.EXPIRES_LABEL: "1"}
    with Sandbox(IMAGE, SandboxConfig(), user="1000", run_id="test", limits=LIMITS) as kept:
        monkeypatch.setattr(engine, "labels", lambda run_id, lifetime_s: expired)
        with Sandbox(IMAGE, SandboxConfig(), user="1000", run_id="test", limits=LIMITS, start=False) as old:
            reap()
            assert exists(kept.id) and not exists(old.id)


def test_removing_a_run_leaves_other_runs_alone() -> None:
    with (
        Sandbox(IMAGE, SandboxConfig(), user="1000", run_id="one", limits=LIMITS, start=False) as one,
        Sandbox(IMAGE, SandboxConfig(), user="1000", run_id="two", limits=LIMITS, start=False) as two,
    ):
        assert remove_runs(["one"]) == 1
        assert not exists(one.id) and exists(two.id)


def test_an_owner_is_told_from_a_later_process_with_its_id() -> None:
    me = engine.owner()
    assert not engine.owner_is_dead(me)
    assert engine.owner_is_dead(me + "0")
    boot, namespace, pid, started = me.split("/")
    assert not engine.owner_is_dead(f"{boot}/{namespace}0/{pid}/{started}0"), (
        "another namespace cannot be judged"
    )
    assert not engine.owner_is_dead("")
