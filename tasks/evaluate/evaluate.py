"""Models on the same tasks, seeds and budgets, each rollout in a sandbox; the verifier's verdict is the reward.

Keeps true: a model's verdicts are kept under the digest of all that could change them, so the incumbent is not run again
every night; what had no verdict stays without one; the checkpoint that is judged is proven to be the one that answers.
Leaves to others: what follows from the numbers (tasks.promote), and the intervals (tasks.evaluate.paired).
"""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from sandbox.agents import Agent
from sandbox.config import SandboxConfig
from sandbox.harbor import Task, load_tasks
from sandbox.trial import Trial, TrialJob, run_trials
from serving.catalog import register
from serving.config import EngineConfig
from serving.model import model_digest
from serving.renderer import Renderer
from serving.server import TinkerServer
from storage import stages
from storage.atomic import write_json
from storage.home import Home
from storage.registry import Registry
from storage.runs import Run
from tasks.agent import AgentConfig, bash_agent
from tasks.errors import TaskError
from tasks.evaluate.config import EvaluateConfig
from tasks.evaluate.paired import by_task, paired, score
from tasks.progress import Progress, ProgressEvent, silent
from tasks.train.session import check_fits

BASE = "base"
VERSION = 1  # of what is kept per model; raise it when the way of evaluating changes
Results = list[dict[str, Any]]


class EvaluationResult(BaseModel):
    """Scores of all models, and each pair's difference per set; `file` has every verdict."""

    model_config = ConfigDict(frozen=True)

    file: str
    scores: dict[str, dict[str, Any]]
    paired: dict[str, dict[str, Any]]
    reused: list[str]


def evaluate(
    home: Home,
    run: Run,
    model_dir: Path,
    refs: Mapping[str, str],
    sets: Mapping[str, Path],
    config: EvaluateConfig,
    agent: AgentConfig,
    sandbox: SandboxConfig,
    engine: EngineConfig,
    *,
    seed: int,
    candidate: str | None = None,
    incumbent: str | None = None,
    progress: Progress = silent,
) -> EvaluationResult:
    """Runs every model of `refs` (name to checkpoint reference or `base`) on the tasks of `sets` (name to folder).

    Writes evaluations.json and rollouts.jsonl into the run. `candidate` and `incumbent` name two of `refs`; without them,
    the last and the first.

    Raises:
        SandboxError: there are no tasks, or one cannot be read.
        TaskError: a checkpoint does not fit the base model.
        ServerFailed: the server died.
    """
    tasks = {name: load_tasks(folder) for name, folder in sets.items()}
    renderer = Renderer(model_dir)
    keys = {
        name: _inputs(home, model_dir, ref, tasks, config, agent, sandbox, engine, renderer, seed)
        for name, ref in refs.items()
    }
    kept = {name: stages.reuse(home, "evaluate-model", key) for name, key in keys.items()}
    missing = [name for name in refs if kept[name] is None]
    if missing:
        with TinkerServer(model_dir, run.path / "engine" / "evaluate", engine) as server:
            for name in missing:
                actor = _agent(home, server, refs[name], model_dir, renderer, agent, config.temperature)
                found = roll_out(
                    name, actor, tasks, config.samples, sandbox, run, seed=seed, progress=progress
                )
                stages.record(home, "evaluate-model", keys[name], found)
                kept[name] = found
    models = [_model(name, refs[name], kept[name] or {}, seed) for name in refs]
    names = list(refs)
    summary = summarise(models, candidate or names[-1], incumbent or names[0], seed=seed)
    write_json(run.path / "evaluations.json", summary)
    _write_rollouts(run.path / "rollouts.jsonl", {name: (kept[name] or {})["rollouts"] for name in refs})
    return EvaluationResult(
        file=str(run.path / "evaluations.json"),
        scores={model["name"]: model["score"] for model in models},
        paired=summary["paired"],
        reused=[name for name in refs if name not in missing],
    )


def roll_out(
    name: str,
    actor: Agent,
    tasks: Mapping[str, Sequence[Task]],
    samples: int,
    sandbox: SandboxConfig,
    run: Run,
    *,
    seed: int,
    progress: Progress = silent,
) -> dict[str, Any]:
    """One agent on all tasks: {"results": verdicts, "rollouts": what was said and done}."""
    jobs: list[TrialJob] = []
    where: list[str] = []
    for set_name, members in tasks.items():
        for task in members:
            for sample in range(samples):
                job_seed = rollout_seed(seed, task.digest, sample)
                jobs.append(TrialJob(task=task, agent=actor, sample=sample, seed=job_seed, run_id=run.id))
                where.append(set_name)
    done = 0

    def say(_trial: Trial) -> None:
        nonlocal done
        done += 1
        progress(ProgressEvent("evaluate", done, len(jobs), name))

    trials = run_trials(jobs, sandbox, on_done=say)
    results = [_verdict(trial, job.task, at) for trial, job, at in zip(trials, jobs, where, strict=True)]
    rollouts = [_rollout(trial) for trial in trials]
    return {"results": results, "rollouts": rollouts}


