"""What commands in a sandbox can and cannot do, on the real engine."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox import engine
from sandbox.config import SandboxConfig
from sandbox.container import Limits, Sandbox
from sandbox.errors import SandboxStopped
from sandbox.harbor import Task
from sandbox.images import ensure_image

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("no_leaks")]


@pytest.fixture
def box(make_task: Callable[..., Task], config: SandboxConfig) -> Iterator[Sandbox]:
    limits = Limits(cpus=1, memory_mb=64, pids=40, file_mb=4, lifetime_s=60)
    image = ensure_image(make_task(), config)
    with Sandbox(image, config, user="1000:1000", run_id="test", limits=limits, env={"GIVEN": "yes"}) as box:
        yield box


def test_a_command_runs_as_the_agent_in_its_writable_working_directory(box: Sandbox) -> None:
    result = box.exec("id -u; pwd; echo more >> data/one; cat data/one; echo oops >&2; echo $GIVEN; exit 3")
    assert result.exit_code == 3
    assert result.output == "1000\n/app\nonemore\noops\nyes\n"
    assert not result.truncated and not result.timed_out


def test_an_agent_has_no_privilege_no_network_and_no_way_to_write_the_system(box: Sandbox) -> None:
    status = box.exec("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status").output
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{name}:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status
    assert box.exec("ls /sys/class/net").output.split() == ["lo"]
    attempts = (
        "touch /usr/bin/x /etc/x /tests /logs; mkdir /logs; kill -9 1; kill -9 -1; ls /var/run/docker.sock"
    )
    box.exec(f"({attempts}) > /tmp/out 2>&1")
    assert (
        box.exec("ls /usr/bin/x /etc/x /tests /logs /var/run/docker.sock 2>/dev/null; echo alive").output
        == "alive\n"
    )


def test_a_time_limit_kills_the_command_with_what_it_detached(box: Sandbox) -> None:
    started = time.monotonic()
    result = box.exec("setsid sleep 1000 & (trap '' TERM; sleep 1000) & echo begun; sleep 1000", 1.0)
    assert result.timed_out and result.exit_code is None and result.output == "begun\n"
    assert time.monotonic() - started < 5
    assert _sleepers(box) == 0


def _sleepers(box: Sandbox) -> int:
    """Processes called sleep, without the container's own."""
    return int(box.exec("cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^sleep$'").output) - 1


def test_a_background_process_does_not_hold_its_command_up_and_lives_on(box: Sandbox) -> None:
    started = time.monotonic()
    assert box.exec("sleep 1000 & echo started", 20.0).output == "started\n"
    assert time.monotonic() - started < 3
    assert _sleepers(box) == 1


def test_endless_output_is_cut_off_with_head_and_tail(box: Sandbox) -> None:
    result = box.exec("echo first; yes", 20.0, 1000)
    assert result.truncated and result.exit_code is None and not result.timed_out
    assert result.output.startswith("first\ny\n") and "bytes left out" in result.output
    assert len(result.output) < 1200
    assert box.exec("echo fine").output == "fine\n"


def test_long_output_that_ends_keeps_its_exit_code(box: Sandbox) -> None:
    result = box.exec("seq 1000; exit 4", 20.0, 200)
    assert result.truncated and result.exit_code == 4
    assert result.output.startswith("1\n2\n") and result.output.endswith("999\n1000\n")


def test_a_fork_bomb_ends_at_its_time_limit_and_the_sandbox_goes_on(box: Sandbox) -> None:
    box.exec("bomb() { bomb | bomb & }; bomb; while :; do :; done", 2.0)
    assert box.exec("echo fine", 10.0).output == "fine\n"


def test_memory_and_file_sizes_are_bounded(box: Sandbox) -> None:
    eaten = box.exec("python3 -c 'x = bytearray(500 << 20)'; echo $?", 20.0)
    assert "137" in eaten.output or "MemoryError" in eaten.output
    box.exec("head -c 100000000 /dev/zero > big; truncate -s 1T sparse", 20.0)
    assert int(box.exec("stat -c %s big").output) <= 4 << 20
    assert box.exec("stat -c %s sparse").output.strip() in (
        "0",
        "stat: cannot statx 'sparse': No such file or directory",
    )


def test_several_threads_may_run_commands_at_once(box: Sandbox) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: box.exec(f"sleep 0.1; echo {n}").output, range(8)))
    assert results == [f"{n}\n" for n in range(8)]


def test_a_removed_container_says_so(box: Sandbox) -> None:
    box.remove()
    with pytest.raises(SandboxStopped):
        box.exec("echo hello")


def test_an_unreachable_engine_is_named_with_its_remedy() -> None:
    code = (
        "from sandbox import engine\ntry:\n engine.connect()\nexcept engine.DockerUnavailable as e: print(e)"
    )
    env = {"DOCKER_HOST": "unix:///nonexistent/docker.sock", "PYTHONPATH": ":".join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    ).stdout
    assert "no Docker engine answers" in said and engine.REMEDY in said
