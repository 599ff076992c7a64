"""The checkpoint registry: immutable trained weights, and the names that point at them.

A checkpoint is a directory `checkpoints/<id>/` with the sampler archive, perhaps the training archive, and a
manifest; its id is the digest of what it is, so that adding it twice changes nothing. The marker STABLE holds
the digests of the other files and is written last: a directory without it does not exist for any reader. The
names prod, canary and previous are small files replaced in one rename. What "base" means is left to the
callers.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from storage import atomic, locks
from storage.errors import NotFound, StorageError
from storage.home import Home

REFS = ("prod", "canary", "previous")
MOVE_WAIT_S = 10.0
REQUIRED = ("kind", "base_model", "renderer")
SAMPLER, TRAINING, MANIFEST, STABLE = "sampler.tar.gz", "training.tar.gz", "manifest.json", "STABLE"
_TINKER_PATH = re.compile(r"^tinker://(?P<id>[^/]+)/(?:sampler_weights|weights)/[^/]+$")
_TEMPORARY = re.compile(r"^\..+\.(?P<pid>\d+)-[0-9a-f]+\.tmp$")


@dataclass(frozen=True)
class Checkpoint:
    """One immutable checkpoint. `training_tar` is None where only the sampler's weights were kept."""

    id: str
    path: Path
    manifest: dict[str, Any]

    @property
    def sampler_tar(self) -> Path:
        """The archive that a sampler loads."""
        return self.path / SAMPLER

    @property
    def training_tar(self) -> Path | None:
        """The archive that training resumes from: weights and optimizer state."""
        path = self.path / TRAINING
        return path if path.is_file() else None

    @property
    def tinker_path(self) -> str:
        """The name under which a Tinker endpoint serves it."""
        return f"tinker://{self.id}/sampler_weights/final"

    @property
    def parents(self) -> list[str]:
        """What it was trained from: checkpoint ids, or "base"."""
        return list(self.manifest.get("parents", []))


@dataclass(frozen=True)
class Refs:
    """Where the names point; None is unset, and an unset prod means the base model."""

    prod: str | None
    canary: str | None
    previous: str | None


