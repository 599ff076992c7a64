"""Policy optimisation on sandboxed tasks: the agent acts, the verifier judges, one fused forward-backward learns.

Keeps true: what is trained are the very tokens that were sampled, with the sampler's own logprobs; `weights` is the response
mask always; one advantage a rollout, its loss normalised by its length and by the number of rollouts; no verdict is no
reward. Leaves to others: the agent's loop, the verdict (sandbox), and the arithmetic of the loss (serving.engine).
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.agents import AgentRun
from sandbox.config import SandboxConfig
from sandbox.harbor import Task, load_tasks
from sandbox.trial import Trial, TrialJob, run_trials
from serving.config import EngineConfig
from storage.home import Home
from storage.runs import Run
from tasks.agent import AgentConfig, bash_agent
from tasks.errors import TaskError
from tasks.progress import Progress, ProgressEvent, silent
from tasks.train.advantages import group_advantages
from tasks.train.config import RlConfig
from tasks.train.session import TrainResult, TrainSession, datum, train_session

MAX_BARREN_STEPS = 5  # steps in a row with no signal at all: something is wrong, or there is nothing to learn


@dataclass(frozen=True)
class Rollout:
    """A judged rollout with its advantage."""

    run: AgentRun
    advantage: float


def train_rl(
    home: Home,
    run: Run,
    model_dir: Path,
    tasks_dir: Path,
    start: str | None,
    config: RlConfig,
    agent: AgentConfig,
    sandbox: SandboxConfig,
    engine: EngineConfig,
    *,
    seed: int,
    progress: Progress = silent,
) -> TrainResult:
    """Trains on the tasks under `tasks_dir` and registers a checkpoint.

    Args:
        start: the checkpoint to begin from; None begins from the base model.

    Raises:
        SandboxError: there are no tasks, or one cannot be read.
        TaskError: several steps in a row in which no group carried a signal.
        ServerFailed: the training server died.
    """
    started = time.monotonic()
    tasks = load_tasks(tasks_dir)
    tokens, barren = 0, 0
    rewards: list[float] = []
    with train_session(
        home, run, model_dir, engine, name="rl", rank=config.rank, seed=seed, start=start
    ) as session:
        for step, chosen in zip(
            range(config.steps), task_plan(tasks, config.groups_per_step, seed), strict=False
        ):
            say = _counter(progress, step, config)
            groups = collect(session, chosen, step, config, agent, sandbox, seed=seed, say=say)
            report = _learn(session, groups, step, config)
            run.metric("rl", step, **report)
            tokens += int(report["tokens"])
            rewards.append(report["reward"])
            barren = 0 if report["groups_with_signal"] else barren + 1
            if barren >= MAX_BARREN_STEPS:
                raise TaskError(
                    f"{barren} steps in a row in which every group was all right or all wrong (mean reward "
                    f"{rewards[-1]:.2f}): choose harder or easier tasks, or start from a better checkpoint"
                )
            progress(ProgressEvent("rl", step + 1, config.steps, f"reward {report['reward']:.2f}"))
        metrics = {"reward_first": rewards[0], "reward_last": rewards[-1], "reward_mean": _mean(rewards)}
        made_from = {
            "tasks": sorted({task.digest for task in tasks}),
            "steps": config.steps,
            "metrics": metrics,
            "config": config.model_dump(mode="json"),
            "seed": seed,
        }
        checkpoint = session.register("rl", made_from)
    return TrainResult(
        run=run.id, checkpoint=checkpoint.id, steps=config.steps, tokens=tokens,
        seconds=time.monotonic() - started, metrics=metrics,
    )  # fmt: skip


def task_plan(tasks: Sequence[Task], per_step: int, seed: int) -> Iterator[list[Task]]:
    """Each step's tasks, for ever: seeded permutations of all, one after the other."""
    order = random.Random(seed)
    pool: list[Task] = []
    while True:
        while len(pool) < per_step:
            epoch = list(tasks)
            order.shuffle(epoch)
            pool += epoch
        yield pool[:per_step]
        del pool[:per_step]


