"""What each format becomes: roles, content, calls, results, flags and targets."""

import json
from itertools import pairwise

import pytest

from tasks.ingest import anthropic_messages, openai_chat
from tasks.ingest.calls import INTERRUPTED, pair
from tasks.ingest.envelope import outcome_of, session_of, unwrap
from tasks.ingest.errors import Unusable

U = {"role": "user", "content": "u"}


def _call(arguments="{}", id="c", name="f"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _openai(*messages, response=None):
    ((path, _),) = [pair(each) for each in openai_chat.paths({"messages": list(messages)}, response)]
    return path


def _anthropic(*messages, response=None, **request):
    ((path, _),) = [
        pair(each) for each in anthropic_messages.paths({"messages": list(messages), **request}, response)
    ]
    return path


@pytest.mark.parametrize(
    ("written", "arguments", "state", "train"),
    [
        ('{"x":1}', {"x": 1}, "ok", True),
        ({"x": 1}, {"x": 1}, "ok", True),
        ("", {}, "empty", True),
        (None, {}, "empty", True),
        ('"{\\"x\\":1}"', {"x": 1}, "double_encoded", True),
        ('{"x":1', None, "invalid", False),
        ("[1]", None, "invalid", False),
        ([1], None, "invalid", False),
        ('{"n": 12345678901234567890123}', {"n": 12345678901234567890123}, "ok", True),
    ],
)
def test_arguments_are_read_in_every_spelling(written, arguments, state, train):
    turn = _openai(U, {"role": "assistant", "content": None, "tool_calls": [_call(written)]})[1]
    (call,) = turn["tool_calls"]
    assert (call["arguments"], call["arguments_state"], turn["train"]) == (arguments, state, train)
    if isinstance(written, str):
        assert call["arguments_raw"] == written


def test_calls_without_ids_are_paired_by_order_and_get_ids():
    calls = [_call(name="f"), _call(name="g")]
    for call in calls:
        del call["id"]
    results = [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
    path = _openai(U, {"role": "assistant", "tool_calls": calls}, *results)
    ids = [call["id"] for call in path[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [(each["tool_call_id"], each["content"]) for each in path[2:]] == list(zip(ids, "12", strict=True))


def test_results_without_ids_go_to_the_call_of_their_name():
    calls = [_call(id="", name="f"), _call(id="", name="g")]
    results = [{"role": "tool", "name": "g", "content": "g"}, {"role": "tool", "name": "f", "content": "f"}]
    path = _openai(U, {"role": "assistant", "tool_calls": calls}, *results)
    assert [each["content"] for each in path[2:]] == ["f", "g"]


def test_an_id_used_again_belongs_to_its_own_turn():
    turn = {"role": "assistant", "tool_calls": [_call(id="call_0")]}
    result = {"role": "tool", "tool_call_id": "call_0"}
    path = _openai(U, turn, {**result, "content": "r1"}, turn, {**result, "content": "r2"})
    assert [each["content"] for each in path if each["role"] == "tool"] == ["r1", "r2"]
    assert all(
        result["tool_call_id"] == turn["tool_calls"][0]["id"]
        for turn, result in pairwise(path)
        if result["role"] == "tool"
    )
    assert path[1]["tool_calls"][0]["id"] != path[3]["tool_calls"][0]["id"]


def test_results_out_of_order_come_in_the_order_of_the_calls():
    turn = {"role": "assistant", "tool_calls": [_call(id="a"), _call(id="b")]}
    results = [{"role": "tool", "tool_call_id": id, "content": id} for id in "ba"]
    assert [each["content"] for each in _openai(U, turn, *results)[2:]] == ["a", "b"]


def test_a_call_in_the_middle_without_a_result_gets_one_that_says_so_and_one_at_the_end_stays_open():
    turn = {"role": "assistant", "tool_calls": [_call(id="a")]}
    path = _openai(U, turn, U, {**turn, "tool_calls": [_call(id="b")]})
    assert [each["role"] for each in path] == ["user", "assistant", "tool", "user", "assistant"]
    assert path[2]["content"] == INTERRUPTED
    assert path[2]["flags"] == ["interrupted"]
    assert not path[2]["train"]


def test_the_legacy_function_call_is_a_tool_call():
    turn = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    path = _openai(U, turn, {"role": "function", "name": "f", "content": "r"})
    assert path[1]["tool_calls"][0]["name"] == "f"
    assert path[2]["role"] == "tool"
    assert path[2]["tool_call_id"] == path[1]["tool_calls"][0]["id"]


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ],
)
def test_a_refusal_is_kept_as_such_and_is_no_target(turn):
    path = _openai(U, turn)
    assert (path[1]["refusal"], path[1]["content"]) == ("no", None)
    assert (path[1]["flags"], path[1]["train"]) == (["refusal"], False)


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "assistant", "content": ""},
        {"role": "assistant"},
        {"role": "assistant", "content": "x", "weight": 0},
        {"role": "assistant", "content": "x", "train": False},
    ],
)
def test_empty_and_excluded_turns_are_no_targets(turn):
    assert not _openai(U, turn)[1]["train"]


