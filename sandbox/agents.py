"""Agents: what works on a task inside a sandbox. Built in: a bash-tool agent, the task's own solution, and
nothing.

Keeps true: tokens go in and come out as they are; a sampled token is never rendered again. A call the model
got wrong is answered with what was wrong with it. A failing model is `ProviderError`, never a failing agent.
Leaves to others: the text form of conversations (a ChatRenderer), the model (a Policy), verdicts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sandbox.archives import directory_tar
from sandbox.container import ExecResult, Sandbox
from sandbox.errors import Cancelled, ProviderError, SandboxError
from sandbox.harbor import Task, resolve_env
from sandbox.streams import shorten

Message = dict[str, Any]
Stop = Literal["done", "max_turns", "context", "timeout"]

BASH_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command in bash, in the working directory.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command."}},
            "required": ["command"],
        },
    },
}


@dataclass(frozen=True)
class Completion:
    """Sampled tokens, the log-probability of each, and why sampling stopped (`stop` or `length`)."""

    token_ids: list[int]
    logprobs: list[float]
    stop_reason: str


class Policy(Protocol):
    """A model to sample from; blocks, and may be called from several threads."""

    def sample(self, prompt: list[int], *, max_tokens: int, temperature: float, seed: int) -> Completion:
        """One completion of `prompt`."""
        ...


class ChatRenderer(Protocol):
    """The text form of conversations for one model."""

    @property
    def name(self) -> str:
        """What the form is called."""
        ...

    def prompt(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        """The conversation so far, up to where the assistant's tokens begin."""
        ...

    def continuation(self, completion: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """The tokens between a sampled completion and the next one."""
        ...

    def parse(self, token_ids: Sequence[int]) -> Message:
        """The assistant message that sampled tokens say."""
        ...


@dataclass(frozen=True)
class Turn:
    """One sampled span: it starts at `prompt_len` in the run's row of tokens."""

    prompt_len: int
    token_ids: list[int]
    logprobs: list[float]


@dataclass
class AgentRun:
    """What an agent did.

    `token_ids` is the whole row; `mask` is 1 where a token was sampled, with its log-probability.
    """

    messages: list[Message] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    stop: Stop = "done"
    token_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def given(self, token_ids: Sequence[int]) -> None:
        """Append tokens the model is given."""
        self.token_ids += token_ids
        self.mask += [0] * len(token_ids)
        self.logprobs += [0.0] * len(token_ids)

    def sampled(self, completion: Completion) -> None:
        """Append tokens the model has sampled, as a turn."""
        self.turns.append(Turn(len(self.token_ids), list(completion.token_ids), list(completion.logprobs)))
        self.token_ids += completion.token_ids
        self.mask += [1] * len(completion.token_ids)
        self.logprobs += completion.logprobs


class Agent(Protocol):
    """Whatever works on a task; `run` may be called from several threads."""

    @property
    def name(self) -> str:
        """What results call it."""
        ...

    def run(self, task: Task, box: Sandbox, *, seed: int) -> AgentRun:
        """Work on `task` in `box` until done or out of budget."""
        ...


class NoopAgent:
    """Does nothing: a task it passes is no task."""

    name = "noop"

    def run(self, task: Task, box: Sandbox, *, seed: int) -> AgentRun:
        """Nothing."""
        return AgentRun()


class OracleAgent:
    """Runs the task's own solution/solve.sh as the agent's user."""

    name = "oracle"

    def run(self, task: Task, box: Sandbox, *, seed: int) -> AgentRun:
        """Upload solution/ and run it.

        Raises:
            SandboxError: the task has no solution.
        """
        if not task.has_solution:
            raise SandboxError(f"task {task.name} has no solution/solve.sh for the oracle to run")
        box.put("/", directory_tar(task.path / "solution", "/solution"))
        env = {
            "DEBIAN_FRONTEND": "noninteractive",
            **resolve_env(task.config.solution.env, task.path / "task.toml"),
        }
        result = box.exec("bash /solution/solve.sh", env=env)
        said = {"role": "assistant", "content": "bash /solution/solve.sh", "tool_calls": []}
        answer = {
            "role": "tool",
            "content": render_result(result, 4000)[0],
            "tool_call_id": None,
            "is_error": False,
        }
        return AgentRun(messages=[said, answer], stop="timeout" if result.timed_out else "done")


@dataclass(frozen=True)
class BashAgent:
    """A model with one tool, bash, called turn by turn until it calls no more.

    `max_tokens_per_turn` and `max_context` count tokens; `max_result_chars` bounds one tool result;
    `command_timeout_s` is for one command, the task's own agent timeout for all of them.
    """

    policy: Policy
    renderer: ChatRenderer
    system_prompt: str
    max_turns: int = 8
    max_tokens_per_turn: int = 256
    max_context: int = 2048
    temperature: float = 1.0
    max_result_chars: int = 2000
    command_timeout_s: float = 30.0
    name: str = "bash"

    def run(self, task: Task, box: Sandbox, *, seed: int) -> AgentRun:
        """Work on `task` in `box`.

        Raises:
            ProviderError: the policy failed.
        """
        run = AgentRun()
        run.messages = [
            {"role": "system", "content": self.system_prompt},
            {"role": "user", "content": task.instruction},
        ]
        run.given(self.renderer.prompt(run.messages, [BASH_TOOL]))
        for turn in range(self.max_turns):
            stop = self._turn(run, box, seed + turn)
            if stop is not None:
                run.stop = stop
                return run
        run.stop = "max_turns"
        return run

    def _turn(self, run: AgentRun, box: Sandbox, seed: int) -> Stop | None:
        """Sample one completion and answer its calls; why the run ends, or None if it goes on."""
        room = min(self.max_tokens_per_turn, self.max_context - len(run.token_ids))
        if room < 1:
            return "context"
        if box.remaining() <= 0:
            return "timeout"
        completion = self._sample(run.token_ids, room, seed)
        run.sampled(completion)
        message = self.renderer.parse(completion.token_ids)
        run.messages.append(message)
        calls = message.get("tool_calls") or []
        if not calls:
            return "context" if completion.stop_reason == "length" else "done"
        results = [self._answer(call, box) for call in calls]
        run.messages += results
        run.given(self.renderer.continuation(completion.token_ids, results))
        return None

    def _sample(self, prompt: list[int], room: int, seed: int) -> Completion:
        try:
            return self.policy.sample(list(prompt), max_tokens=room, temperature=self.temperature, seed=seed)
        except (ProviderError, Cancelled):
            raise
        except (
            Exception
        ) as error:  # the boundary to any model: whatever it raises is its failure, not the agent's
            raise ProviderError(f"the policy failed: {type(error).__name__}: {error}") from error

    def _answer(self, call: dict[str, Any], box: Sandbox) -> Message:
        """The tool message that answers one call."""
        problem = call_problem(call)
        if problem is None:
            timeout_s = min(self.command_timeout_s, box.remaining())
            result = box.exec(call["arguments"]["command"], timeout_s)
            content, is_error = render_result(result, self.max_result_chars)
        else:
            content, is_error = problem, True
        return {"role": "tool", "content": content, "tool_call_id": call.get("id"), "is_error": is_error}


def call_problem(call: dict[str, Any]) -> str | None:
    """What is wrong with a tool call, said so that a model can correct itself; None if it can be run."""
    example = '{"name": "bash", "arguments": {"command": "ls"}}'
    arguments = call.get("arguments")
    if call.get("name") != "bash" and (call.get("name") or call.get("arguments_state") != "invalid"):
        return f"unknown tool {call.get('name')!r}; the only tool is bash, as in {example}"
    if not isinstance(arguments, dict):
        return f"the arguments are not a JSON object; call the tool as in {example}"
    if not isinstance(arguments.get("command"), str):
        return f'the argument "command" must be a string, as in {example}'
    if "\0" in arguments["command"]:
        return "the command contains a NUL character; no command can"
    if len(arguments["command"].encode("utf-8", "replace")) > 100_000:
        return "the command is longer than 100000 bytes; write a file in pieces instead"
    return None


def render_result(result: ExecResult, limit: int) -> tuple[str, bool]:
    """A command's result as the model sees it, and whether the command was killed."""
    lines = [shorten(result.output.rstrip("\n"), limit)] if result.output.strip() else []
    if result.timed_out:
        lines.append(f"[killed after {result.seconds:.0f} s]")
    elif result.exit_code is None:
        lines.append("[killed: too much output]")
    elif result.exit_code != 0:
        lines.append(f"[exit code {result.exit_code}]")
    return "\n".join(lines) or "(no output)", result.exit_code is None
