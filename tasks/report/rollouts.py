"""Rollouts to read: the same task before and after, as the turns of a conversation.

Text in a rollout was written by a model or printed by a program it ran: it is hostile, and bounded here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.report.data import Record, RunData
from tasks.report.wording import visible

MAX_CHARACTERS = 1_500
MAX_TURNS = 24
TAKE = {"fixed": 2, "broken": 1, "still failing": 1, "passed by both": 1}
"""How many tasks of each kind of change are shown; a loss is always among them if there is one."""


@dataclass(frozen=True)
class Turn:
    """One thing said, run or printed."""

    what: Literal["said", "command", "output", "error"]
    text: str


@dataclass(frozen=True)
class Side:
    """One model's attempt."""

    model: str
    outcome: str
    reward: float | None
    turns: Sequence[Turn]
    left_out: int


@dataclass(frozen=True)
class Pair:
    """One task, before and after; `change` is one of TAKE."""

    task: str
    change: str
    instruction: str
    before: Side
    after: Side


def pairs(data: RunData) -> list[Pair]:
    """The pairs to show, changes for the better first."""
    before, after = (_first_of(data, data.evaluations.get(side)) for side in ("incumbent", "candidate"))
    found = [_pair(task, before[task], after[task]) for task in sorted(before.keys() & after.keys())]
    chosen: list[Pair] = []
    for change, count in TAKE.items():
        chosen += _spread([pair for pair in found if pair.change == change], _kinds(data))[:count]
    return chosen[:4]


def _kinds(data: RunData) -> dict[str, str]:
    models = data.evaluations.get("models", [])
    return {str(row["task"]): str(row.get("kind")) for model in models for row in model.get("results", [])}


def _spread(found: list[Pair], kinds: dict[str, str]) -> list[Pair]:
    """The first pair of every kind, then all others: two examples of one kind say little more than one."""
    seen: set[str] = set()
    rank: dict[str, bool] = {}
    for pair in found:
        kind = kinds.get(pair.task, "")
        rank[pair.task] = kind in seen
        seen.add(kind)
    return sorted(found, key=lambda pair: rank[pair.task])


def _first_of(data: RunData, name: Any) -> dict[str, Record]:
    first: dict[str, Record] = {}
    for rollout in data.rollouts:
        if rollout.get("model") == name and rollout.get("task"):
            first.setdefault(str(rollout["task"]), rollout)
    return first


def _pair(task: str, before: Record, after: Record) -> Pair:
    instruction = next((_text(m) for m in after.get("messages", []) if m.get("role") == "user"), "")
    shown = visible(instruction.strip(), MAX_CHARACTERS)
    return Pair(task, _change(before, after), shown, _side(before), _side(after))


def _change(before: Record, after: Record) -> str:
    passed = (before.get("outcome") == "passed", after.get("outcome") == "passed")
    names = {(False, True): "fixed", (True, False): "broken", (False, False): "still failing"}
    return names.get(passed, "passed by both")


def _side(rollout: Record) -> Side:
    messages = rollout.get("messages", [])
    start = next((i + 1 for i, m in enumerate(messages) if m.get("role") == "user"), 0)
    turns = [turn for message in messages[start:] for turn in _turns(message)]
    kept = turns[:MAX_TURNS]
    outcome = str(rollout.get("outcome", "unknown"))
    return Side(str(rollout.get("model", "")), outcome, rollout.get("reward"), kept, len(turns) - len(kept))


def _turns(message: Record) -> Iterator[Turn]:
    if message.get("role") == "tool":
        printed = visible(_text(message).rstrip("\n") or "(no output)", MAX_CHARACTERS)
        yield Turn("error" if message.get("is_error") else "output", printed)
        return
    if text := _text(message).strip():
        yield Turn("said", visible(text, MAX_CHARACTERS))
    for call in message.get("tool_calls") or []:
        yield Turn("command", visible(_command(call), MAX_CHARACTERS))


def _command(call: Record) -> str:
    """The shell command of a bash call; any other call, or one that could not be read, as it is."""
    arguments = call.get("arguments")
    if isinstance(arguments, dict) and isinstance(arguments.get("command"), str):
        return str(arguments["command"])
    raw = json.dumps(arguments, ensure_ascii=False) if arguments else str(call.get("arguments_raw") or "")
    return f"{call.get('name', 'unnamed tool')} {raw}"


def _text(message: Record) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
