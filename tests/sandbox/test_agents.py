"""The bash agent's turns, with a scripted policy and a letter-by-letter renderer, on the real engine."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.agents import BashAgent, Completion, OracleAgent, call_problem
from sandbox.config import SandboxConfig
from sandbox.harbor import Task
from sandbox.trial import Trial, run_trial

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("no_leaks")]
MakeTask = Callable[..., Task]
END = 0


class Letters:
    """A renderer whose tokens are characters; a turn is JSON of an assistant message, then END."""

    name = "letters"

    def prompt(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> list[int]:
        return [ord(letter) for letter in json.dumps([*messages, *tools])]

    def continuation(self, completion: Sequence[int], messages: Sequence[dict[str, Any]]) -> list[int]:
        closing = [] if completion and completion[-1] == END else [END]
        return closing + [ord(letter) for letter in json.dumps([message["content"] for message in messages])]

    def parse(self, token_ids: Sequence[int]) -> dict[str, Any]:
        text = "".join(chr(token) for token in token_ids if token != END)
        calls = json.loads(text) if text.startswith("[") else []
        return {"role": "assistant", "content": text, "tool_calls": calls}


@dataclass
class Scripted:
    """A policy that says its lines in order, then that it is done."""

    lines: list[Any]
    prompts: list[list[int]] = field(default_factory=list)
    stop_reason: str = "stop"

    def sample(self, prompt: list[int], *, max_tokens: int, temperature: float, seed: int) -> Completion:
        line = self.lines[len(self.prompts)] if len(self.prompts) < len(self.lines) else "done"
        self.prompts.append(prompt)
        if isinstance(line, Exception):
            raise line
        text = line if isinstance(line, str) else json.dumps(line)
        ids = [*(ord(letter) for letter in text), END][:max_tokens]
        return Completion(ids, [-0.5] * len(ids), self.stop_reason)


def call(command: Any, **changes: Any) -> dict[str, Any]:
    return {"id": "c", "name": "bash", "arguments": {"command": command}, "arguments_state": "ok", **changes}


def trial_of(
    task: Task, policy: Scripted, config: SandboxConfig, trial_dir: Path | None = None, **options: Any
) -> Trial:
    agent = BashAgent(
        policy,
        Letters(),
        system_prompt="Work.",
        **{"max_context": 20000, "max_tokens_per_turn": 2000, **options},
    )
    return run_trial(task, agent, config, seed=1, run_id="test", trial_dir=trial_dir)


def results(trial: Trial) -> list[str]:
    assert trial.run is not None
    return [message["content"] for message in trial.run.messages if message["role"] == "tool"]


def test_tokens_go_in_and_out_as_they_are_and_the_work_is_graded(
    make_task: MakeTask, config: SandboxConfig, tmp_path: Path
) -> None:
    policy = Scripted(
        [[call("ls data"), call("ls data | wc -l > answer.txt; cat answer.txt")], [call("false")]]
    )
    trial = trial_of(make_task(), policy, config, tmp_path / "trial")
    assert trial.outcome == "passed" and trial.run is not None and trial.run.stop == "done"
    assert results(trial) == ["one\nthree\ntwo", "3", "[exit code 1]"]
    run = trial.run
    assert len(run.token_ids) == len(run.mask) == len(run.logprobs)
    for turn, prompt in zip(run.turns, policy.prompts, strict=True):
        end = turn.prompt_len + len(turn.token_ids)
        assert run.token_ids[: turn.prompt_len] == prompt
        assert run.token_ids[turn.prompt_len : end] == turn.token_ids
        assert run.mask[turn.prompt_len : end] == [1] * len(turn.token_ids)
    assert sum(run.mask) == sum(len(turn.token_ids) for turn in run.turns)
    assert_recorded(tmp_path / "trial", trial)


def assert_recorded(directory: Path, trial: Trial) -> None:
    """The trial directory is laid out as Harbor's, with the tokens of every turn."""
    assert trial.run is not None
    result = json.loads((directory / "result.json").read_text())
    assert (result["task_checksum"], result["verifier_result"]) == (
        trial.task_digest,
        {"rewards": {"reward": 1.0}},
    )
    assert (directory / "verifier" / "test-stdout.txt").exists()
    trajectory = json.loads((directory / "agent" / "trajectory.json").read_text())
    assert trajectory["schema_version"] == "ATIF-v1.8"
    steps = [step for step in trajectory["steps"] if step["source"] == "agent"]
    assert [step["metrics"]["completion_token_ids"] for step in steps] == [
        turn.token_ids for turn in trial.run.turns
    ]
    assert [item["content"] for item in steps[0]["observation"]["results"]] == ["one\nthree\ntwo", "3"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (call("x", name="python"), "unknown tool 'python'"),
        (call("x", name="", arguments=None, arguments_state="invalid"), "not a JSON object"),
        (call("x", arguments=None, arguments_state="invalid"), "not a JSON object"),
        (call("x", arguments={}, arguments_state="empty"), '"command" must be a string'),
        (call(5), '"command" must be a string'),
        (call("a\0b"), "NUL"),
        (call("x" * 200_000), "longer than"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(bad: dict[str, Any], said: str) -> None:
    problem = call_problem(bad)
    assert problem is not None and said in problem


def test_a_wrong_call_can_be_corrected(make_task: MakeTask, config: SandboxConfig) -> None:
    policy = Scripted([[call("x", arguments=None, arguments_state="invalid")], [call("echo 3 > answer.txt")]])
    trial = trial_of(make_task(), policy, config)
    assert trial.outcome == "passed" and trial.run is not None
    first = next(message for message in trial.run.messages if message["role"] == "tool")
    assert first["is_error"] and "JSON object" in first["content"]


def test_budgets_end_a_run_and_are_graded(make_task: MakeTask, config: SandboxConfig) -> None:
    task = make_task()
    turns = trial_of(task, Scripted([[call("echo 3 > answer.txt")]] * 9), config, max_turns=2)
    assert (turns.outcome, turns.run and turns.run.stop) == ("passed", "max_turns")
    context = trial_of(task, Scripted([[call("true")]] * 9), config, max_context=900)
    assert (context.outcome, context.run and context.run.stop) == ("failed", "context")
    assert context.run is not None and len(context.run.token_ids) < 1200
    cut = trial_of(task, Scripted(["and so on"], stop_reason="length"), config)
    assert (cut.outcome, cut.run and cut.run.stop) == ("failed", "context")


def test_time_for_a_command_and_for_the_whole_task_is_bounded(
    make_task: MakeTask, config: SandboxConfig
) -> None:
    task = make_task(toml="[agent]\ntimeout_sec = 3\n")
    trial = trial_of(task, Scripted([[call("sleep 60")]] * 9), config, command_timeout_s=1.0)
    assert (trial.outcome, trial.run and trial.run.stop) == ("failed", "timeout")
    assert results(trial)[0] == "[killed after 1 s]" and trial.seconds < 10


def test_long_results_show_head_and_tail(make_task: MakeTask, config: SandboxConfig) -> None:
    trial = trial_of(make_task(), Scripted([[call("seq 1000")]]), config, max_result_chars=40)
    assert results(trial)[0].startswith("1\n2\n") and results(trial)[0].endswith("999\n1000")
    assert "left out" in results(trial)[0]


def test_a_failing_policy_is_the_providers_failure(make_task: MakeTask, config: SandboxConfig) -> None:
    trial = trial_of(make_task(), Scripted([[call("ls")], ConnectionError("no route")]), config)
    assert (trial.outcome, trial.reward) == ("provider_failed", None)
    assert trial.error == "the policy failed: ConnectionError: no route"


def test_the_oracle_runs_the_solution_as_the_agents_user(make_task: MakeTask, config: SandboxConfig) -> None:
    task = make_task(solution="id -u; ls data | wc -l > answer.txt\n")
    trial = run_trial(task, OracleAgent(), config, run_id="test")
    assert trial.outcome == "passed" and results(trial) == ["1000"]
    without = run_trial(make_task("without", solution=None), OracleAgent(), config, run_id="test")
    assert without.outcome == "sandbox_failed" and "solve.sh" in str(without.error)
