"""OpenAI Chat Completions: messages, and request/response logs. Deprecated spellings and common extensions
too."""

from __future__ import annotations

from typing import Any

from storage.conversation import Message, message
from tasks.ingest.calls import NAME, judge, tool_call
from tasks.ingest.errors import Unusable
from tasks.ingest.json_text import parse_json

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXT_PARTS = {"text", "input_text", "output_text"}
_CUT_SHORT = {"length", "content_filter"}


def paths(request: dict[str, Any], response: Any) -> list[list[Message]]:
    """The paths that a record holds: its messages, followed by each choice of its response."""
    history = [_message(each) for each in request["messages"]]
    answers = _answers(response)
    return [[*history, answer] for answer in answers] or [history]


def tools(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools that were offered, each as {"type": "function", "function": {name, description,
    parameters}}."""
    offered = request.get("tools")
    if isinstance(offered, str):
        try:
            offered = parse_json(offered)[0]
        except ValueError:
            offered = None
    offered = offered or request.get("functions") or []
    if not isinstance(offered, list):
        raise Unusable("malformed_tools", "`tools` is not a list")
    return [_tool(each) for each in offered]


def function_tool(name: Any, description: Any, parameters: Any) -> dict[str, Any]:
    """One tool. Raises Unusable if it has no name."""
    if not isinstance(name, str):
        raise Unusable("malformed_tools", "a tool without a name")
    parameters = parameters if isinstance(parameters, dict) else {}
    function = {"name": name, "description": description or "", "parameters": parameters}
    return {"type": "function", "function": function}


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise Unusable("malformed_tools", "a tool that is not an object")
    inner = tool.get("function", tool.get("custom", tool))
    inner = inner if isinstance(inner, dict) else {}
    return function_tool(inner.get("name"), inner.get("description"), inner.get("parameters"))


def _answers(response: Any) -> list[Message]:
    if isinstance(response, str) and response:
        return [judge(message("assistant", response))]
    if not isinstance(response, dict):
        return []
    if isinstance(response.get("choices"), list):
        return [
            _choice(each) for each in response["choices"] if isinstance(each, dict) and each.get("message")
        ]
    answer = response if response.get("role") == "assistant" else response.get("message")
    return [_message(answer)] if isinstance(answer, dict) else []


def _choice(choice: dict[str, Any]) -> Message:
    answer = _message({"role": "assistant", **choice["message"]})
    if choice.get("finish_reason") in _CUT_SHORT:
        answer = judge({**answer, "flags": [*answer["flags"], "truncated"]})
    return answer


def _message(each: Any) -> Message:
    if not isinstance(each, dict):
        raise Unusable("malformed_message", "a message that is not an object")
    role = _ROLES.get(str(each.get("role")))
    if role is None:
        raise Unusable("unknown_role", "a message with an unknown role")
    content, refusal = _content(each.get("content"))
    if role == "assistant":
        return _assistant(each, content, refusal)
    if role != "tool":
        return message(role, content)
    failed = each.get("is_error") is True or each.get("status") == "error"
    call_id = each.get("tool_call_id")
    named = {NAME: each.get("name")}
    return message(
        "tool", content, tool_call_id=call_id if isinstance(call_id, str) else None, is_error=failed, **named
    )


def _assistant(each: dict[str, Any], content: Any, refusal: str | None) -> Message:
    reasoning = next(
        (
            each[key]
            for key in ("reasoning_content", "reasoning", "thinking")
            if isinstance(each.get(key), str)
        ),
        None,
    )
    calls = [_call(call) for call in each.get("tool_calls") or []]
    legacy = each.get("function_call")
    if not calls and isinstance(legacy, dict):
        calls = [tool_call(None, legacy.get("name"), legacy.get("arguments"))]
    barred = each.get("weight") == 0 or each.get("train") is False
    said = each.get("refusal") if isinstance(each.get("refusal"), str) else None
    return judge(
        message(
            "assistant",
            content,
            reasoning=reasoning or None,
            refusal=said or refusal,
            tool_calls=calls,
            flags=["not_for_training"] if barred else [],
        )
    )


def _call(call: Any) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise Unusable("malformed_call", "a tool call that is not an object")
    inner = call.get("function", call.get("custom", call))
    if not isinstance(inner, dict):
        raise Unusable("malformed_call", "a tool call whose function is not an object")
    arguments = inner.get("arguments", inner.get("input"))
    if arguments is None:
        arguments = inner.get("arguments_raw")
    return tool_call(call.get("id"), inner.get("name"), arguments)


def _content(content: Any) -> tuple[Any, str | None]:
    """Content as text or parts, and the refusal if one of the parts was that."""
    if content is None or isinstance(content, str):
        return content, None
    if not isinstance(content, list):
        raise Unusable("malformed_message", "content that is neither text nor a list of parts")
    parts = [_part(each) for each in content]
    refusals = [str(part.get("refusal")) for part in parts if part["type"] == "refusal"]
    kept = [part for part in parts if part["type"] != "refusal"]
    return simplest(kept), "\n".join(refusals) or None


def simplest(parts: list[dict[str, Any]]) -> Any:
    """One text part as its text, no part as None, anything else as it is."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts or None


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise Unusable("malformed_message", "a content part without a type")
    if part["type"] in _TEXT_PARTS:
        return {"type": "text", "text": str(part.get("text") or "")}
    return {key: value for key, value in part.items() if key != "cache_control"}
