"""One trial: an agent at work on a task in a sandbox, and the verdict on it; and many of them at a time.

Keeps true: a trial ends as a row, whatever happens in it; what failed (sandbox, provider, verifier, the
agent's answer) is told apart, and a reward is given only where there is a verdict; containers are gone when
it ends, cancelled or not. Leaves to others: retries, statistics.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.agents import Agent, AgentRun
from sandbox.config import SandboxConfig
from sandbox.container import Sandbox
from sandbox.errors import Cancelled, ProviderError, SandboxError, VerifierError
from sandbox.harbor import Task, resolve_env
from sandbox.images import agent_user, ensure_image
from sandbox.reaper import remove_runs
from sandbox.verifier import Verdict, limits_for, verify
from sandbox.work import is_root

Outcome = Literal[
    "passed", "failed", "tampered", "sandbox_failed", "provider_failed", "verifier_failed", "cancelled"
]
_POLL_S = 0.2
_NO_WORKDIR_FOR_ROOT = (
    "",
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib64",
    "logs",
    "proc",
    "run",
    "sbin",
    "sys",
    "tests",
    "usr",
)


@dataclass(frozen=True)
class Trial:
    """How it went.

    `reward` is None where there is no verdict; `verdict` has the details; `seconds` is wall time.
    """

    task: str
    task_digest: str
    sample: int
    outcome: Outcome
    reward: float | None
    run: AgentRun | None
    seconds: float
    error: str | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True)
class TrialJob:
    """A trial to run."""

    task: Task
    agent: Agent
    sample: int = 0
    seed: int = 0
    run_id: str = "adhoc"
    trial_dir: Path | None = None


def run_trial(
    task: Task,
    agent: Agent,
    config: SandboxConfig,
    *,
    seed: int = 0,
    run_id: str = "adhoc",
    trial_dir: Path | None = None,
    sample: int = 0,
    cancel: threading.Event | None = None,
) -> Trial:
    """Run one trial to its end; only KeyboardInterrupt and its like come out as exceptions."""
    attempt = _Attempt(task, agent, config, seed, run_id, cancel or threading.Event())
    started = time.time()
    clock = time.monotonic()
    outcome, reward, error = attempt.outcome()
    seconds = time.monotonic() - clock
    trial = Trial(
        task.name, task.digest, sample, outcome, reward, attempt.run, seconds, error, attempt.verdict
    )
    if trial_dir is not None:
        from sandbox.records import write_trial

        write_trial(trial_dir, trial, task, agent.name, started_at=started)
    return trial


class _Attempt:
    """One try at a trial; keeps what was reached when it fails midway."""

    def __init__(
        self, task: Task, agent: Agent, config: SandboxConfig, seed: int, run_id: str, cancel: threading.Event
    ) -> None:
        self.task, self.agent, self.config, self.seed, self.run_id, self.cancel = (
            task,
            agent,
            config,
            seed,
            run_id,
            cancel,
        )
        self.run: AgentRun | None = None
        self.verdict: Verdict | None = None

    def outcome(self) -> tuple[Outcome, float | None, str | None]:
        """(outcome, reward, error): the boundary where every exception of a trial becomes a row."""
        try:
            verdict = self._work_and_verify()
        except ProviderError as error:
            return self._failed("provider_failed", error)
        except VerifierError as error:
            return self._failed("verifier_failed", error)
        except Cancelled as error:
            return "cancelled", None, str(error)
        except SandboxError as error:
            return self._failed("sandbox_failed", error)
        except Exception as error:  # a bug in an agent or in us must not end the other trials
            return self._failed("sandbox_failed", error)
        if verdict.tampered:
            return "tampered", 0.0, verdict.tampered
        return ("passed" if verdict.reward >= 1 else "failed"), verdict.reward, None

    def _failed(self, outcome: Outcome, error: Exception) -> tuple[Outcome, None, str]:
        # A container removed by the cancellation fails in its own ways: they are all the cancellation.
        if self.cancel.is_set():
            return "cancelled", None, "cancelled"
        name = "" if isinstance(error, SandboxError) else f"{type(error).__name__}: "
        return outcome, None, f"{name}{error}"

    def _work_and_verify(self) -> Verdict:
        self._check()
        image = ensure_image(self.task, self.config)
        user = agent_user(self.task, self.config)
        self._check()
        with self._box(image, user) as box:
            if is_root(user) and box.workdir.strip("/").split("/")[0] in _NO_WORKDIR_FOR_ROOT:
                raise SandboxError(
                    f"task {self.task.name} has a root agent in {box.workdir}: what it changes there cannot "
                    "be verified safely; give the image a WORKDIR such as /app"
                )
            self._check()
            self.run = self.agent.run(self.task, box, seed=self.seed)
            self._check()
            self.verdict = verify(self.task, box, self.config, run_id=self.run_id)
            return self.verdict

    def _box(self, image: str, user: str) -> Sandbox:
        lifetime_s = min(
            self.task.config.agent.timeout_sec or self.config.agent_timeout_s, self.config.agent_timeout_s
        )
        env = resolve_env(self.task.config.environment.env, self.task.path / "task.toml")
        # A numeric user has no home of its own: without this, programs that write there fail.
        home = {} if is_root(user) or not user.split(":")[0].isdigit() else {"HOME": "/tmp"}
        limits = limits_for(self.task, self.config, lifetime_s)
        return Sandbox(image, self.config, user=user, run_id=self.run_id, limits=limits, env=home | env)

    def _check(self) -> None:
        if self.cancel.is_set():
            raise Cancelled("cancelled")


def run_trials(
    jobs: Sequence[TrialJob],
    config: SandboxConfig,
    *,
    on_done: Callable[[Trial], None] | None = None,
    cancel: threading.Event | None = None,
) -> list[Trial]:
    """Run `jobs`, `config.concurrency` at a time; the trials in the order of the jobs.

    Setting `cancel` ends it early: what is running is torn down, what is left comes back as cancelled. So
    does KeyboardInterrupt, which is raised again once the containers are gone. `on_done` is called in
    this thread.
    """
    cancel = cancel or threading.Event()
    runs = {job.run_id for job in jobs}
    trials: dict[int, Trial] = {}
    with ThreadPoolExecutor(config.concurrency, thread_name_prefix="trial") as pool:
        futures = {pool.submit(_run_job, job, config, cancel): index for index, job in enumerate(jobs)}
        try:
            pending = set(futures)
            while pending:
                done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    trials[futures[future]] = future.result()
                    if on_done is not None:
                        on_done(trials[futures[future]])
                if cancel.is_set() and pending:
                    remove_runs(runs)
        except BaseException:
            # Workers look at `cancel` before they make a container, and what they wait for
            # inside one ends with it.
            cancel.set()
            remove_runs(runs)
            raise
    return [trials[index] for index in range(len(jobs))]


def _run_job(job: TrialJob, config: SandboxConfig, cancel: threading.Event) -> Trial:
    return run_trial(
        job.task,
        job.agent,
        config,
        seed=job.seed,
        run_id=job.run_id,
        trial_dir=job.trial_dir,
        sample=job.sample,
        cancel=cancel,
    )
