"""Ingest as a whole: files in, lake and quarantine out."""

import gzip
import io
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.atomic import digest_file
from storage.home import Home
from storage.lake import Lake
from tasks.ingest.errors import IngestError
from tasks.ingest.ingest import ingest

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "traces"


def _line(*texts, **fields):
    roles = ("user", "assistant") * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return json.dumps({"messages": messages, **fields}, ensure_ascii=False).encode()


@pytest.fixture
def home(tmp_path):
    return Home.open(tmp_path / "home")


@pytest.fixture
def ingested(home, tmp_path):
    """Ingest bytes as a file, and give the result and the conversations."""

    def run(data, name="log.jsonl", **arguments):
        path = tmp_path / name
        path.write_bytes(data)
        return ingest(home, [str(path)], **arguments), list(Lake(home).conversations())

    return run


def _texts(conversations):
    return sorted([each["content"] for each in whole.messages] for whole in conversations)


def _reasons(result):
    return [(entry.reason, entry.byte_offset) for entry in result.quarantined]


def test_ingesting_again_adds_nothing(ingested):
    first, before = ingested(_line("u", "a") + b"\n" + _line("v", "b"))
    second, after = ingested(_line("u", "a") + b"\n" + _line("v", "b"))
    assert (first.records, first.new, first.duplicate, first.conversations) == (2, 2, 0, 2)
    assert (second.records, second.new, second.duplicate, second.conversations) == (2, 0, 2, 2)
    assert before == after
    assert first.source == "log"
    assert first.preview is None


def test_a_truncated_tail_costs_its_line_and_comes_in_when_the_file_has_grown(ingested):
    whole = _line("u", "a") + b"\n" + _line("v", "b") + b"\n" + _line("w", "c")
    result, conversations = ingested(whole[:-5])
    assert (result.new, len(conversations)) == (2, 2)
    assert [reason for reason, _ in _reasons(result)] == ["truncated_tail"]
    result, conversations = ingested(whole + b"\n")
    assert (result.new, result.duplicate, len(conversations)) == (1, 2, 3)


def test_a_bad_middle_line_costs_only_itself_and_is_found_again_by_its_offset(ingested, home, tmp_path):
    data = b"\n".join([_line("u", "a"), b'{"messages": nonsense}', _line("v", "b")])
    result, conversations = ingested(data)
    assert len(conversations) == 2
    (entry,) = Lake(home).quarantine()
    assert entry["reason"] == "bad_json"
    assert entry["file_digest"] == digest_file(tmp_path / "log.jsonl")
    start = entry["byte_offset"]
    assert data[start : start + entry["length"]] == b'{"messages": nonsense}'
    assert "nonsense" not in result.quarantined[0].detail


def test_a_bad_first_line_does_not_cost_the_file(ingested):
    for bad in (b'{"messages": [', b"Started server", b'{"a": "b', b"}"):
        result, conversations = ingested(bad + b"\n" + _line("u", "a") + b"\n" + _line("v", "b"))
        assert len(conversations) == 2
        assert _reasons(result) == [("bad_json", 0)]


def test_the_second_of_two_glued_records_is_saved(ingested):
    glued = b'{"messages": [{"role": "us' + _line("v", "b")
    result, conversations = ingested(_line("u", "a") + b"\n" + glued + b"\n" + _line("w", "c"))
    assert _texts(conversations) == [["u", "a"], ["v", "b"], ["w", "c"]]
    assert [reason for reason, _ in _reasons(result)] == ["bad_json"]


def test_bom_and_crlf_cost_no_record(ingested):
    result, conversations = ingested(
        b"\xef\xbb\xbf" + _line("u", "a") + b"\r\n\r\n" + _line("v", "b") + b"\r\n"
    )
    assert (result.records, result.quarantined) == (2, [])
    assert _texts(conversations) == [["u", "a"], ["v", "b"]]


def test_utf16_is_decoded(ingested):
    text = (_line("ü", "a") + b"\n" + _line("v", "b")).decode()
    for encoding in ("utf-16", "utf-16-be"):
        data = text.encode(encoding)
        _, conversations = ingested(data if encoding == "utf-16" else b"\xfe\xff" + data)
        assert _texts(conversations) == [["v", "b"], ["ü", "a"]]


def test_invalid_utf8_costs_its_line(ingested):
    result, conversations = ingested(_line("u", "a") + b'\n{"messages": "\xff"}\n' + _line("v", "b"))
    assert len(conversations) == 2
    assert [reason for reason, _ in _reasons(result)] == ["bad_utf8"]


