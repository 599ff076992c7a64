import multiprocessing
import os

import pytest

from storage import atomic
from storage.errors import StorageError


def test_a_written_file_replaces_the_old_one_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "deep" / "file"
    atomic.write_bytes(path, b"one")
    atomic.write_bytes(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file"]


def test_json_is_readable_and_sorted(tmp_path):
    atomic.write_json(tmp_path / "x.json", {"b": "ü", "a": 1})
    assert (tmp_path / "x.json").read_text() == '{\n  "a": 1,\n  "b": "ü"\n}\n'


def test_a_failed_write_names_the_path_and_keeps_the_old_file(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file/below"):
        atomic.write_bytes(tmp_path / "file" / "below", b"x")


def test_a_directory_moves_into_place_once_and_the_first_one_stays(tmp_path):
    for content in ("first", "second"):
        made = tmp_path / content
        made.mkdir()
        (made / "x").write_text(content)
        atomic.replace_dir(made, tmp_path / "final")
    assert (tmp_path / "final" / "x").read_text() == "first"
    assert os.listdir(tmp_path) == ["final"]


def test_the_digest_of_a_tree_sees_names_contents_and_executable_bits_but_not_times(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "d").mkdir(parents=True)
        (tmp_path / name / "d" / "f").write_text("x")
    assert atomic.digest_tree(tmp_path / "a") == atomic.digest_tree(tmp_path / "b")
    os.utime(tmp_path / "b" / "d" / "f", (1, 1))
    assert atomic.digest_tree(tmp_path / "a") == atomic.digest_tree(tmp_path / "b")
    (tmp_path / "b" / "d" / "f").chmod(0o755)
    assert atomic.digest_tree(tmp_path / "a") != atomic.digest_tree(tmp_path / "b")


def test_digests_of_files_bytes_and_json_agree(tmp_path):
    (tmp_path / "f").write_bytes(b'{"a":1}')
    expected = atomic.digest_bytes(b'{"a":1}')
    assert atomic.digest_file(tmp_path / "f") == expected == atomic.digest_json({"a": 1})


def _write_often(path, letter):
    for _ in range(100):
        atomic.write_bytes(path, letter * 10_000)


def test_a_reader_never_sees_a_mixture_of_two_writers(tmp_path):
    path = tmp_path / "f"
    atomic.write_bytes(path, b"a" * 10_000)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_often, args=(path, letter)) for letter in (b"a", b"b")]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        content = path.read_bytes()
        assert len(content) == 10_000
        assert len(set(content)) == 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
