import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from storage.atomic import digest_bytes, digest_file
from storage.conversation import Conversation, conversation_id, message, path_ids
from storage.errors import NotFound, QueryError
from storage.home import Home
from storage.lake import Lake
from storage.manifests import files
from storage.tables import Quarantined, RawRecord

ROOT = Path(__file__).parents[2]
PASSED = {"kind": "test", "reward": 1.0, "passed": True}
FAILED = {"kind": "test", "reward": 0.0, "passed": False}
U, U2 = (message("user", text) for text in "uv")
A, A2, B2 = (message("assistant", text) for text in "abc")


def _conversation(messages, outcome=None, source="s", tools=(), flags=()):
    leaf = path_ids(tools, messages)[-1]
    return Conversation(
        conversation_id(leaf), source, "openai_chat", 0, tuple(flags), tuple(tools), outcome, tuple(messages)
    )


def _record(content, source="s"):
    return RawRecord(source, "f.jsonl", "0" * 64, 0, content, "openai_chat")


def _contents(lake, **arguments):
    return sorted([m["content"] for m in each.messages] for each in lake.conversations(**arguments))


@pytest.fixture
def lake(tmp_path):
    return Lake(Home.open(tmp_path))


def test_an_empty_lake_answers(lake):
    assert lake.head() is None
    assert list(lake.conversations()) == []
    assert lake.quarantine() == []
    assert lake.stats()["conversations"] == 0
    assert lake.sql("select * from messages")[1] == []


def test_a_resent_prefix_is_subsumed_and_another_continuation_is_a_second_leaf(lake):
    lake.add([_record(b"1")], [_conversation([U, A]), _conversation([U, A, U2, A2])], [])
    lake.add([_record(b"2")], [_conversation([U, A, U2, B2])], [])
    assert _contents(lake) == [["u", "a", "v", "b"], ["u", "a", "v", "c"]]


def test_adding_again_changes_nothing_at_all(lake):
    arguments = [_record(b"1"), _record(b"2")], [_conversation([U, A], PASSED)], []
    first = lake.add(*arguments)
    before = sorted(lake.home.root.rglob("*"))
    second = lake.add(*arguments)
    assert (first.new, first.duplicate) == (2, 0)
    assert (second.new, second.duplicate, second.version) == (0, 2, first.version)
    assert sorted(lake.home.root.rglob("*")) == before


def test_a_record_given_twice_is_kept_once(lake):
    added = lake.add([_record(b"1"), _record(b"1")], [], [])
    assert (added.new, added.duplicate) == (1, 1)
    assert lake.sql("select record from raw")[1] == [("1",)]


def test_a_dry_run_counts_and_writes_nothing(lake):
    added = lake.add([_record(b"1")], [_conversation([U, A])], [], dry_run=True)
    assert (added.new, added.version) == (1, None)
    assert not lake.home.lake.exists()


def test_an_old_version_reads_as_it_was(lake):
    old = lake.add([_record(b"1")], [_conversation([U, A])], []).version
    lake.add([_record(b"2")], [_conversation([U, A, U2, A2])], [])
    assert _contents(lake, version=old) == [["u", "a"]]
    assert _contents(lake) == [["u", "a", "v", "b"]]


def test_a_verdict_is_the_leafs_and_the_worst_of_several(lake):
    lake.add([], [_conversation([U, A], PASSED), _conversation([U2, A2], PASSED)], [])
    lake.add([], [_conversation([U2, A2], FAILED)], [])
    found = {each.messages[0]["content"]: each for each in lake.conversations()}
    assert found["u"].outcome == PASSED
    assert found["v"].outcome == FAILED
    assert found["v"].flags == ("disputed_outcome",)


def test_conversations_can_be_chosen_by_sql_and_by_source(lake):
    lake.add([], [_conversation([U, A], PASSED), _conversation([U2, A2], FAILED, source="it's")], [])
    assert _contents(lake, where="passed") == [["u", "a"]]
    assert _contents(lake, where="passed -- and so on") == [["u", "a"]]
    assert _contents(lake, source=["it's"]) == [["v", "b"]]
    assert _contents(lake, source=[]) == []
    assert _contents(lake, where="passed", source=["it's"]) == []


def test_a_conversation_is_found_by_the_beginning_of_its_id(lake):
    whole = _conversation([U, A])
    lake.add([], [whole, _conversation([U2, A2])], [])
    assert lake.conversation(whole.id[:6]) == whole
    with pytest.raises(NotFound, match=r"^0 conversations"):
        lake.conversation("")
    with pytest.raises(NotFound, match="x' or true"):
        lake.conversation("x' or true --")


def test_two_sightings_of_a_message_keep_what_either_knows(lake):
    thought = {**A, "reasoning": "hm"}
    cut = {**A, "flags": ["truncated"], "train": False}
    lake.add([], [_conversation([U, thought])], [])
    lake.add([], [_conversation([U, cut, U2, A2])], [])
    (found,) = lake.conversations()
    assert found.messages[1] == {**A, "reasoning": "hm", "flags": ["truncated"], "train": False}


def test_tools_come_back_without_padding(lake):
    tools = [
        {"type": "function", "function": {"name": name, "description": "", "parameters": {key: {"a": 1}}}}
        for name, key in (("f", "x"), ("g", "y"))
    ]
    whole = _conversation([U, A], tools=tools)
    lake.add([], [whole], [])
    assert list(lake.conversations()) == [whole]


