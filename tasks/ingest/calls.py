"""Tool calls and their results: reading arguments in every spelling, and pairing results with calls.

Pairing happens within one turn, by id where ids say something and by order where they do not: many servers
number calls from zero in every turn, and some give no ids at all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from storage.conversation import Message, message
from tasks.ingest.errors import Unusable
from tasks.ingest.json_text import parse_json

INTERRUPTED = "[interrupted: no result was recorded]"

# Key under which the formats leave a result's tool name for pairing; it does not reach the lake.
NAME = "_name"


def tool_call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """One call. Raises Unusable if it names no tool."""
    if not isinstance(name, str) or not name:
        raise Unusable("malformed_call", "a tool call without a name")
    parsed, raw, state = _arguments(arguments)
    return {
        "id": id if isinstance(id, str) else "",
        "name": name,
        "arguments": parsed,
        "arguments_raw": raw,
        "arguments_state": state,
    }


def _arguments(arguments: Any) -> tuple[dict[str, Any] | None, str, str]:
    if isinstance(arguments, dict):
        return arguments, json.dumps(arguments, ensure_ascii=False), "ok"
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}, arguments or "", "empty"
    if not isinstance(arguments, str):
        return None, json.dumps(arguments, ensure_ascii=False), "invalid"
    value = _value(arguments)
    if isinstance(value, dict):
        return value, arguments, "ok"
    inner = _value(value) if isinstance(value, str) else None
    if isinstance(inner, dict):
        return inner, arguments, "double_encoded"
    return None, arguments, "invalid"


def _value(text: str) -> Any:
    try:
        return parse_json(text)[0]
    except ValueError:
        return None


def pair(messages: Sequence[Message]) -> tuple[list[Message], int]:
    """The messages with every result right after its call, in the order of the calls, and how many had no
    call.

    Ids are made where they are missing or used before. A call in the middle that was never answered gets a
    result that says so; one at the end stays open.
    """
    paired: list[Message] = []
    orphans = 0
    used: set[str] = set()
    starts = [index for index, each in enumerate(messages) if each["role"] == "assistant"]
    head = messages[: starts[0]] if starts else messages
    paired += [each for each in head if each["role"] != "tool"]
    orphans += len(head) - len(paired)
    for turn, start in enumerate(starts):
        end = starts[turn + 1] if turn + 1 < len(starts) else len(messages)
        results = [each for each in messages[start + 1 : end] if each["role"] == "tool"]
        others = [each for each in messages[start + 1 : end] if each["role"] != "tool"]
        calls = messages[start]["tool_calls"]
        assigned, lost = _assign(calls, results)
        named = [{**call, "id": _fresh_id(call["id"], turn, i, used)} for i, call in enumerate(calls)]
        is_last = end == len(messages) and not others
        paired.append({**messages[start], "tool_calls": named})
        paired += _answers(named, assigned, is_last)
        paired += others
        orphans += lost
    return [{key: value for key, value in each.items() if key != NAME} for each in paired], orphans


def _assign(calls: list[dict[str, Any]], results: list[Message]) -> tuple[dict[int, Message], int]:
    """Which result answers which call, by position, and the number of results left over."""
    assigned: dict[int, Message] = {}
    unclear: list[Message] = []
    for result in results:
        wanted = result["tool_call_id"]
        match = _first(
            i for i, call in enumerate(calls) if i not in assigned and wanted and call["id"] == wanted
        )
        if match is None:
            unclear.append(result)
        else:
            assigned[match] = result
    lost = 0
    for result in unclear:
        open_calls = [i for i in range(len(calls)) if i not in assigned]
        if result["tool_call_id"]:
            open_calls = [i for i in open_calls if not calls[i]["id"]]
        same_name = [i for i in open_calls if calls[i]["name"] == result.get(NAME)]
        match = _first(iter(same_name or open_calls))
        if match is None:
            lost += 1
        else:
            assigned[match] = result
    return assigned, lost


def _first(positions: Any) -> int | None:
    return next(positions, None)


def _fresh_id(id: str, turn: int, position: int, used: set[str]) -> str:
    made = id or f"call_{turn}_{position}"
    while made in used:
        made = f"call_{turn}_{position}" if made == id else f"{made}_"
    used.add(made)
    return made


def _answers(calls: list[dict[str, Any]], assigned: dict[int, Message], is_last: bool) -> list[Message]:
    answers = []
    for position, call in enumerate(calls):
        if position in assigned:
            answers.append({**assigned[position], "tool_call_id": call["id"]})
        elif not is_last:
            answers.append(message("tool", INTERRUPTED, tool_call_id=call["id"], flags=["interrupted"]))
    return answers


def judge(turn: Message) -> Message:
    """The assistant message with what it says about itself: flags, and whether it may be imitated."""
    flags = set(turn["flags"])
    if any(call["arguments_state"] == "invalid" for call in turn["tool_calls"]):
        flags.add("invalid_arguments")
    if turn["refusal"]:
        flags.add("refusal")
    elif not turn["content"] and not turn["tool_calls"]:
        flags.add("empty")
    barred = flags & {"invalid_arguments", "refusal", "empty", "truncated", "not_for_training"}
    return {**turn, "flags": sorted(flags), "train": not barred}
