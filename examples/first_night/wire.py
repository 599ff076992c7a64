"""A session's messages as the request and response logs of two APIs.

Keeps true: every call resends the whole history, as agents do; ids and times follow from its number, so the
same session gives the same bytes. Leaves to record.py: where the messages come from.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Record = dict[str, Any]

FIRST_DAY = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Session:
    """One conversation, its `messages` in the project's own shape; no verdict is a `reward` of None."""

    number: int
    name: str
    model: str
    tools: list[dict[str, Any]]
    messages: list[Message]
    reward: float | None


def write_log(path: Path, records: Iterable[Record]) -> None:
    """JSON lines, gzipped without a time or a name in the header."""
    lines = b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(lines, compresslevel=9, mtime=0))


def openai_records(session: Session) -> Iterator[Record]:
    """One record a call, as OpenAI's Chat Completions API writes them."""
    for turn, position in enumerate(_assistant_positions(session)):
        answer = _openai_message(session.messages[position])
        when = _when(session, turn)
        request = {
            "model": session.model,
            "messages": [_openai_message(message) for message in session.messages[:position]],
            "tools": session.tools,
        }
        choice = {
            "index": 0,
            "message": answer,
            "finish_reason": "tool_calls" if answer.get("tool_calls") else "stop",
        }
        response = {
            "id": f"chatcmpl-{session.number:04d}-{turn}",
            "object": "chat.completion",
            "created": int(when.timestamp()),
            "model": session.model,
            "choices": [choice],
        }
        yield _record(session, position, when, request, response)


def anthropic_records(session: Session) -> Iterator[Record]:
    """One record a call, as Anthropic's Messages API writes them."""
    system, *history = session.messages
    functions = [tool["function"] for tool in session.tools]
    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
        for tool in functions
    ]
    for turn, position in enumerate(_assistant_positions(session)):
        content = _anthropic_content(session.messages[position])
        request = {
            "model": session.model,
            "max_tokens": 256,
            "system": system["content"],
            "messages": _anthropic_messages(history[: position - 1]),
            "tools": tools,
        }
        response = {
            "id": f"msg_{session.number:04d}_{turn}",
            "type": "message",
            "role": "assistant",
            "model": session.model,
            "content": content,
            "stop_reason": "tool_use" if content[-1]["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
        }
        yield _record(session, position, _when(session, turn), request, response)


def _assistant_positions(session: Session) -> list[int]:
    return [index for index, message in enumerate(session.messages) if message["role"] == "assistant"]


def _when(session: Session, turn: int) -> datetime:
    return FIRST_DAY + timedelta(minutes=session.number, seconds=2 * turn)


def _record(session: Session, position: int, when: datetime, request: Record, response: Record) -> Record:
    record = {
        "session_id": session.name,
        "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "request": request,
        "response": response,
    }
    if position == _assistant_positions(session)[-1] and session.reward is not None:
        record["verdict"] = {"kind": "test", "reward": session.reward}
    return record


def _openai_message(message: Message) -> Message:
    if message["role"] == "tool":
        return {"role": "tool", "tool_call_id": message["tool_call_id"], "content": message["content"]}
    wire = {"role": message["role"], "content": message["content"]}
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": call["arguments_raw"]},
        }
        for call in message.get("tool_calls") or []
    ]
    return wire | {"tool_calls": calls} if calls else wire


def _anthropic_messages(history: list[Message]) -> list[Message]:
    """Results of parallel calls share one user message, as the API wants it."""
    wire: list[Message] = []
    for message in history:
        if message["role"] != "tool":
            content = _anthropic_content(message) if message["role"] == "assistant" else message["content"]
            wire.append({"role": message["role"], "content": content})
            continue
        result = {
            "type": "tool_result",
            "tool_use_id": message["tool_call_id"],
            "content": message["content"],
            "is_error": message["is_error"],
        }
        if wire[-1]["role"] == "user":
            wire[-1]["content"].append(result)
        else:
            wire.append({"role": "user", "content": [result]})
    return wire


def _anthropic_content(message: Message) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": message["content"]}] if message["content"] else []
    calls = [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]}
        for call in message.get("tool_calls") or []
    ]
    return text + calls
