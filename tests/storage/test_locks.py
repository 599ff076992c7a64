import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from storage.errors import LockHeld
from storage.locks import hold, read_holder

ROOT = Path(__file__).parents[2]


def _holder_process(path):
    code = f"""
        import time
        from pathlib import Path
        from storage.locks import hold
        with hold(Path({str(path)!r}), "run-1"):
            print("held", flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_holder_is_refused_and_told_who_pid_and_since_when(tmp_path):
    path = tmp_path / "locks" / "night.lock"
    process = _holder_process(path)
    try:
        words = rf"night.lock is held by run-1 \(pid {process.pid}, since 2"
        with pytest.raises(LockHeld, match=words), hold(path, "run-2"):
            pass
        assert read_holder(path)["pid"] == process.pid
    finally:
        process.kill()
        process.communicate()


def test_a_killed_holder_frees_the_lock(tmp_path):
    path = tmp_path / "night.lock"
    process = _holder_process(path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with hold(path, "run-2"):
        assert read_holder(path)["run"] == "run-2"


def test_a_lock_is_free_after_its_block_also_when_that_failed(tmp_path):
    path = tmp_path / "x.lock"
    with pytest.raises(ZeroDivisionError), hold(path, "a"):
        raise ZeroDivisionError
    with hold(path, "b"):
        pass
    assert read_holder(path) == {}


def test_a_waiter_gives_up_after_its_time(tmp_path):
    path = tmp_path / "x.lock"
    with hold(path, "a"), pytest.raises(LockHeld), hold(path, "b", wait_s=0.2):
        pass
