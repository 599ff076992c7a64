import json

from storage.conversation import (
    Conversation,
    link_results,
    mark_targets,
    message,
    node_id,
    path_ids,
    root_id,
)


def _call(id, arguments, raw=None, state="ok"):
    raw = json.dumps(arguments) if raw is None else raw
    return {"id": id, "name": "f", "arguments": arguments, "arguments_raw": raw, "arguments_state": state}


def test_the_spelling_of_arguments_and_the_ids_of_calls_do_not_change_a_node():
    a = message("assistant", None, tool_calls=[_call("c1", {"x": 1, "y": 2}, '{"x":1,"y":2}')])
    b = message("assistant", "", tool_calls=[_call("zzz", {"y": 2, "x": 1}, '{ "y": 2, "x": 1 }')])
    assert node_id("p", a) == node_id("p", b)


def test_invalid_arguments_count_as_they_are_written():
    a = message("assistant", None, tool_calls=[_call("c", None, '{"x":', "invalid")])
    b = message("assistant", None, tool_calls=[_call("c", None, '{"y":', "invalid")])
    assert node_id("p", a) != node_id("p", b)


def test_reasoning_and_cache_hints_do_not_change_a_node():
    plain = message("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    cached = message(
        "user", [{"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}]
    )
    assert node_id("p", plain) == node_id("p", cached)
    assert node_id("p", message("user", "a")) == node_id(
        "p", message("user", [{"type": "text", "text": "a"}])
    )
    assert node_id("p", message("assistant", "a")) == node_id("p", message("assistant", "a", reasoning="hm"))


def test_what_is_said_by_whom_and_after_what_makes_the_node():
    ids = {
        node_id("p", message("user", "a")),
        node_id("p", message("user", "b")),
        node_id("p", message("system", "a")),
        node_id("q", message("user", "a")),
    }
    assert len(ids) == 4


def test_other_tools_are_another_tree():
    tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}
    assert root_id([]) != root_id([tool])
    assert path_ids([], [message("user", "a")])[1] != path_ids([tool], [message("user", "a")])[1]


def test_json_and_back_is_the_same_conversation():
    whole = Conversation(
        "i", "s", "f", 0, ("x",), (), {"kind": "test", "reward": 1.0, "passed": True}, (message("user", "a"),)
    )
    assert Conversation.from_json(json.loads(json.dumps(whole.to_json()))) == whole


def test_a_failed_call_and_an_unanswered_one_are_context_and_no_targets():
    messages = [
        message("user", "u"),
        message("assistant", None, tool_calls=[_call("a", {})]),
        message("tool", "no such file", tool_call_id="a", is_error=True),
        message("assistant", None, tool_calls=[_call("b", {"x": 1})]),
        message("tool", "fine", tool_call_id="b"),
        message("assistant", None, tool_calls=[_call("c", {})]),
    ]
    marked = mark_targets(messages)
    assert [each["train"] for each in marked if each["role"] == "assistant"] == [False, True, False]
    assert marked[1]["flags"] == ["failed_call"]
    assert marked[5]["flags"] == ["dangling_call"]
    assert messages[1]["train"] is True


def test_results_are_linked_by_position_where_ids_disagree():
    messages = [
        message("assistant", None, tool_calls=[_call("a", {}), _call("b", {})]),
        message("tool", "1", tool_call_id="x"),
        message("tool", "2", tool_call_id="y"),
    ]
    assert [each["tool_call_id"] for each in link_results(messages)] == [None, "a", "b"]