class Registry:
    """The checkpoints of one home. Readers need no lock; moving prod takes one for the moment of the move."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def add(self, sampler_tar: Path, training_tar: Path | None, manifest: Mapping[str, Any]) -> Checkpoint:
        """Keep copies of the archives as one checkpoint; equal weights, model and renderer give the same id.

        `manifest` needs kind ("sft" or "rl"), base_model and renderer; parents, run, dataset, tasks, steps
        and metrics are kept as given. A checkpoint that is already there stays as it is, its manifest
        included.
        """
        missing = [key for key in REQUIRED if not manifest.get(key)]
        if missing:
            raise StorageError(
                f"a checkpoint's manifest needs {', '.join(missing)}. Give them and add again."
            )
        self.clean()
        sampler_digest = atomic.digest_file(sampler_tar)
        checkpoint_id = _identity(sampler_digest, manifest)
        final = self.home.checkpoints / checkpoint_id
        if not (final / STABLE).is_file():
            self._write(final, sampler_tar, training_tar, {**manifest, "id": checkpoint_id})
        return self._read(checkpoint_id)

    def _write(
        self, final: Path, sampler_tar: Path, training_tar: Path | None, manifest: dict[str, Any]
    ) -> None:
        temporary = atomic.temporary_beside(final)
        temporary.mkdir(parents=True)
        try:
            shutil.copyfile(sampler_tar, temporary / SAMPLER)
            if training_tar is not None:
                shutil.copyfile(training_tar, temporary / TRAINING)
            manifest.setdefault("created_at", datetime.now(UTC).isoformat(timespec="seconds"))
            manifest.setdefault("parents", ["base"])
            atomic.write_json(temporary / MANIFEST, manifest)
            digests = {file.name: atomic.digest_file(file) for file in sorted(temporary.iterdir())}
            atomic.write_json(temporary / STABLE, {"digests": digests})
            atomic.replace_dir(temporary, final)
        except OSError as error:
            raise StorageError(
                f"cannot write the checkpoint {final}: {error.strerror or error}. "
                "Check free space and permissions."
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def get(self, ref: str) -> Checkpoint:
        """The checkpoint that `ref` names: an id, a unique prefix, one of REFS, or a tinker:// path.

        Its files are checked against their digests first. Raises NotFound, or StorageError if it is damaged.
        """
        checkpoint = self._read(self.resolve(ref))
        for name, expected in _digests(checkpoint.path).items():
            _check(checkpoint.path / name, expected)
        return checkpoint

    def resolve(self, ref: str) -> str:
        """The id that `ref` names. Raises NotFound with what was near, or StorageError if it is ambiguous."""
        if ref in REFS:
            target = getattr(self.refs(), ref)
            if target is None:
                raise NotFound(f"{ref} is not set: no checkpoint carries this name yet. Promote one first.")
            ref = str(target)
        elif match := _TINKER_PATH.match(ref):
            ref = match["id"]
        ids = _ids(self.home)
        if ref in ids:
            return ref
        matches = [name for name in ids if ref and name.startswith((ref, f"ckpt-{ref}"))]
        if len(matches) == 1:
            return matches[0]
        raise _unresolved(ref, matches, ids)

    def list(self) -> Sequence[Checkpoint]:
        """Every finished checkpoint, the oldest first. Archives are not read."""
        return sorted(
            map(self._read, _ids(self.home)), key=lambda c: (str(c.manifest.get("created_at")), c.id)
        )

    def refs(self) -> Refs:
        """Where prod, canary and previous point now."""
        return Refs(*(self._read_ref(name) for name in REFS))

    def set_ref(self, name: str, ref: str | None) -> None:
        """Point a name at a checkpoint in one rename; None unsets it."""
        if name not in REFS:
            raise StorageError(f"{name!r} is not a name that can be moved; use one of {', '.join(REFS)}.")
        path = self.home.refs / name
        if ref is None:
            path.unlink(missing_ok=True)
        else:
            atomic.write_bytes(path, f"{self.get(ref).id}\n".encode())

    def promote(self, ref: str) -> str | None:
        """Make a checkpoint prod, and what was prod previous; returns the latter. Again is no change.

        `previous` moves first: after a kill between the two, prod still answers and promoting again completes
        it.
        """
        checkpoint_id = self.get(ref).id
        with self._moving("promote"):
            refs = self.refs()
            if refs.prod == checkpoint_id:
                return refs.previous
            self.set_ref("previous", refs.prod)
            self.set_ref("prod", checkpoint_id)
            return refs.prod

    def rollback(self) -> Refs:
        """Swap prod and previous. After a first promotion this unsets prod: the base model serves again.

        prod moves first: it is what the caller is in a hurry about.
        """
        with self._moving("rollback"):
            refs = self.refs()
            if refs.prod is None and refs.previous is None:
                raise NotFound(
                    "nothing to roll back: neither prod nor previous is set. Promote a checkpoint first."
                )
            self.set_ref("prod", refs.previous)
            self.set_ref("previous", refs.prod)
            return self.refs()

    def clean(self) -> Sequence[Path]:
        """Remove what a killed writer left: temporaries of dead processes, and directories without STABLE."""
        removed = [path for path in _entries(self.home) if _is_left_over(path)]
        for path in removed:
            shutil.rmtree(path, ignore_errors=True)
        return removed

    def _moving(self, what: str) -> AbstractContextManager[object]:
        return locks.hold(self.home.locks / "refs", what, wait_s=MOVE_WAIT_S)

    def _read_ref(self, name: str) -> str | None:
        try:
            return (self.home.refs / name).read_text().strip() or None
        except FileNotFoundError:
            return None

    def _read(self, checkpoint_id: str) -> Checkpoint:
        path = self.home.checkpoints / checkpoint_id
        return Checkpoint(checkpoint_id, path, _read_json(path / MANIFEST))


def _entries(home: Home) -> list[Path]:
    return sorted(home.checkpoints.iterdir()) if home.checkpoints.is_dir() else []


def _ids(home: Home) -> list[str]:
    return [p.name for p in _entries(home) if p.name.startswith("ckpt-") and (p / STABLE).is_file()]


def _identity(sampler_digest: str, manifest: Mapping[str, Any]) -> str:
    what = {"sampler": sampler_digest, "base_model": manifest["base_model"], "renderer": manifest["renderer"]}
    return f"ckpt-{atomic.digest_json(what)[:12]}"


def _is_left_over(path: Path) -> bool:
    import psutil

    if match := _TEMPORARY.match(path.name):
        return not psutil.pid_exists(int(match["pid"]))
    return path.name.startswith("ckpt-") and path.is_dir() and not (path / STABLE).is_file()


def _unresolved(ref: str, matches: list[str], ids: list[str]) -> StorageError:
    if matches:
        return StorageError(f"{ref!r} is ambiguous: it begins {', '.join(matches)}. Type more of the id.")
    near = difflib.get_close_matches(ref, [*REFS, *ids], n=3, cutoff=0.5) or ids[-3:]
    hint = f"Did you mean {', '.join(near)}?" if near else "The registry is empty: train a checkpoint first."
    return NotFound(f"no checkpoint is called {ref!r}. {hint}")


def _digests(path: Path) -> dict[str, str]:
    return dict(_read_json(path / STABLE)["digests"])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise StorageError(
            f"cannot read {path}: {error}. The checkpoint is damaged; restore or remove it."
        ) from error


def _check(path: Path, expected: str) -> None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise StorageError(f"{path} is missing. The checkpoint is damaged; restore or remove it.") from None
    actual = _digest(path, stat.st_mtime_ns, stat.st_size)
    if actual != expected:
        raise StorageError(
            f"{path} has changed: its digest is {actual[:12]}…, it was stored as {expected[:12]}…. "
            "Restore the file, or remove the checkpoint and train it again."
        )


@lru_cache(maxsize=1024)
def _digest(path: Path, mtime_ns: int, size: int) -> str:
    """The file's digest, computed once for as long as its time and size stay the same."""
    return atomic.digest_file(path)
