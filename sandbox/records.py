"""A trial on disk, in the layout of Harbor's trial directory.

    result.json  exception.txt  agent/trajectory.json  verifier/{test-stdout.txt,reward.json}

Keeps true: the trajectory is ATIF with the token ids and log-probabilities of every sampled turn; result.json
is written last, so a directory without one is a trial that did not end. Leaves to others: reading it back.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.harbor import Task

if TYPE_CHECKING:
    from sandbox.agents import AgentRun
    from sandbox.trial import Trial

ATIF_VERSION = "ATIF-v1.8"


def write_trial(directory: Path, trial: "Trial", task: Task, agent: str, *, started_at: float) -> None:
    """Write `trial` to `directory`, which is made if it is not there.

    `started_at` is seconds since the epoch.
    """
    for part in ("agent", "verifier", "artifacts"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    if trial.run is not None:
        trajectory = atif(trial.run, task, agent)
        _write(directory / "agent" / "trajectory.json", json.dumps(trajectory, ensure_ascii=False, indent=1))
    if trial.verdict is not None:
        _write(directory / "verifier" / "test-stdout.txt", trial.verdict.stdout)
        _write(directory / "verifier" / "reward.json", json.dumps(trial.verdict.rewards))
    if trial.error is not None:
        _write(directory / "exception.txt", trial.error + "\n")
    result = _result(directory.name, trial, task, agent, started_at)
    _write(directory / "result.json", json.dumps(result, ensure_ascii=False, indent=1))


def atif(run: "AgentRun", task: Task, agent: str) -> dict[str, Any]:
    """The run as an ATIF trajectory: tool results are observations of the step that called."""
    steps: list[dict[str, Any]] = []
    turns = iter(run.turns)
    for message in run.messages:
        if message["role"] == "tool":
            result = {"source_call_id": message.get("tool_call_id"), "content": message["content"]}
            steps[-1].setdefault("observation", {"results": []})["results"].append(result)
            continue
        source = "agent" if message["role"] == "assistant" else message["role"]
        step: dict[str, Any] = {
            "step_id": len(steps) + 1,
            "source": source,
            "message": message.get("content") or "",
        }
        steps.append(step)
        if source != "agent":
            continue
        calls = message.get("tool_calls") or []
        if calls:
            step["tool_calls"] = [
                {
                    "tool_call_id": call["id"],
                    "function_name": call["name"],
                    "arguments": call["arguments"] or {},
                }
                for call in calls
            ]
        turn = next(turns, None)
        if turn is not None:
            step["metrics"] = {
                "prompt_tokens": turn.prompt_len,
                "completion_tokens": len(turn.token_ids),
                "prompt_token_ids": run.token_ids[: turn.prompt_len],
                "completion_token_ids": turn.token_ids,
                "logprobs": turn.logprobs,
            }
    return {
        "schema_version": ATIF_VERSION,
        "session_id": task.digest[:12],
        "agent": {"name": agent, "version": "1"},
        "steps": steps,
    }


def _result(name: str, trial: "Trial", task: Task, agent: str, started_at: float) -> dict[str, Any]:
    rewards = trial.verdict.rewards if trial.verdict else None
    details = (
        [
            {
                "prompt_token_ids": [trial.run.token_ids[: turn.prompt_len] for turn in trial.run.turns],
                "completion_token_ids": [turn.token_ids for turn in trial.run.turns],
                "logprobs": [turn.logprobs for turn in trial.run.turns],
            }
        ]
        if trial.run and trial.run.turns
        else None
    )
    return {
        "trial_name": name,
        "task_name": task.name,
        "task_id": {"path": str(task.path)},
        "task_checksum": task.digest,
        "sample": trial.sample,
        "outcome": trial.outcome,
        "reward": trial.reward,
        "agent_info": {"name": agent, "version": "1"},
        "agent_result": {"stop": trial.run.stop, "rollout_details": details} if trial.run else None,
        "verifier_result": {"rewards": rewards} if rewards is not None else None,
        "exception_info": {"exception_type": trial.outcome, "exception_message": trial.error}
        if trial.error
        else None,
        "started_at": _utc(started_at),
        "finished_at": _utc(started_at + trial.seconds),
    }


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text, encoding="utf-8", errors="replace")
    os.replace(beside, path)