def test_line_separators_and_control_characters_inside_strings_are_kept(ingested):
    text = "a\u2028b\u2029c\u0085d\x0be"
    data = _line("u", text).replace(b"\\u000b", b"\x0b") + b"\n" + _line("v", "b")
    result, conversations = ingested(data)
    assert result.records == 2
    assert ["u", text] in _texts(conversations)


def test_half_a_surrogate_pair_is_replaced_and_flagged_and_whole_pairs_stay(ingested):
    call = {"id": "c", "function": {"name": "f", "arguments": '{"x": "\\ud83d"}'}}
    line = (
        b'{"messages": [{"role": "user", "content": "hi \\ud83d!"}, '
        b'{"role": "assistant", "content": "\\ud83d\\ude00", "tool_calls": ['
    )
    line += json.dumps(call).encode() + b"]}]}"
    _, (whole,) = ingested(line)
    assert whole.messages[0]["content"] == "hi \ufffd!"
    assert whole.messages[1]["content"] == "\U0001f600"
    assert whole.messages[1]["tool_calls"][0]["arguments"] == {"x": "\ufffd"}
    assert whole.flags == ("surrogate_repaired",)


def test_gz_zst_and_plain_twins_are_one(home, tmp_path):
    lines = [_line("u", "a") + b"\n", _line("v", "b") + b"\n"]
    compress = zstandard.ZstdCompressor().compress
    twins = {
        "r.jsonl": b"".join(lines),
        "r.jsonl.gz": b"".join(map(gzip.compress, lines)),
        "misnamed.txt": b"".join(map(compress, lines)),
    }
    for name, data in twins.items():
        (tmp_path / name).write_bytes(data)
        result = ingest(home, [str(tmp_path / name)], source="r")
        assert result.records == 2
    assert len(list(Lake(home).conversations())) == 2
    assert Lake(home).stats()["records"] == 2


