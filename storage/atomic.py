"""Writing so that a reader, or a process killed at any point, never leaves or sees half a file; and
digests.

A file is written under a temporary name beside its final one, flushed to disk, and renamed. Temporary names
begin with a dot and end in `.tmp`, so that no reader takes one for a result. Digests are SHA-256 in
lower-case hex.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from storage.errors import StorageError


def temporary_beside(path: Path) -> Path:
    """A fresh name in the same directory (so that the rename stays within one file system)."""
    return path.parent / f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step.

    Parent directories are made. Raises StorageError naming the path.
    """
    temporary = temporary_beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}. Check free space and permissions."
        ) from error


def write_json(path: Path, obj: Any) -> None:
    """Replace `path` by readable JSON with sorted keys, in one step."""
    text = json.dumps(obj, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def replace_dir(tmp: Path, final: Path) -> None:
    """Move the finished directory `tmp` to `final` in one step.

    For write-once, content-addressed directories: if `final` is already there with something in it, it is
    kept and `tmp` is removed.
    """
    for path in tmp.rglob("*"):
        if path.is_file() and not path.is_symlink():
            _sync_file(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(tmp, final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise StorageError(f"cannot move {tmp} to {final}: {error.strerror or error}") from error
        shutil.rmtree(tmp)
        return
    sync_directory(final.parent)


def sync_directory(path: Path) -> None:
    """Make the renames in a directory survive a power cut."""
    _sync_file(path)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest_bytes(data: bytes) -> str:
    """SHA-256 of the bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of the file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_tree(path: Path) -> str:
    """SHA-256 over the sorted relative names, kinds, executable bits and contents of all files below `path`.

    Times and owners do not count, so a copied tree has the same digest.
    """
    entries: list[list[str | bool]] = []
    for entry in sorted(path.rglob("*")):
        name = entry.relative_to(path).as_posix()
        if entry.is_symlink():
            entries.append([name, "link", os.readlink(entry)])
        elif entry.is_file():
            entries.append([name, bool(entry.stat().st_mode & 0o100), digest_file(entry)])
    return digest_json(entries)


def digest_json(obj: Any) -> str:
    """SHA-256 of the value's canonical JSON: sorted keys, no spaces, UTF-8."""
    return digest_bytes(canonical_json(obj))


def canonical_json(obj: Any) -> bytes:
    """The one spelling of a JSON value that is hashed."""
    return json.dumps(
        obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()
