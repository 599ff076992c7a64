"""What surrounds the messages in a record: request and response, session, model, verdict; and which format
it is.

Loggers wrap the same two things in many ways: `{"request", "response"}`, the same with a `body` in each,
`{"request_body", "response_body"}`, or the request's fields flat beside a `response`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tasks.ingest.errors import Unusable
from tasks.ingest.json_text import parse_json

OPENAI, ANTHROPIC, TRAJECTORY = "openai_chat", "anthropic_messages", "trajectory"
FORMATS = (OPENAI, ANTHROPIC, TRAJECTORY)

_REQUESTS = ("request", "request_body", "body", "input")
_RESPONSES = ("response", "response_body", "output", "completion")
_TRAJECTORIES = ("traj", "trajectory")
_ANTHROPIC_BLOCKS = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"}
_PASSED = {"pass": True, "passed": True, "success": True, "succeeded": True, "resolved": True, "solved": True}
_FAILED = {
    "fail": False,
    "failed": False,
    "failure": False,
    "error": False,
    "unresolved": False,
    "unsolved": False,
}


@dataclass(frozen=True)
class Envelope:
    """One record, unwrapped. `request` holds `messages`; `response` is whatever answered, or None."""

    format: str
    request: dict[str, Any] = field(repr=False)
    response: Any = field(repr=False)
    session: str | None
    model: str | None
    outcome: dict[str, Any] | None


def unwrap(value: Any, format: str = "auto") -> Envelope:
    """Recognise a record.

    Raises Unusable(`unknown_shape`) naming the nearest known shape and what is missing.
    """
    if isinstance(value, list) and value and all(isinstance(each, dict) and "role" in each for each in value):
        value = {"messages": value}
    if not isinstance(value, dict):
        raise Unusable("unknown_shape", f"a JSON {_kind(value)}; a record is an object with `messages`")
    request, response = _request(value), _response(value)
    if request is None:
        raise Unusable("unknown_shape", nearest(value))
    found = _recognise(value, request, response) if format == "auto" else format
    model = request.get("model")
    return Envelope(
        format=found,
        request=request,
        response=response,
        session=session_of(value, request),
        model=model if isinstance(model, str) else None,
        outcome=outcome_of(value),
    )


def nearest(value: dict[str, Any]) -> str:
    """The known shape that an unknown record comes nearest to, and the field it lacks."""
    if any(isinstance(value.get(key), dict | str) for key in _REQUESTS):
        return "nearest to a request/response log; missing: `messages` (a list) in its request"
    if any(key in value for key in (*_RESPONSES, "choices")):
        return "nearest to a request/response log; missing: `request` with `messages`"
    if "sessionId" in value or "parentUuid" in value:
        return "nearest to an agent's session file, which is not read yet; missing: `messages`"
    if "conversations" in value:
        return "nearest to a ShareGPT record, which is not read yet; missing: `messages`"
    if "reward" in value or any(key in value for key in _TRAJECTORIES):
        return "nearest to a trajectory with a reward; missing: `traj` or `messages` (a list of messages)"
    if "role" in value:
        return "nearest to a single message of a Chat Completions record; missing: `messages` around it"
    return "nearest to a Chat Completions record; missing: `messages` (a list of messages)"


def is_verdict(value: Any) -> bool:
    """Whether a record is a verdict on a session and nothing else."""
    if not isinstance(value, dict) or _request(value) is not None:
        return False
    return session_of(value) is not None and outcome_of(value) is not None


def session_of(*places: dict[str, Any]) -> str | None:
    """The session's id: `session_id` in the record, in its request, or in the `metadata` of either."""
    for place in places:
        metadata = place.get("metadata")
        for holder in (place, metadata if isinstance(metadata, dict) else {}):
            found = holder.get("session_id")
            if isinstance(found, str | int) and found != "":
                return str(found)
    return None


def outcome_of(value: dict[str, Any]) -> dict[str, Any] | None:
    """The verdict in a record: `verdict`, `outcome` or `reward`, at the top or in `metadata`."""
    metadata = value.get("metadata")
    for holder in (value, metadata if isinstance(metadata, dict) else {}):
        for key in ("verdict", "outcome", "reward"):
            outcome = _outcome(holder.get(key), key)
            if outcome is not None:
                return outcome
    return None


def _outcome(verdict: Any, kind: str) -> dict[str, Any] | None:
    if isinstance(verdict, dict):
        reward, passed = _number(verdict.get("reward", verdict.get("score"))), verdict.get("passed")
        found = verdict.get("kind")
        kind = found if isinstance(found, str) and found else kind
    elif isinstance(verdict, str):
        reward, passed = None, {**_PASSED, **_FAILED}.get(verdict.strip().lower())
    else:
        reward, passed = _number(verdict), None
    if not isinstance(passed, bool):
        passed = None if reward is None else reward >= 1.0
    return None if passed is None else {"kind": kind, "reward": reward, "passed": passed}


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def _request(value: dict[str, Any]) -> dict[str, Any] | None:
    for key in _REQUESTS:
        found = _body(value.get(key))
        if isinstance(found, dict) and isinstance(found.get("messages"), list):
            return found
    for key in ("messages", *_TRAJECTORIES):
        if isinstance(value.get(key), list):
            return {**value, "messages": value[key]}
    return None


def _response(value: dict[str, Any]) -> Any:
    for key in _RESPONSES:
        if value.get(key) is not None:
            return _body(value[key])
    return {"choices": value["choices"]} if isinstance(value.get("choices"), list) else None


def _body(value: Any) -> Any:
    """A request or response itself: decoded if it was logged as text, out of its `body` if it has one."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = parse_json(value)[0]
        except ValueError:
            return value
    if isinstance(value, dict) and isinstance(value.get("body"), dict | str):
        return _body(value["body"])
    return value


def _recognise(value: dict[str, Any], request: dict[str, Any], response: Any) -> str:
    if _is_anthropic(request, response):
        return ANTHROPIC
    is_trajectory = response is None and (
        any(isinstance(value.get(key), list) for key in _TRAJECTORIES) or "reward" in value
    )
    return TRAJECTORY if is_trajectory else OPENAI


def _is_anthropic(request: dict[str, Any], response: Any) -> bool:
    if isinstance(response, dict) and ("choices" in response or response.get("type") == "message"):
        return "choices" not in response
    if request.get("system") is not None:
        return True
    tools = request.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools):
        return True
    contents = [each.get("content") for each in request["messages"] if isinstance(each, dict)]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return any(isinstance(block, dict) and block.get("type") in _ANTHROPIC_BLOCKS for block in blocks)


def _kind(value: Any) -> str:
    kinds = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")