def collect(
    session: TrainSession,
    tasks: Sequence[Task],
    step: int,
    config: RlConfig,
    agent: AgentConfig,
    sandbox: SandboxConfig,
    *,
    seed: int,
    say: Callable[[Trial], None],
) -> list[list[Trial]]:
    """Rolls each task out `group_size` times on the weights as they are now; one list of trials a task."""
    actor = bash_agent(
        session.server, session.sampler(), session.renderer, agent, temperature=config.temperature
    )
    jobs = [
        TrialJob(
            task=task,
            agent=actor,
            sample=sample,
            seed=rollout_seed(seed, step, task.name, sample),
            run_id=session.run.id,
        )
        for task in tasks
        for sample in range(config.group_size)
    ]
    trials = run_trials(jobs, sandbox, on_done=say)
    size = config.group_size
    return [trials[i : i + size] for i in range(0, len(trials), size)]


def rollout_seed(seed: int, step: int, task: str, sample: int) -> int:
    """A seed of its own for each rollout, the same in every run with the same `seed`."""
    return random.Random(f"{seed}/{step}/{task}/{sample}").getrandbits(31)


def rollout_datum(rollout: Rollout, rollouts: int) -> Any:
    """One rollout as a row: its gradient is that of (1/N) * A_i * s_i, s_i the loss's ratio averaged over its own tokens."""
    run = rollout.run
    length = sum(run.mask)
    scaled = rollout.advantage / (length * rollouts)
    return datum(
        run.token_ids,
        [float(m) for m in run.mask],
        logprobs=run.logprobs,
        advantages=[scaled if m else 0.0 for m in run.mask],
    )


def _learn(
    session: TrainSession, groups: Sequence[Sequence[Trial]], step: int, config: RlConfig
) -> dict[str, float]:
    """One optimizer step on what the groups show; the step's metrics."""
    started = time.monotonic()
    advantages = [group_advantages([trial.reward for trial in group]) for group in groups]
    rollouts = [
        Rollout(trial.run, value)
        for group, values in zip(groups, advantages, strict=True)
        for trial, value in zip(group, values, strict=True)
        if value is not None and trial.run is not None and any(trial.run.mask)
    ]
    trials = [trial for group in groups for trial in group]
    judged = [trial.reward for trial in trials if trial.reward is not None]
    spoken = [run for run in (trial.run for trial in trials) if run is not None]
    report = {
        "reward": _mean(judged),
        "rollouts": float(len(trials)),
        "without_verdict": float(len(trials) - len(judged)),
        "groups": float(len(groups)),
        "groups_with_signal": float(sum(any(v is not None for v in values) for values in advantages)),
        "entropy": -_mean([lp for run in spoken for lp, m in zip(run.logprobs, run.mask, strict=True) if m]),
        "tokens": float(sum(len(run.token_ids) for run in spoken)),
        "response_tokens": _mean([float(sum(run.mask)) for run in spoken]),
        "rollout_seconds": _mean([trial.seconds for trial in trials]),
        "lr": config.rate(step, config.steps),
    }
    if rollouts:
        data = [rollout_datum(rollout, len(rollouts)) for rollout in rollouts]
        output, optim = session.step(data, config.loss, config.loss_config(), report["lr"], config)
        report |= {
            "grad_norm": optim.get("grad_norm", math.nan),
            **mismatch(rollouts, output.loss_fn_outputs),
        }
        report["loss"] = sum(sum(o["elementwise_loss"].data) for o in output.loss_fn_outputs)
    report["train_seconds"] = time.monotonic() - started
    return report


def mismatch(rollouts: Sequence[Rollout], outputs: Sequence[Any]) -> dict[str, float]:
    """How far the trainer's logprobs are from the sampler's on the sampled tokens, before the update (mean, maximum)."""
    gaps = [
        abs(theirs - ours)
        for rollout, output in zip(rollouts, outputs, strict=True)
        for theirs, ours, m in zip(
            output["logprobs"].data, rollout.run.logprobs[1:], rollout.run.mask[1:], strict=True
        )
        if m
    ]
    return {"mismatch_mean": _mean(gaps), "mismatch_max": max(gaps, default=0.0)}


def _counter(progress: Progress, step: int, config: RlConfig) -> Callable[[Trial], None]:
    """Tells how many rollouts of this step are in."""
    done = 0
    total = config.groups_per_step * config.group_size

    def say(_trial: Trial) -> None:
        nonlocal done
        done += 1
        progress(ProgressEvent("rl", step, config.steps, f"rollout {done} of {total}"))

    return say


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