def test_developer_is_system_and_reasoning_is_kept_in_any_spelling():
    for key in ("reasoning_content", "reasoning", "thinking"):
        path = _openai(
            {"role": "developer", "content": "s"}, {"role": "assistant", "content": "a", key: "hm"}
        )
        assert (path[0]["role"], path[1]["reasoning"]) == ("system", "hm")


def test_an_answer_cut_short_is_no_target():
    for reason, train in (("length", False), ("stop", True), ("tool_calls", True)):
        response = {"choices": [{"message": {"role": "assistant", "content": "a"}, "finish_reason": reason}]}
        assert _openai(U, response=response)[1]["train"] is train
    for reason, train in (("max_tokens", False), ("end_turn", True)):
        response = {"type": "message", "content": [{"type": "text", "text": "a"}], "stop_reason": reason}
        assert _anthropic(U, response=response)[1]["train"] is train


def test_every_choice_is_a_path():
    response = {"choices": [{"message": {"content": text}} for text in "ab"]}
    paths = openai_chat.paths({"messages": [U]}, response)
    assert [path[-1]["content"] for path in paths] == ["a", "b"]


def test_system_blocks_and_cache_hints_become_a_system_message():
    system = [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]
    assert _anthropic(U, system=system)[0]["content"] == "s"
    several = _anthropic(U, system=[*system, {"type": "text", "text": "t"}])[0]["content"]
    assert several == [{"type": "text", "text": "s"}, {"type": "text", "text": "t"}]


def test_all_results_of_a_turn_come_before_the_text_beside_them():
    turn = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
            {"type": "tool_use", "id": "b", "name": "f", "input": {}},
        ],
    }
    answer = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "B"}]},
            {"type": "text", "text": "and hurry"},
            {"type": "tool_result", "tool_use_id": "a", "content": "A", "is_error": True},
        ],
    }
    path = _anthropic(U, turn, answer)
    assert [each["role"] for each in path] == ["user", "assistant", "tool", "tool", "user"]
    assert (path[1]["content"], path[1]["reasoning"], path[1]["flags"]) == (
        "I look.",
        "hm",
        ["redacted_thinking"],
    )
    assert path[1]["tool_calls"][0]["arguments"] == {"x": 1}
    assert [(each["content"], each["is_error"]) for each in path[2:4]] == [("A", True), ("B", False)]
    assert path[4]["content"] == "and hurry"


def test_an_image_in_a_result_stays_a_part():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}
    turn = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [image]}]}
    assert _anthropic(U, turn, answer)[2]["content"] == [image]


def test_an_answer_that_was_begun_in_the_request_is_one_message():
    response = {"type": "message", "content": [{"type": "text", "text": "lo"}], "stop_reason": "end_turn"}
    path = _anthropic(U, {"role": "assistant", "content": "Hel"}, response=response)
    assert [each["content"] for each in path] == ["u", "Hello"]


