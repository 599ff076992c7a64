"""The verdict: a task's tests, run where no agent has been.

Keeps true: the tests run in a fresh container made from the task's image, after every process of the agent is
dead; only the agent's work is carried into it, and its files are laid out before the first process starts.
Harbor's rules decide (0.25): the exit code says nothing, reward.json wins over reward.txt, numbers are
finite, and no verdict is never 0. Leaves to others: what a trial makes of a verdict.
"""

import json
import math
import posixpath
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from sandbox import engine
from sandbox.archives import add_directory, add_empty_directory, read_tar
from sandbox.config import SandboxConfig
from sandbox.container import PATH, Limits, Sandbox
from sandbox.errors import VerifierError
from sandbox.harbor import Task, resolve_env
from sandbox.streams import HeadTail
from sandbox.work import STAGED, collect, is_root

# What root needs to grade files of another user and to run parts of a test as one; none of it reaches
# outside.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
MAX_REWARD_BYTES = 1 << 20
MAX_READ_BYTES = 64 << 20
KEPT_STDOUT_BYTES = 1 << 16

# $1 is the working directory, $2 whether the agent's takes its place, $3 the tests' user ("" for root), the
# rest are paths the agent deleted.
_SCRIPT = f"""
cd / && wd=$1 carried=$2 user=$3 && shift 3
rm -f /logs/verifier/reward.json /logs/verifier/reward.txt
[ $# = 0 ] || rm -rf -- "$@"
if [ -n "$carried" ]; then
  rm -rf -- "$wd"
  if [ -e {STAGED} ] || [ -L {STAGED} ]; then mv {STAGED} "$wd"; else mkdir -p "$wd"; fi
  rm -rf /.nightschool
fi
cd "$wd"
exec > /logs/verifier/test-stdout.txt 2>&1
if [ -z "$user" ]; then exec /bin/bash -c /tests/test.sh; fi
group=$(id -g "$user" 2>/dev/null) || group=${{user#*:}}
exec setpriv --reuid="${{user%%:*}}" --regid="$group" --clear-groups /bin/bash -c /tests/test.sh
"""


@dataclass(frozen=True)
class Verdict:
    """`rewards` by name as the tests wrote them.

    `reward` is the one that counts; `tampered` says what gave the agent away.
    """

    reward: float
    rewards: dict[str, float]
    stdout: str
    tampered: str | None = None


def verify(task: Task, box: Sandbox, config: SandboxConfig, *, run_id: str) -> Verdict:
    """Grade what the agent left in `box`. Kills everything in it first.

    Raises:
        VerifierError: the tests gave no verdict (timeout, no reward, or one that cannot be read).
        SandboxError: the work or the tests could not be brought into the verifier's container.
    """
    if not (task.path / "tests" / "test.sh").is_file():
        raise VerifierError("AddTestsDirError", f"{task.path} has no tests/test.sh")
    box.kill()
    with tempfile.SpooledTemporaryFile(max_size=8 << 20) as spool:
        with tarfile.open(fileobj=spool, mode="w", format=tarfile.PAX_FORMAT) as tar:
            work = collect(box, task, tar, max_bytes=config.max_work_mb << 20)
            tampered = work.tampering()
            if tampered:
                return Verdict(0.0, {"reward": 0.0}, "", tampered)
            # Last, so that nothing carried can stand in their place.
            user = _tests_user(task)
            add_directory(tar, task.path / "tests", "/tests", readable=bool(user))
            add_empty_directory(tar, "/logs", 0o755)
            add_empty_directory(tar, "/logs/verifier", 0o777 if user else 0o755)
        spool.seek(0)
        return _judge(task, box, spool, work.deleted, config, run_id)


def _tests_user(task: Task) -> str:
    """Whom the tests run as; empty for root."""
    user = task.config.verifier.user
    return "" if user is None or is_root(str(user)) else str(user)


def _judge(
    task: Task, box: Sandbox, files: IO[bytes], deleted: list[str], config: SandboxConfig, run_id: str
) -> Verdict:
    """Lay out work and tests in a fresh container, let it run to its end, read the reward."""
    timeout_s = min(task.config.verifier.timeout_sec, config.verifier_timeout_s)
    carried = task.config.verifier.environment_mode != "separate" and box.workdir != "/"
    arguments = [box.workdir, "yes" if carried else "", _tests_user(task), *deleted]
    judge = Sandbox(
        box.image,
        config,
        user="root",
        run_id=run_id,
        limits=limits_for(task, config, timeout_s),
        env=_environment(task, box),
        command=["/bin/sh", "-c", _SCRIPT, "verifier", *arguments],
        capabilities=CAPABILITIES,
        start=False,
    )
    with judge:
        judge.put("/", files)
        judge.start()
        if judge.wait(timeout_s) is None:
            raise VerifierError(
                "VerifierTimeoutError", f"the tests of {task.name} took more than {timeout_s:g} s"
            )
        return _read_verdict(judge)


