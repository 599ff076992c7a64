"""A conversation: one root-to-leaf path in the tree of messages, and what identifies each message in it.

Agents resend their whole history with every call. A message is therefore a node, identified by its parent
and by what it says: `node_id = H(parent_id, canonical message)`. Resent prefixes meet in the same nodes; a
different continuation is a different node. The root of a tree is the set of tools the agent was offered.

What does not count for identity: spelling of JSON arguments, tool-call ids (they are paired by position),
cache hints, reasoning (agents drop it when they resend), and anything this project notes about a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from storage.atomic import digest_json

Message = dict[str, Any]

_ID_LENGTH = 16  # hex digits of the leaf's node id


@dataclass(frozen=True)
class Conversation:
    """One path. `messages` are plain dicts with all the keys that `message` makes."""

    id: str
    source: str
    format: str
    segment: int
    flags: tuple[str, ...]
    tools: tuple[dict[str, Any], ...]
    outcome: dict[str, Any] | None
    messages: tuple[Message, ...]

    def to_json(self) -> dict[str, Any]:
        """The shape that the command line prints."""
        return {
            "id": self.id,
            "source": self.source,
            "format": self.format,
            "segment": self.segment,
            "flags": list(self.flags),
            "tools": list(self.tools),
            "outcome": self.outcome,
            "messages": list(self.messages),
        }

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> Conversation:
        """The inverse of `to_json`."""
        return cls(
            id=obj["id"],
            source=obj["source"],
            format=obj["format"],
            segment=obj["segment"],
            flags=tuple(obj["flags"]),
            tools=tuple(obj["tools"]),
            outcome=obj["outcome"],
            messages=tuple(obj["messages"]),
        )


def message(role: str, content: Any = None, **fields: Any) -> Message:
    """A message with all its keys.

    `train` defaults to True for assistant messages and False for all others.
    """
    made: Message = {
        "role": role,
        "content": content,
        "reasoning": None,
        "refusal": None,
        "tool_calls": [],
        "tool_call_id": None,
        "is_error": False,
        "flags": [],
        "train": role == "assistant",
    }
    made.update(fields)
    return made


def root_id(tools: Iterable[dict[str, Any]]) -> str:
    """Id of the root node: the tools offered."""
    return digest_json({"tools": list(tools)})


def node_id(parent_id: str, message: Message) -> str:
    """Id of a message under its parent."""
    return digest_json([parent_id, canonical_message(message)])


def path_ids(tools: Iterable[dict[str, Any]], messages: Iterable[Message]) -> list[str]:
    """Node ids from the root to the last message: one more than there are messages."""
    ids = [root_id(tools)]
    for each in messages:
        ids.append(node_id(ids[-1], each))
    return ids


def conversation_id(leaf: str) -> str:
    """The id of the conversation that ends in node `leaf`."""
    return leaf[:_ID_LENGTH]


def canonical_message(message: Message) -> dict[str, Any]:
    """What of a message counts for its identity."""
    return {
        "role": message["role"],
        "content": _canonical_content(message.get("content")),
        "refusal": message.get("refusal") or None,
        "tool_calls": [
            [call["name"], call["arguments_raw"] if call["arguments"] is None else call["arguments"]]
            for call in message.get("tool_calls") or []
        ],
    }


def _canonical_content(content: Any) -> Any:
    if not isinstance(content, list):
        return content or None
    if len(content) == 1 and content[0].get("type") == "text":
        return content[0].get("text") or None
    return [{key: value for key, value in part.items() if key != "cache_control"} for part in content]


def mark_targets(messages: Sequence[Message]) -> list[Message]:
    """The messages with what the whole path says about each assistant turn; the input is left as it is.

    A turn with a failed call (`failed_call`), or whose calls were never answered (`dangling_call`), stays as
    context and is not a training target.
    """
    marked = list(messages)
    for index, turn in enumerate(messages):
        if turn["role"] != "assistant" or not turn["tool_calls"]:
            continue
        results = _results_after(messages, index)
        if any(result["is_error"] for result in results):
            marked[index] = _not_a_target(marked[index], "failed_call")
        if len(results) < len(turn["tool_calls"]):
            marked[index] = _not_a_target(marked[index], "dangling_call")
    return marked


def link_results(messages: Sequence[Message]) -> list[Message]:
    """Make every result's `tool_call_id` name its call, by position within the turn where the ids
    disagree."""
    linked = list(messages)
    for index, turn in enumerate(messages):
        ids = [call["id"] for call in turn["tool_calls"]]
        results = _results_after(messages, index) if ids else []
        if any(result["tool_call_id"] not in ids for result in results):
            for position, result in enumerate(results[: len(ids)]):
                linked[index + 1 + position] = {**result, "tool_call_id": ids[position]}
    return linked


def _results_after(messages: Sequence[Message], index: int) -> list[Message]:
    results = []
    for following in messages[index + 1 :]:
        if following["role"] != "tool":
            break
        results.append(following)
    return results


def _not_a_target(turn: Message, flag: str) -> Message:
    return {**turn, "train": False, "flags": sorted({*turn["flags"], flag})}
