"""The checkpoint registry: what a reader may rely on whenever a writer dies, and how the names move."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from storage import atomic
from storage.errors import NotFound, StorageError
from storage.home import Home
from storage.registry import Checkpoint, Registry

DEAD_PID = 2**22 + 1  # above Linux's largest possible process id

MANIFEST = {"kind": "sft", "base_model": "smol", "renderer": {"name": "chatml", "digest": "d1"}}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(Home.open(tmp_path / "home"))


def archive(tmp_path: Path, text: str) -> Path:
    path = tmp_path / f"{text}.tar.gz"
    path.write_text(text)
    return path


def add(registry: Registry, tmp_path: Path, text: str, **manifest: object) -> Checkpoint:
    return registry.add(archive(tmp_path, text), None, {**MANIFEST, **manifest})


def test_a_checkpoint_is_kept_with_its_archives_and_manifest(registry: Registry, tmp_path: Path) -> None:
    kept = registry.add(archive(tmp_path, "w"), archive(tmp_path, "opt"), {**MANIFEST, "steps": 3})
    found = registry.get(kept.id)
    assert found.sampler_tar.read_text() == "w"
    assert found.training_tar is not None and found.training_tar.read_text() == "opt"
    assert found.manifest["steps"] == 3
    assert found.parents == ["base"]
    assert found.tinker_path == f"tinker://{kept.id}/sampler_weights/final"


def test_adding_the_same_weights_again_changes_nothing(registry: Registry, tmp_path: Path) -> None:
    first = add(registry, tmp_path, "w", steps=1)
    again = add(registry, tmp_path, "w", steps=2)
    assert again.id == first.id
    assert again.manifest["steps"] == 1
    assert len(registry.list()) == 1


def test_another_renderer_or_base_model_makes_another_checkpoint(registry: Registry, tmp_path: Path) -> None:
    ids = {
        add(registry, tmp_path, "w").id,
        add(registry, tmp_path, "w", base_model="big").id,
        add(registry, tmp_path, "w", renderer={"name": "chatml", "digest": "d2"}).id,
    }
    assert len(ids) == 3


def test_a_manifest_without_its_renderer_is_refused(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="renderer"):
        registry.add(archive(tmp_path, "w"), None, {"kind": "sft", "base_model": "smol"})


def test_a_checkpoint_without_the_marker_does_not_exist_and_is_replaced(
    registry: Registry, tmp_path: Path
) -> None:
    kept = add(registry, tmp_path, "w")
    (kept.path / "STABLE").unlink()
    (kept.path / "sampler.tar.gz").write_text("half")
    assert registry.list() == []
    with pytest.raises(NotFound):
        registry.get(kept.id)
    assert add(registry, tmp_path, "w").sampler_tar.read_text() == "w"


def test_a_kill_while_writing_leaves_nothing_that_counts(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "replace_dir", killed)
    with pytest.raises(KeyboardInterrupt):
        add(registry, tmp_path, "w")
    assert registry.list() == []
    assert list(registry.home.checkpoints.iterdir()) == []


def test_temporaries_of_dead_writers_are_removed_and_those_of_live_ones_are_kept(registry: Registry) -> None:
    dead = registry.home.checkpoints / f".ckpt-aa.{DEAD_PID}-0011.tmp"
    alive = registry.home.checkpoints / f".ckpt-bb.{os.getpid()}-0011.tmp"
    dead.mkdir(parents=True)
    alive.mkdir()
    assert registry.clean() == [dead]
    assert alive.is_dir()


@pytest.mark.parametrize("name", ["sampler.tar.gz", "manifest.json"])
def test_a_file_that_changed_is_noticed_on_reading(registry: Registry, tmp_path: Path, name: str) -> None:
    kept = add(registry, tmp_path, "weights")
    assert registry.get(kept.id)
    changed = (kept.path / name).read_text()
    (kept.path / name).write_text(changed.replace("w", "v") + " ")
    with pytest.raises(StorageError, match=r"has changed: its digest is"):
        registry.get(kept.id)


def test_a_missing_archive_is_noticed_on_reading(registry: Registry, tmp_path: Path) -> None:
    kept = add(registry, tmp_path, "w")
    kept.sampler_tar.unlink()
    with pytest.raises(StorageError, match=r"sampler.tar.gz is missing"):
        registry.get(kept.id)


def test_an_archive_is_hashed_once_while_it_does_not_change(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = add(registry, tmp_path, "w")
    registry.get(kept.id)

    def fail(path: Path) -> str:
        raise AssertionError(f"read {path} again")

    monkeypatch.setattr(atomic, "digest_file", fail)
    assert registry.get(kept.id).id == kept.id


def test_a_reference_is_an_id_a_unique_prefix_or_a_tinker_path(registry: Registry, tmp_path: Path) -> None:
    kept = add(registry, tmp_path, "w")
    hexadecimal = kept.id.removeprefix("ckpt-")
    paths = [kept.tinker_path, f"tinker://{kept.id}/weights/final"]
    for ref in [kept.id, kept.id[:8], hexadecimal[:5], *paths]:
        assert registry.resolve(ref) == kept.id


def test_an_ambiguous_prefix_names_what_it_could_be(registry: Registry, tmp_path: Path) -> None:
    ids = sorted(add(registry, tmp_path, text).id for text in ("one", "two"))
    with pytest.raises(StorageError, match=f"ambiguous: it begins {ids[0]}, {ids[1]}"):
        registry.resolve("ckpt-")


def test_an_unknown_reference_names_what_is_near(registry: Registry, tmp_path: Path) -> None:
    kept = add(registry, tmp_path, "w")
    wrong = kept.id[:-1] + ("0" if kept.id[-1] != "0" else "1")
    with pytest.raises(NotFound, match=f"Did you mean {kept.id}"):
        registry.resolve(wrong)
    with pytest.raises(NotFound, match="Did you mean prod"):
        registry.resolve("prodd")


@pytest.mark.parametrize("ref", ["", "../../etc", "prod", "tinker://ckpt-0/sampler_weights/final"])
def test_a_reference_into_an_empty_registry_is_not_found(registry: Registry, ref: str) -> None:
    with pytest.raises(NotFound):
        registry.resolve(ref)


def test_promoting_moves_prod_to_previous_and_again_changes_nothing(
    registry: Registry, tmp_path: Path
) -> None:
    old, new = add(registry, tmp_path, "old").id, add(registry, tmp_path, "new").id
    assert registry.promote(old) is None
    assert registry.promote(new) == old
    assert registry.promote(new) == old
    assert (registry.get("prod").id, registry.get("previous").id) == (new, old)


def test_a_kill_between_the_two_moves_is_healed_by_promoting_again(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = add(registry, tmp_path, "old").id, add(registry, tmp_path, "new").id
    registry.promote(old)
    original = Registry.set_ref

    def killed_at_prod(self: Registry, name: str, ref: str | None) -> None:
        if name == "prod":
            raise KeyboardInterrupt
        original(self, name, ref)

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "set_ref", killed_at_prod)
        with pytest.raises(KeyboardInterrupt):
            registry.promote(new)
    assert registry.get("prod").id == old
    assert registry.promote(new) == old
    assert registry.get("previous").id == old


def test_rollback_swaps_prod_and_previous(registry: Registry, tmp_path: Path) -> None:
    old, new = add(registry, tmp_path, "old").id, add(registry, tmp_path, "new").id
    registry.promote(old)
    registry.promote(new)
    refs = registry.rollback()
    assert (refs.prod, refs.previous) == (old, new)
    assert registry.rollback().prod == new


def test_rolling_back_the_first_promotion_serves_the_base_model_again(
    registry: Registry, tmp_path: Path
) -> None:
    only = add(registry, tmp_path, "w").id
    registry.promote(only)
    refs = registry.rollback()
    assert (refs.prod, refs.previous) == (None, only)


def test_rollback_of_nothing_says_so(registry: Registry) -> None:
    with pytest.raises(NotFound, match="nothing to roll back"):
        registry.rollback()


def test_only_the_three_names_can_be_moved(registry: Registry, tmp_path: Path) -> None:
    kept = add(registry, tmp_path, "w")
    registry.set_ref("canary", kept.id[:9])
    assert registry.get("canary").id == kept.id
    with pytest.raises(StorageError, match="not a name"):
        registry.set_ref("../prod", kept.id)


def test_a_damaged_checkpoint_cannot_be_promoted(registry: Registry, tmp_path: Path) -> None:
    kept = add(registry, tmp_path, "w")
    kept.sampler_tar.write_text("another")
    with pytest.raises(StorageError, match="has changed"):
        registry.promote(kept.id)
    assert registry.refs().prod is None


def test_the_marker_lists_the_digest_of_every_other_file(registry: Registry, tmp_path: Path) -> None:
    kept = registry.add(archive(tmp_path, "w"), archive(tmp_path, "opt"), MANIFEST)
    digests = json.loads((kept.path / "STABLE").read_text())["digests"]
    assert set(digests) == {p.name for p in kept.path.iterdir()} - {"STABLE"}