def limits_for(task: Task, config: SandboxConfig, lifetime_s: float) -> Limits:
    """The task's wishes under the configured ceilings."""
    wanted = task.config.environment
    return Limits(
        cpus=min(wanted.cpus or config.cpus, config.cpus),
        memory_mb=min(wanted.memory_mb or config.memory_mb, config.memory_mb),
        pids=config.pids,
        file_mb=config.max_file_mb,
        lifetime_s=lifetime_s,
    )


def _environment(task: Task, box: Sandbox) -> dict[str, str]:
    """The image's environment with nothing an agent may write in front of what the system provides.

    PYTHONSAFEPATH keeps modules planted in the working directory from shadowing those of the tests; a
    task whose tests need the working directory on sys.path sets it to "" in [verifier].env.
    """
    image: list[str] = engine.connect().images.get(box.image).attrs["Config"]["Env"] or []
    given = dict(item.split("=", 1) for item in image)
    trusted: list[str] = []
    writable: list[str] = []
    for entry in given.get("PATH", PATH).split(":"):
        safe = posixpath.isabs(entry) and not _within(entry, box.workdir) and not _within(entry, "/tmp")
        (trusted if safe else writable).append(entry)
    kept = [
        entry for entry in given.get("PYTHONPATH", "").split(":") if entry and not _within(entry, box.workdir)
    ]
    return {
        "PATH": ":".join([*trusted, *writable]),
        "PYTHONPATH": ":".join(["/tests", *kept]),
        "PYTHONSAFEPATH": "1",
        "LD_PRELOAD": "",
        "BASH_ENV": "",
        "ENV": "",
        **resolve_env(task.config.environment.env, task.path / "task.toml"),
        **resolve_env(task.config.verifier.env, task.path / "task.toml"),
    }


def _within(path: str, directory: str) -> bool:
    return directory != "/" and f"{posixpath.normpath(path)}/".startswith(f"{directory}/")


def _read_verdict(judge: Sandbox) -> Verdict:
    """What the tests left in /logs/verifier, read without following links."""
    files: dict[str, bytes | None] = {}
    stdout, total = HeadTail(KEPT_STDOUT_BYTES), 0
    with judge.get("/logs/verifier") as chunks, read_tar(chunks) as tar:
        for info in tar:
            total += info.size
            if total > MAX_READ_BYTES and info.name != "verifier/test-stdout.txt":
                raise VerifierError(
                    "DownloadVerifierDirError", f"/logs/verifier holds more than {MAX_READ_BYTES} bytes"
                )
            content = tar.extractfile(info) if info.isreg() else None
            if info.name in ("verifier/reward.json", "verifier/reward.txt"):
                files[info.name.removeprefix("verifier/")] = (
                    content.read(MAX_REWARD_BYTES) if content else None
                )
            elif info.name == "verifier/test-stdout.txt" and content is not None:
                while block := content.read(1 << 20):
                    stdout.add(block)
    try:
        rewards = parse_rewards(files)
    except VerifierError as error:
        memory = " (a process was killed for memory)" if judge.out_of_memory() else ""
        detail = str(error).removeprefix(f"{error.kind}: ") + memory
        raise VerifierError(
            error.kind, f"{detail}; end of the tests' output: {stdout.text()[-500:]!r}"
        ) from None
    return Verdict(overall(rewards), rewards, stdout.text())


def parse_rewards(files: Mapping[str, bytes | None]) -> dict[str, float]:
    """Rewards by name from the verdict's files (None for one that is no regular file), by Harbor's rules.

    Raises:
        VerifierError: RewardFileNotFoundError, RewardFileEmptyError or VerifierOutputParseError.
    """
    for name in ("reward.json", "reward.txt"):
        if name not in files:
            continue
        content = files[name]
        if content is None:
            raise VerifierError("VerifierOutputParseError", f"{name} is not a regular file")
        if not content.strip():
            raise VerifierError("RewardFileEmptyError", f"{name} is empty")
        try:
            return (
                _named_rewards(json.loads(content))
                if name == "reward.json"
                else {"reward": _finite(float(content))}
            )
        except (ValueError, OverflowError, RecursionError) as error:
            raise VerifierError("VerifierOutputParseError", f"{name}: {error}") from error
    raise VerifierError("RewardFileNotFoundError", "the tests wrote neither reward.json nor reward.txt")


def _named_rewards(value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or not value:
        raise ValueError("it must be an object of numbers by name")
    for name, number in value.items():
        if not isinstance(number, int | float):
            raise ValueError(f"{name} is no number but {number!r:.80}")
    return {name: _finite(float(number)) for name, number in value.items()}


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return value


def overall(rewards: Mapping[str, float]) -> float:
    """The one number: the reward called `reward`, else the mean."""
    return rewards["reward"] if "reward" in rewards else sum(rewards.values()) / len(rewards)
