"""Records the example's traces in real sandboxes: `PYTHONPATH=. python examples/first_night/record.py [DIR]`.

Keeps true: every tool result and every verdict in a trace is what a sandbox gave; the chores are like the
training tasks but none of them, and nothing of the held-out or regression tasks is in one. `--base MODEL_DIR`
records the base model's own attempts instead.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert import SYSTEM_PROMPT, script
from generate import HERE, Instance, all_tasks, fingerprint, instances, write_task
from wire import Message, Session, anthropic_records, openai_records, write_log

from sandbox.agents import BASH_TOOL, Agent, AgentRun, BashAgent, ChatRenderer, Policy, render_result
from sandbox.config import SandboxConfig
from sandbox.container import Sandbox
from sandbox.harbor import Task, load_task
from sandbox.trial import Trial, TrialJob, run_trials

EXPERT_SESSIONS = 208
ATTEMPTS = 48
MAX_RESULT_CHARS = 2000
LIMITS = SandboxConfig(concurrency=3)


@dataclass(frozen=True)
class ScriptedAgent:
    """Does what the expert's script says, through the bash tool."""

    instance: Instance
    name: str = "scripted-expert"

    def run(self, task: Task, box: Sandbox, *, seed: int) -> AgentRun:
        """Every step of the script, with the real results."""
        messages: list[Message] = [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": task.instruction},
        ]
        for turn, step in enumerate(script(self.instance.chore, seed)):
            calls = [_call(f"call_{turn}_{index}", command) for index, command in enumerate(step.commands)]
            messages.append({"role": "assistant", "content": step.text, "tool_calls": calls})
            messages += [_answer(call, box) for call in calls]
        return AgentRun(messages=messages)


def _call(name: str, command: str) -> dict[str, Any]:
    arguments = {"command": command}
    raw = json.dumps(arguments)
    return {"id": name, "name": "bash", "arguments": arguments, "arguments_raw": raw, "arguments_state": "ok"}


def _answer(call: dict[str, Any], box: Sandbox) -> Message:
    content, is_error = render_result(box.exec(call["arguments"]["command"]), MAX_RESULT_CHARS)
    return {"role": "tool", "content": content, "tool_call_id": call["id"], "is_error": is_error}


def expert_instances(count: int = EXPERT_SESSIONS) -> list[Instance]:
    """The expert's chores: none is a committed task."""
    return list(instances("trace", count, _taken(all_tasks().values())))


def attempt_instances(count: int = ATTEMPTS) -> list[Instance]:
    """Chores for the base model's own attempts: none is a committed task or one of the expert's."""
    return list(instances("attempt", count, _taken([*all_tasks().values(), expert_instances()])))


def record_expert(directory: Path, made: Sequence[Instance]) -> None:
    """The expert's sessions, kind by kind half in each format, into `directory`/traces.

    Raises:
        RuntimeError: a session has no verdict, or failed: an expert's do not.
    """
    sessions = _sessions(made, [ScriptedAgent(instance) for instance in made])
    for instance, session in zip(made, sessions, strict=True):
        if session.reward != 1:
            raise RuntimeError(f"the expert got {session.reward} in {instance.name}: {session.messages}")
    kinds = len({instance.chore.kind for instance in made})
    halves = [[s for s in sessions if (s.number // kinds) % 2 == half] for half in (0, 1)]
    traces = directory / "traces"
    write_log(traces / "openai_chat.jsonl.gz", (r for s in halves[0] for r in openai_records(s)))
    write_log(traces / "anthropic_messages.jsonl.gz", (r for s in halves[1] for r in anthropic_records(s)))


def record_attempts(
    policy: Policy,
    renderer: ChatRenderer,
    made: Sequence[Instance],
    *,
    directory: Path = HERE,
    model: str = "smollm2-135m-instruct",
    max_turns: int = 4,
    max_tokens_per_turn: int = 64,
    max_context: int = 512,
    limits: SandboxConfig = LIMITS,
) -> None:
    """A model's own attempts, half in each format, into traces/base_attempts_*.jsonl.gz, replacing what was there.

    Raises:
        RuntimeError: an attempt has no verdict.
    """
    agent = BashAgent(
        policy,
        renderer,
        system_prompt=SYSTEM_PROMPT,
        max_turns=max_turns,
        max_tokens_per_turn=max_tokens_per_turn,
        max_context=max_context,
        max_result_chars=MAX_RESULT_CHARS,
    )
    # Numbered after the expert's sessions: their times come later.
    sessions = _sessions(made, [agent] * len(made), model=model, first_number=EXPERT_SESSIONS, limits=limits)
    traces = directory / "traces"
    write_log(traces / "base_attempts_openai.jsonl.gz", (r for s in sessions[::2] for r in openai_records(s)))
    write_log(
        traces / "base_attempts_anthropic.jsonl.gz", (r for s in sessions[1::2] for r in anthropic_records(s))
    )


def _sessions(
    made: Sequence[Instance],
    agents: Sequence[Agent],
    *,
    model: str = "scripted-expert",
    first_number: int = 0,
    limits: SandboxConfig = LIMITS,
) -> list[Session]:
    with tempfile.TemporaryDirectory() as scratch:
        for instance in made:
            write_task(instance, Path(scratch) / instance.name)
        jobs = [
            TrialJob(load_task(Path(scratch) / instance.name), agent, seed=instance.seed, run_id="record")
            for instance, agent in zip(made, agents, strict=True)
        ]
        trials = run_trials(jobs, limits)
    return [
        _session(trial, instance, model, first_number + number)
        for number, (trial, instance) in enumerate(zip(trials, made, strict=True))
    ]


def _session(trial: Trial, instance: Instance, model: str, number: int) -> Session:
    if trial.run is None or trial.reward is None:
        raise RuntimeError(f"{instance.name} has no verdict: {trial.outcome}: {trial.error}")
    messages = _until_last_answer(trial.run.messages)
    return Session(number, f"{model}-{instance.name}", model, [BASH_TOOL], messages, trial.reward)


def _until_last_answer(messages: list[Message]) -> list[Message]:
    """A log ends with a response: results that nobody answered were never sent."""
    last = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    return messages[: last + 1]


def _taken(groups: Iterable[Sequence[Instance]]) -> set[str]:
    return {text for group in groups for instance in group for text in fingerprint(instance.chore)}


def record_base(model_dir: Path, directory: Path = HERE) -> None:
    """The base model's own attempts, sampled from a server of its own."""
    from serving.config import EngineConfig
    from serving.renderer import Renderer
    from serving.server import TinkerServer
    from tasks.agent import TinkerPolicy

    renderer = Renderer(model_dir)
    with (
        tempfile.TemporaryDirectory() as state,
        TinkerServer(model_dir, Path(state), EngineConfig()) as server,
    ):
        client = server.connect().create_sampling_client(base_model=server.base_model)
        policy = TinkerPolicy(server, client, renderer.stop_token_ids)
        limits = LIMITS.model_copy(update={"concurrency": 24})
        record_attempts(policy, renderer, attempt_instances(), directory=directory, limits=limits)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--base"]:
        record_base(Path(sys.argv[2]))
    else:
        record_expert(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE, expert_instances())