def test_both_formats_of_one_run_are_the_same_nodes():
    from storage.conversation import path_ids

    a = _openai(
        {"role": "system", "content": "s"},
        U,
        {"role": "assistant", "content": "", "tool_calls": [_call('{"x": 1}', id="call_1")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "r"},
    )
    b = _anthropic(
        U,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "r"}]},
        system="s",
    )
    schema = {"type": "object"}
    one = openai_chat.tools(
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}
    )
    two = anthropic_messages.tools({"tools": [{"name": "f", "input_schema": schema, "cache_control": {}}]})
    assert path_ids(one, a) == path_ids(two, b)


@pytest.mark.parametrize(
    ("record", "format"),
    [
        ({"messages": [U]}, "openai_chat"),
        ([U], "openai_chat"),
        ({"request": {"messages": [U]}, "response": {"choices": []}}, "openai_chat"),
        ({"request": {"body": {"messages": [U]}}, "response": {"body": {"choices": []}}}, "openai_chat"),
        ({"request": json.dumps({"messages": [U]}), "response": json.dumps({"choices": []})}, "openai_chat"),
        ({"request_body": {"messages": [U]}, "response_body": {"choices": []}}, "openai_chat"),
        ({"custom_id": "x", "body": {"messages": [U]}}, "openai_chat"),
        ({"model": "m", "messages": [U], "response": {"choices": []}}, "openai_chat"),
        (
            {"request": {"messages": [U]}, "response": {"type": "message", "content": []}},
            "anthropic_messages",
        ),
        ({"request": {"messages": [U], "system": "s"}, "response": None}, "anthropic_messages"),
        ({"messages": [U], "tools": [{"name": "f", "input_schema": {}}]}, "anthropic_messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}], "reward": 1},
            "anthropic_messages",
        ),
        ({"traj": [U], "reward": 0.0}, "trajectory"),
        ({"trajectory": [U]}, "trajectory"),
        ({"messages": [U], "reward": 0.0}, "trajectory"),
    ],
)
def test_formats_are_recognised_by_what_is_in_the_record(record, format):
    assert unwrap(record).format == format


@pytest.mark.parametrize(
    ("record", "outcome"),
    [
        ({"verdict": {"kind": "test", "reward": 1.0}}, {"kind": "test", "reward": 1.0, "passed": True}),
        ({"verdict": {"kind": "test", "reward": 0.5}}, {"kind": "test", "reward": 0.5, "passed": False}),
        ({"reward": 1}, {"kind": "reward", "reward": 1.0, "passed": True}),
        ({"reward": True}, {"kind": "reward", "reward": 1.0, "passed": True}),
        ({"outcome": {"passed": False}}, {"kind": "outcome", "reward": None, "passed": False}),
        ({"outcome": "success"}, {"kind": "outcome", "reward": None, "passed": True}),
        ({"metadata": {"reward": 0}}, {"kind": "reward", "reward": 0.0, "passed": False}),
        ({"outcome": "who knows"}, None),
        ({"reward": None}, None),
        ({"verdict": {}}, None),
        ({}, None),
    ],
)
def test_verdicts_are_read_wherever_they_stand(record, outcome):
    assert outcome_of(record) == outcome


def test_the_session_is_found_in_the_record_or_its_metadata():
    assert session_of({"session_id": "a"}) == "a"
    assert session_of({"metadata": {"session_id": 7}}) == "7"
    assert session_of({}, {"metadata": {"session_id": "b"}}) == "b"
    assert session_of({"session_id": None}) is None


@pytest.mark.parametrize(
    "bad",
    [
        "text",
        {"role": "oracle", "content": "x"},
        {"role": "user", "content": 5},
        {"role": "assistant", "tool_calls": [{}]},
    ],
)
def test_a_message_that_cannot_be_read_is_refused_with_a_reason(bad):
    with pytest.raises(Unusable):
        _openai(bad)
