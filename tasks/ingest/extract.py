"""From one record to the conversations in it, whichever format it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from storage.conversation import Conversation, Message, conversation_id, path_ids
from tasks.ingest import anthropic_messages, openai_chat, trajectory
from tasks.ingest.calls import pair
from tasks.ingest.envelope import (
    ANTHROPIC,
    OPENAI,
    TRAJECTORY,
    Envelope,
    is_verdict,
    outcome_of,
    session_of,
    unwrap,
)
from tasks.ingest.errors import Unusable
from tasks.ingest.json_text import Record

_READERS = {OPENAI: openai_chat, ANTHROPIC: anthropic_messages, TRAJECTORY: trajectory}


@dataclass(frozen=True)
class Extracted:
    """What a record held. `orphans` counts tool results that answer no call and were left out."""

    conversations: list[Conversation]
    format: str
    session: str | None = None
    model: str | None = None
    orphans: int = 0


def extract(record: Record, format: str, source: str, sessions: Mapping[str, Conversation]) -> Extracted:
    """The conversations of a record; `sessions` holds the last one of each session so far.

    Raises Unusable, with the quarantine's reason, if there is none to be had.
    """
    if record.reason is not None:
        raise Unusable(record.reason, record.detail)
    if b"litellm_truncated" in record.raw:
        raise Unusable("logger_truncated", "the logger cut long texts out of this record")
    if is_verdict(record.value):
        return _judged(record.value, sessions)
    return _conversations(unwrap(record.value, format), source, record.repaired)


def _judged(value: dict[str, Any], sessions: Mapping[str, Conversation]) -> Extracted:
    """A verdict by itself is on the last path of its session."""
    last = sessions.get(session_of(value) or "")
    if last is None:
        raise Unusable(
            "verdict_without_session", "a verdict on a session that is not in this input before it"
        )
    return Extracted([replace(last, outcome=outcome_of(value))], last.format)


def _conversations(envelope: Envelope, source: str, repaired: bool) -> Extracted:
    reader = _READERS[envelope.format]
    tools = reader.tools(envelope.request)
    pairs = [pair(path) for path in reader.paths(envelope.request, envelope.response)]
    orphans = sum(lost for _, lost in pairs)
    flags = [*(["orphan_result"] if orphans else []), *(["surrogate_repaired"] if repaired else [])]
    made = [_conversation(source, envelope.format, flags, tools, path) for path, _ in pairs]
    # A verdict is on what the agent went on with, which is the first choice.
    made[0] = replace(made[0], outcome=envelope.outcome)
    return Extracted(made, envelope.format, envelope.session, envelope.model, orphans)


def _conversation(
    source: str, format: str, flags: Iterable[str], tools: list[dict[str, Any]], messages: list[Message]
) -> Conversation:
    if not any(each["role"] == "assistant" for each in messages):
        raise Unusable("no_assistant_message", "nothing that an agent said")
    return Conversation(
        id=conversation_id(path_ids(tools, messages)[-1]),
        source=source,
        format=format,
        segment=0,
        flags=tuple(flags),
        tools=tuple(tools),
        outcome=None,
        messages=tuple(messages),
    )