def test_the_flags_of_a_path_are_those_of_all_its_records(lake):
    lake.add([], [_conversation([U, A], flags=["b"]), _conversation([U, A, U2, A2], flags=["a"])], [])
    (found,) = lake.conversations()
    assert found.flags == ("a", "b")
    assert lake.sql("select flags, message_count from conversations")[1] == [(["a", "b"], 4)]


def test_every_file_has_the_digest_that_names_it(lake):
    lake.add([_record(b"1", source="a/../b")], [_conversation([U, A], PASSED, source="a/../b")], [])
    listed = [entry for entries in files(lake.home, lake.head()).values() for entry in entries]
    assert len(listed) == 3
    for entry in listed:
        path = lake.home.lake / entry.path
        assert digest_file(path) == entry.sha256 == path.stem
        assert path.parts[-3].startswith("source=")
    assert {path.stem for path in lake.home.lake.rglob("*.parquet")} == {entry.sha256 for entry in listed}


def test_the_quarantine_lists_reason_and_place(lake):
    entry = Quarantined("s", "f", "d", 17, 3, "bad_utf8", "not UTF-8", digest_bytes(b"\xff\xfe"), b"\xff\xfe")
    lake.add([], [], [entry])
    lake.add([], [], [entry])
    (found,) = lake.quarantine()
    assert (found["file"], found["byte_offset"], found["reason"]) == ("f", 17, "bad_utf8")
    assert "record" not in found
    assert lake.sql("select record from quarantine")[1] == [(None,)]
    assert lake.stats()["quarantine_reasons"] == {"bad_utf8": 1}


def test_messages_can_be_queried_with_what_the_path_says_of_them(lake):
    call = {"id": "c", "name": "f", "arguments": {}, "arguments_raw": "{}", "arguments_state": "ok"}
    failed = [
        U,
        message("assistant", None, tool_calls=[call]),
        message("tool", "no", tool_call_id="c", is_error=True),
        A,
    ]
    lake.add([], [_conversation(failed)], [])
    _, rows = lake.sql("select position, role, train, flags from messages order by position")
    assert rows == [
        (0, "user", False, []),
        (1, "assistant", False, ["failed_call"]),
        (2, "tool", False, []),
        (3, "assistant", True, []),
    ]


@pytest.mark.parametrize(
    "query",
    [
        "copy (select 1) to '{outside}/new.csv'",
        "select * from read_text('{outside}/secret')",
        "select * from '{outside}/secret'",
        "select * from glob('{outside}/*')",
        "select 1; select 2",
        "set enable_external_access = true",
        "attach '{outside}/db' as db",
        "explain analyze copy (select 1) to '{outside}/new.csv'",
        "select * from query('copy (select 1) to ''{outside}/new.csv''')",
        "with x as (copy (select 1) to '{outside}/new.csv') select 1",
        "copy (select 1) to '{inside}'",
        "pragma database_list",
        "select * from rows",
        "select nonsense",
        "",
    ],
)
def test_a_query_can_only_read_the_lake(lake, tmp_path, query):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    lake.add([_record(b"1")], [], [])
    inside = next(lake.home.lake.rglob("*.parquet"))
    with pytest.raises(QueryError):
        lake.sql(query.format(outside=outside, inside=inside))
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert digest_file(inside) == inside.stem


ADD = """
    import sys
    from pathlib import Path
    sys.path.insert(0, {root!r})
    from storage.conversation import Conversation, conversation_id, message, path_ids
    from storage.home import Home
    from storage.lake import Lake
    from storage.tables import RawRecord
    lake = Lake(Home.open({home!r}))
    start, stop = int(sys.argv[1]), int(sys.argv[2])
    for i in range(start, stop):
        messages = [message("user", str(i)), message("assistant", "a")]
        leaf = path_ids([], messages)[-1]
        whole = Conversation(conversation_id(leaf), "s", "f", 0, (), (), None, tuple(messages))
        lake.add([RawRecord("s", "f", "0" * 64, i, str(i).encode(), "f", node_ids=(leaf,))], [whole], [])
        print(i, flush=True)
"""


def _adder(home, start, stop):
    code = textwrap.dedent(ADD.format(root=str(ROOT), home=str(home.root)))
    return subprocess.Popen([sys.executable, "-c", code, str(start), str(stop)], stdout=subprocess.DEVNULL)


def _is_whole(lake):
    records = {int(text) for (text,) in lake.sql("select record from raw")[1]}
    said = {int(each.messages[0]["content"]) for each in lake.conversations()}
    assert records == said
    return records


def test_several_processes_adding_at_once_lose_and_double_nothing(lake):
    adders = [_adder(lake.home, start, start + 8) for start in (0, 4, 8)]
    assert [adder.wait() for adder in adders] == [0, 0, 0]
    assert _is_whole(lake) == set(range(16))
    assert lake.sql("select count(*) from raw")[1] == [(16,)]


def test_a_writer_killed_at_any_point_leaves_a_whole_lake(lake):
    generator = random.Random(0)
    for _ in range(6):
        adder = _adder(lake.home, 0, 30)
        time.sleep(0.7 + generator.random())
        os.kill(adder.pid, signal.SIGKILL)
        adder.wait()
        _is_whole(lake)
    assert _adder(lake.home, 0, 30).wait() == 0
    assert _is_whole(lake) == set(range(30))
    assert lake.sql("select count(*) from raw")[1] == [(30,)]
    assert list(lake.home.lake.rglob("*.tmp")) == []
