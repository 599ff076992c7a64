"""Anthropic Messages: system beside the messages, content in blocks, results of a turn together in a user
message.

A text block stays a part where there are several, because joining them would invent a separator.
"""

from __future__ import annotations

from typing import Any

from storage.conversation import Message, message
from tasks.ingest import openai_chat
from tasks.ingest.calls import judge, tool_call
from tasks.ingest.errors import Unusable
from tasks.ingest.openai_chat import function_tool, simplest

_CUT_SHORT = {"max_tokens", "model_context_window_exceeded"}


def paths(request: dict[str, Any], response: Any) -> list[list[Message]]:
    """The one path that a record holds: system, messages, and the response."""
    path = [message("system", _content(request["system"]))] if request.get("system") else []
    for each in request["messages"]:
        path += _messages(each)
    answer = _answer(response)
    if answer is None:
        return [path]
    if path and path[-1]["role"] == "assistant":
        return [[*path[:-1], _continued(path[-1], answer)]]
    return [[*path, answer]]


def tools(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools that were offered, in OpenAI's shape."""
    offered = request.get("tools") or []
    if not isinstance(offered, list) or not all(isinstance(each, dict) for each in offered):
        raise Unusable("malformed_tools", "`tools` is not a list of objects")
    if any("function" in each for each in offered):
        return openai_chat.tools(request)
    return [
        function_tool(each.get("name"), each.get("description"), each.get("input_schema")) for each in offered
    ]


def _answer(response: Any) -> Message | None:
    if not isinstance(response, dict) or response.get("content") is None:
        return None
    answer = _assistant(response["content"])
    reason = response.get("stop_reason")
    flags = (["truncated"] if reason in _CUT_SHORT else []) + (["refusal"] if reason == "refusal" else [])
    return judge({**answer, "flags": [*answer["flags"], *flags]}) if flags else answer


def _continued(start: Message, answer: Message) -> Message:
    """A response to a request that ended in the beginning of the answer: one message."""
    texts = [start["content"] or "", answer["content"] or ""]
    joined = (
        "".join(texts)
        if all(isinstance(text, str) for text in texts)
        else [*_parts(texts[0]), *_parts(texts[1])]
    )
    return judge(
        {
            **answer,
            "content": joined or None,
            "reasoning": "\n".join(filter(None, (start["reasoning"], answer["reasoning"]))) or None,
            "tool_calls": [*start["tool_calls"], *answer["tool_calls"]],
            "flags": sorted({*start["flags"], *answer["flags"]} - {"empty"}),
        }
    )


def _messages(each: Any) -> list[Message]:
    if not isinstance(each, dict):
        raise Unusable("malformed_message", "a message that is not an object")
    role, content = each.get("role"), each.get("content")
    if role == "assistant":
        return [_assistant(content)]
    if role == "system":
        return [message("system", _content(content))]
    if role != "user":
        # Some gateways log this wire format with the other one's tool messages in it.
        return openai_chat.paths({"messages": [each]}, None)[0]
    blocks = _blocks(content)
    results = [_result(block) for block in blocks if block["type"] == "tool_result"]
    rest = [_part(block) for block in blocks if block["type"] != "tool_result"]
    return results + ([message("user", simplest(rest))] if rest or not results else [])


def _result(block: dict[str, Any]) -> Message:
    call_id = block.get("tool_use_id")
    return message(
        "tool",
        _content(block.get("content")),
        tool_call_id=call_id if isinstance(call_id, str) else None,
        is_error=block.get("is_error") is True,
    )


def _assistant(content: Any) -> Message:
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    flags: set[str] = set()
    for block in _blocks(content):
        kind = block["type"]
        if kind == "tool_use":
            calls.append(tool_call(block.get("id"), block.get("name"), block.get("input")))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind == "redacted_thinking":
            flags.add("redacted_thinking")
        else:
            # The text form has calls after the text, so a text after a call has moved.
            flags |= {"text_after_call"} if calls else set()
            parts.append(_part(block))
    reasoning = "\n".join(filter(None, thoughts)) or None
    return judge(
        message("assistant", simplest(parts), reasoning=reasoning, tool_calls=calls, flags=sorted(flags))
    )


def _content(content: Any) -> Any:
    return simplest([_part(block) for block in _blocks(content)])


def _blocks(content: Any) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise Unusable("malformed_message", "content that is neither text nor a list of blocks")
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
    if not all(isinstance(each, dict) and isinstance(each.get("type"), str) for each in blocks):
        raise Unusable("malformed_message", "a content block without a type")
    return blocks


def _parts(content: Any) -> list[dict[str, Any]]:
    return [_part(block) for block in _blocks(content)]


def _part(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "text", "text": str(block.get("text") or "")}
    return {key: value for key, value in block.items() if key != "cache_control"}