def rollout_seed(seed: int, task_digest: str, sample: int) -> int:
    """The seed of one sample of one task: the same for every model."""
    return random.Random(f"evaluate/{seed}/{task_digest}/{sample}").getrandbits(31)


def summarise(
    models: Sequence[dict[str, Any]], candidate: str, incumbent: str, *, seed: int
) -> dict[str, Any]:
    """The content of evaluations.json: all verdicts, and the differences that are asked about."""
    by_name = {model["name"]: model for model in models}
    pairs = {"heldout": (candidate, incumbent, "heldout"), "regression": (candidate, incumbent, "regression")}
    for later, earlier in zip([m["name"] for m in models][1:], [m["name"] for m in models], strict=False):
        pairs[f"{later}_over_{earlier}"] = (later, earlier, "heldout")
    differences = {
        name: paired(_verdicts(by_name[a], at), _verdicts(by_name[b], at), seed=seed).to_json()
        for name, (a, b, at) in pairs.items()
        if _verdicts(by_name[a], at)
    }
    return {"models": list(models), "candidate": candidate, "incumbent": incumbent, "paired": differences}


def _verdicts(model: Mapping[str, Any], at: str) -> dict[str, list[float | None]]:
    return by_task(row for row in model["results"] if row["set"] == at)


def _model(name: str, ref: str, found: Mapping[str, Any], seed: int) -> dict[str, Any]:
    results: Results = found["results"]
    sets = dict.fromkeys(row["set"] for row in results)
    scores = {at: score(by_task(r for r in results if r["set"] == at), seed=seed).to_json() for at in sets}
    return {
        "name": name,
        "ref": ref,
        "score": scores[next(iter(scores))],
        "scores": scores,
        "results": results,
    }


def _agent(
    home: Home,
    server: TinkerServer,
    ref: str,
    model_dir: Path,
    renderer: Renderer,
    agent: AgentConfig,
    temperature: float,
) -> Agent:
    service = server.connect()
    if ref == BASE:
        client = service.create_sampling_client(base_model=server.base_model)
    else:
        checkpoint = Registry(home).get(ref)
        check_fits(checkpoint, model_dir, renderer)
        rank = int(checkpoint.manifest["rank"])
        path = register(server.state_dir, checkpoint.id, server.base_model, rank, checkpoint.sampler_tar)
        client = service.create_sampling_client(model_path=path)
        prove_adapter(server, service, client, renderer)
    return bash_agent(server, client, renderer, agent, temperature=temperature)


def prove_adapter(server: TinkerServer, service: Any, client: Any, renderer: Renderer) -> None:
    """Raises TaskError if `client` answers with the base model's own probabilities: then no adapter is on."""
    from tinker import types

    prompt = types.ModelInput.from_ints(
        renderer.prompt([{"role": "user", "content": "Count the files."}], [])
    )
    base = service.create_sampling_client(base_model=server.base_model)
    ours, theirs = (server.result(c.compute_logprobs(prompt)) for c in (client, base))
    if ours == theirs:
        raise TaskError(
            "the server answers for a checkpoint with the base model's probabilities; its adapter is not on"
        )


def _inputs(
    home: Home,
    model_dir: Path,
    ref: str,
    tasks: Mapping[str, Sequence[Task]],
    config: EvaluateConfig,
    agent: AgentConfig,
    sandbox: SandboxConfig,
    engine: EngineConfig,
    renderer: Renderer,
    seed: int,
) -> dict[str, Any]:
    """All that could change one model's verdicts."""
    return {
        "version": VERSION,
        "model": model_digest(model_dir),
        "checkpoint": BASE if ref == BASE else Registry(home).get(ref).id,
        "tasks": {name: [[task.name, task.digest] for task in members] for name, members in tasks.items()},
        "samples": config.samples,
        "temperature": config.temperature,
        "agent": agent.model_dump(mode="json"),
        "sandbox": sandbox.model_dump(mode="json", exclude={"concurrency"}),
        "engine": engine.model_dump(mode="json"),
        "renderer": renderer.digest,
        "seed": seed,
    }


def _verdict(trial: Trial, task: Task, at: str) -> dict[str, Any]:
    return {
        "task": task.name,
        "kind": str(task.config.metadata.get("kind", at)),
        "set": at,
        "sample": trial.sample,
        "outcome": trial.outcome,
        "reward": trial.reward,
        "error": trial.error,
        "seconds": round(trial.seconds, 3),
    }


def _rollout(trial: Trial) -> dict[str, Any]:
    messages = trial.run.messages if trial.run else []
    return {
        "task": trial.task,
        "sample": trial.sample,
        "outcome": trial.outcome,
        "reward": trial.reward,
        "stop": trial.run.stop if trial.run else None,
        "messages": messages,
    }


def _write_rollouts(path: Path, rollouts: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for name, rows in rollouts.items():
            file.writelines(json.dumps({"model": name, **row}, ensure_ascii=False) + "\n" for row in rows)