def test_a_cut_or_damaged_compressed_file_gives_what_it_has(ingested):
    lines = b"".join(_line(os.urandom(2000).hex(), "a") + b"\n" for _ in range(200))
    packed = gzip.compress(lines)
    result, conversations = ingested(packed[: len(packed) // 2])
    assert 50 < len(conversations) < 150
    assert result.quarantined[-1].reason == "truncated_file"


def test_a_decompression_bomb_is_stopped(ingested, monkeypatch):
    monkeypatch.setattr("tasks.ingest.reader._BOMB_BYTES", 100_000)
    monkeypatch.setattr("tasks.ingest.reader._BOMB_RATIO", 10)
    result, conversations = ingested(gzip.compress(_line("u", "a") + b"\n" + b" " * 10_000_000))
    assert len(conversations) == 1
    assert _reasons(result)[0][0] == "decompression_bomb"


def test_an_oversize_line_is_passed_over_in_pieces(ingested, monkeypatch):
    monkeypatch.setattr("tasks.ingest.records.MAX_RECORD_BYTES", 1000)
    big = _line("u" * 5000, "a")
    result, conversations = ingested(_line("u", "a") + b"\n" + big + b"\n" + _line("v", "b"))
    assert len(conversations) == 2
    assert [reason for reason, _ in _reasons(result)] == ["oversize"]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("is_array", [True, False])
def test_arrays_and_documents_over_several_lines_are_read_with_offsets(ingested, home, indent, is_array):
    records = [json.loads(_line("ü", "a")), json.loads(_line("v", "b"))]
    documents = [records] if is_array else records
    data = "\n".join(json.dumps(each, indent=indent, ensure_ascii=False) for each in documents).encode()
    result, conversations = ingested(data)
    assert (result.records, len(conversations)) == (2, 2)
    rows = Lake(home).sql("select byte_offset, encode(record) from raw")[1]
    assert all(data[offset : offset + len(record)] == record for offset, record in rows)


def test_a_cut_array_gives_its_whole_elements(ingested):
    data = b"[\n" + _line("u", "a") + b",\n" + _line("v", "b") + b",\n" + _line("w", "c")[:-9]
    result, conversations = ingested(data)
    assert len(conversations) == 2
    assert [reason for reason, _ in _reasons(result)] == ["truncated_tail"]


def test_a_bare_list_of_messages_is_one_conversation(ingested):
    messages = json.loads(_line("u", "a"))["messages"]
    for data in (json.dumps(messages), json.dumps(messages, indent=1), f"{json.dumps(messages)}\n" * 2):
        _, conversations = ingested(data.encode())
        assert _texts(conversations) == [["u", "a"]]


def test_a_resent_history_is_one_path_and_another_answer_is_a_second(ingested):
    lines = [_line("u", "a"), _line("u", "a", "v", "b"), _line("u", "a", "v", "c")]
    result, conversations = ingested(b"\n".join(lines))
    assert _texts(conversations) == [["u", "a", "v", "b"], ["u", "a", "v", "c"]]
    assert (result.records, result.new, result.conversations) == (3, 3, 2)


def test_the_verdict_of_a_sessions_last_call_is_on_the_leaf(ingested):
    verdict = {"kind": "test", "reward": 1.0}
    lines = [
        _line("u", "a", session_id="s1"),
        _line("u", "a", "v", "b", session_id="s1", verdict=verdict),
        _line("u", "a", "v", "c", session_id="s2"),
        json.dumps({"session_id": "s2", "verdict": {"kind": "test", "passed": False}}).encode(),
        json.dumps({"session_id": "s3", "reward": 1}).encode(),
    ]
    result, conversations = ingested(b"\n".join(lines))
    outcomes = {whole.messages[-1]["content"]: whole.outcome for whole in conversations}
    assert outcomes == {
        "b": {"kind": "test", "reward": 1.0, "passed": True},
        "c": {"kind": "test", "reward": None, "passed": False},
    }
    assert [reason for reason, _ in _reasons(result)] == ["verdict_without_session"]


def test_an_orphan_result_is_dropped_and_counted_and_the_record_is_used(ingested):
    messages = [
        {"role": "user", "content": "u"},
        {"role": "tool", "tool_call_id": "gone", "content": "r"},
        {"role": "assistant", "content": "a"},
    ]
    result, (whole,) = ingested(json.dumps({"messages": messages}).encode())
    assert [each["role"] for each in whole.messages] == ["user", "assistant"]
    assert whole.flags == ("orphan_result",)
    assert _reasons(result) == [("orphan_result", 0)]


def test_a_dry_run_previews_and_writes_nothing(ingested, home):
    result, conversations = ingested(_line("u", "a") + b"\n" + _line("u", "a", "v", "b"), dry_run=True)
    assert conversations == []
    assert not home.lake.exists()
    assert (result.new, result.conversations, len(result.preview)) == (2, 1, 1)
    preview = result.preview
    _, (whole,) = ingested(_line("u", "a") + b"\n" + _line("u", "a", "v", "b"))
    assert preview == [whole.to_json()]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"request": {"model": "m"}}', ["request/response", "messages"]),
        (b'{"response": {"choices": []}}', ["request/response", "request"]),
        (b'{"reward": 1}', ["trajectory", "traj"]),
        (b'{"role": "user", "content": "u"}', ["single message", "messages"]),
        (b'{"conversations": []}', ["ShareGPT", "messages"]),
        (b'{"sessionId": "x"}', ["session file", "messages"]),
        (b'{"a": 1}', ["Chat Completions", "messages"]),
        (b"1\n2", ["number", "messages"]),
        (b"hello", ["ends within", "Wanted", "messages"]),
        (b"\x00\x01\x02", ["ends within", "Wanted", "messages"]),
        (b"\x89PNG\r\n\x1a\n\x00\x00", ["not valid UTF-8"]),
    ],
)
def test_an_unknown_file_is_named_with_its_nearest_shape_and_what_is_missing(ingested, home, data, words):
    with pytest.raises(IngestError) as error:
        ingested(data, "strange.bin")
    assert "strange.bin" in str(error.value)
    assert all(word in str(error.value) for word in words)
    assert not home.lake.exists()


def test_a_record_of_unknown_shape_among_others_is_quarantined(ingested):
    result, conversations = ingested(b'{"a": 1}\n' + _line("u", "a") + b'\n{"messages": []}\n')
    assert len(conversations) == 1
    assert [reason for reason, _ in _reasons(result)] == ["unknown_shape", "no_assistant_message"]


def test_folders_globs_and_files_are_each_read_once(home, tmp_path):
    folder = tmp_path / "traces"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(_line("u", "a"))
    (folder / "deep" / "b").write_bytes(gzip.compress(_line("v", "b")))
    (folder / "README.md").write_text("# Traces\n\nwords\n")
    (folder / ".hidden").write_text("x")
    result = ingest(home, [str(folder), str(folder / "*.jsonl"), str(folder / "a.jsonl")])
    assert (result.files, result.records, result.new, result.source) == (3, 3, 2, "traces")
    assert [(Path(entry.file).name, entry.reason) for entry in result.quarantined] == [
        ("README.md", "not_json")
    ]


def test_a_missing_path_is_named(home, tmp_path):
    for path in ("nothing.jsonl", "*.nothing"):
        with pytest.raises(IngestError, match="nothing"):
            ingest(home, [str(tmp_path / path)])


def test_an_unknown_format_is_answered_with_the_known_ones(home):
    with pytest.raises(IngestError, match=r"yaml.*openai_chat.*anthropic_messages.*trajectory"):
        ingest(home, [], format="yaml")


