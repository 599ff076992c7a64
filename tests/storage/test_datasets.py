import pytest

from storage import datasets
from storage.errors import NotFound, StorageError
from storage.home import Home


def _row(split="train", **changes):
    row = {
        "conversation_id": "c",
        "split": split,
        "messages": [
            {
                "role": "assistant",
                "content": "ü",
                "tool_calls": [{"arguments": {"x": 1}}, {"arguments": {"y": []}}],
            }
        ],
        "tools": [],
        "token_ids": [1, 2, 3],
        "mask": [0, 1, 1],
        "weight": 0.5,
    }
    return {**row, **changes}


def test_rows_and_manifest_come_back_as_they_were_written(tmp_path):
    home = Home.open(tmp_path)
    rows = [_row(), _row("heldout", token_ids=[5], mask=[1])]
    id = datasets.write(home, iter(rows), {"kind": "sft", "parents": ["v"]})
    manifest, loaded = datasets.load(home, id)
    assert loaded == rows
    assert manifest["kind"] == "sft"
    assert (manifest["rows"], manifest["tokens"], manifest["trained_tokens"]) == (2, 4, 3)
    assert manifest["splits"] == {"heldout": 1, "train": 1}
    assert manifest["id"] == id
    assert datasets.list_ids(home) == [id]


def test_the_same_rows_and_manifest_are_the_same_version_and_any_change_is_another(tmp_path):
    home = Home.open(tmp_path)
    id = datasets.write(home, [_row()], {})
    assert datasets.write(home, [_row()], {}) == id
    assert datasets.write(home, [_row(weight=1.0)], {}) != id
    assert datasets.write(home, [_row()], {"seed": 1}) != id
    assert len(datasets.list_ids(home)) == 3
    assert not [path for path in home.datasets.iterdir() if path.name.startswith(".")]


def test_a_dataset_without_rows_can_be_written(tmp_path):
    home = Home.open(tmp_path)
    manifest, rows = datasets.load(home, datasets.write(home, [], {}))
    assert rows == []
    assert manifest["rows"] == 0


@pytest.mark.parametrize("changes", [{"mask": [1]}, {"mask": [0, 1, 2]}, {"extra": 1}])
def test_a_row_of_another_shape_is_refused_and_leaves_nothing(tmp_path, changes):
    home = Home.open(tmp_path)
    with pytest.raises(StorageError, match="row 1"):
        datasets.write(home, [_row(), _row(**changes)], {})
    assert list(home.datasets.iterdir()) == []


def test_an_unknown_version_is_named(tmp_path):
    with pytest.raises(NotFound, match="ds-000000000000"):
        datasets.load(Home.open(tmp_path), "ds-000000000000")


def test_rows_that_were_changed_on_disk_are_noticed(tmp_path):
    home = Home.open(tmp_path)
    id = datasets.write(home, [_row()], {})
    with (home.datasets / id / "rows.parquet").open("ab") as file:
        file.write(b"x")
    with pytest.raises(StorageError, match="digest differs"):
        datasets.load(home, id)