def test_empty_input_is_no_error(ingested, home, tmp_path):
    (tmp_path / "empty").mkdir()
    assert ingested(b"")[0].records == 0
    assert ingested(b"\n \n")[0].records == 0
    assert ingest(home, [str(tmp_path / "empty")]).records == 0


def test_stdin_is_read(home, monkeypatch):
    data = gzip.compress(_line("u", "a"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    result = ingest(home, ["-"])
    assert (result.source, result.new, result.bytes) == ("stdin", 1, len(data))


def test_progress_ends_at_the_size_of_the_file(ingested):
    seen = []
    data = b"\n".join(_line(str(i), "a") for i in range(50))
    ingested(data, progress=lambda *each: seen.append(each))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1:] == (len(data), len(data))


def test_many_batches_are_one_lake(ingested, monkeypatch):
    monkeypatch.setattr("tasks.ingest.ingest._BATCH_BYTES", 300)
    result, conversations = ingested(b"\n".join(_line(str(i), "a") for i in range(30)))
    assert result.new == result.conversations == len(conversations) == 30


KEYS = """messages request response role content tool_calls id function name arguments type text tools
system reward verdict session_id metadata input tool_use_id is_error choices message""".split()  # noqa: SIM905
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "messages",
                    "request",
                    "response",
                    "role",
                    "content",
                    "tool_calls",
                    "id",
                    "function",
                    "name",
                    "arguments",
                    "type",
                    "text",
                    "tools",
                    "system",
                    "reward",
                    "verdict",
                    "session_id",
                    "metadata",
                    "input",
                    "tool_use_id",
                    "is_error",
                    "choices",
                    "message",
                ]
            ),
            inner | st.sampled_from(["user", "assistant", "tool", "tool_use", "tool_result", "text"]),
            max_size=5,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=200, deadline=None)
@given(
    record=st.fixed_dictionaries(
        {"messages": st.lists(JSON, max_size=4)},
        optional={
            "response": JSON,
            "tools": JSON,
            "reward": JSON,
            "verdict": JSON,
            "system": JSON,
            "session_id": JSON,
        },
    )
)
def test_no_record_whatever_is_in_it_costs_more_than_itself(record, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "log.jsonl"
    path.write_bytes(_line("u", "a") + b"\n" + json.dumps(record).encode() + b"\n")
    result = ingest(Home.open(path.parent / "home"), [str(path)], dry_run=True)
    assert result.records == 2
    assert result.new + len(result.quarantined) >= 2


def _ingest_process(home, path):
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from storage.home import Home
        from tasks.ingest import ingest
        ingest.ingest.__globals__["_BATCH_BYTES"] = 2000
        ingest.ingest(Home.open(sys.argv[2]), [sys.argv[3]])
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(ROOT), str(home.root), str(path)]
    )


def test_two_processes_ingesting_one_file_at_once_make_it_once(home, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join(_line(f"u{i}", "a" * 100, "v", "b") for i in range(100)))
    both = [_ingest_process(home, path) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert ingest(home, [str(path)]).new == 0
    assert Lake(home).stats()["records"] == 100
    assert len(list(Lake(home).conversations())) == 100


def test_the_prefect_task_does_the_same(home, tmp_path):
    from tasks.ingest.task import ingest_task

    (tmp_path / "log.jsonl").write_bytes(_line("u", "a"))
    assert ingest_task.fn(home.root, [str(tmp_path / "log.jsonl")]).new == 1


def test_deep_nesting_costs_its_line(ingested):
    deep = b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    result, conversations = ingested(deep + b"\n" + _line("u", "a"))
    assert len(conversations) == 1
    assert len(result.quarantined) == 1


def test_the_real_airline_trajectories_are_200_conversations_with_calls_and_rewards(home):
    path = SHARED / "airline_agent_gpt4o.json"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    result = ingest(home, [str(path)])
    assert (result.records, result.new, result.conversations, result.quarantined) == (200, 200, 200, [])
    conversations = list(Lake(home).conversations())
    assert len(conversations) == 200
    assert {whole.format for whole in conversations} == {"trajectory"}
    assert sum(whole.outcome["passed"] for whole in conversations) == 84
    assert sum(len(each["tool_calls"]) for whole in conversations for each in whole.messages) == 1164
    assert ingest(home, [str(path)]).new == 0


def test_the_corpus_of_faults_is_read_whole(home):
    folder = SHARED / "faults" / "openai"
    if not folder.exists():
        pytest.skip(f"{folder} is not here")
    result = ingest(home, [str(folder)])
    assert [(Path(each.file).name, each.reason) for each in result.quarantined] == [
        ("16_sharegpt.jsonl", "unknown_shape")
    ]
    assert result.new == result.records - 1
