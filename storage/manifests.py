"""Versions of the lake: a table's version is the sorted list of its files with digests, named by that
list's digest.

One more manifest, of the table `lake`, names the version of every table; its id is the version of the lake,
and the ref `lake` holds the newest. So all tables move together in one rename, and an old version stays
readable.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from storage.atomic import digest_json, write_bytes, write_json
from storage.errors import NotFound, StorageError
from storage.home import Home

TABLES = ("raw", "nodes", "outcomes", "quarantine")

_HEAD = "lake"


@dataclass(frozen=True, order=True)
class LakeFile:
    """One immutable Parquet file: its path within the lake, its SHA-256, its rows and its size in bytes."""

    path: str
    sha256: str
    rows: int
    bytes: int


def head(home: Home) -> str | None:
    """The newest version of the lake, or None while it is empty."""
    try:
        return (home.refs / _HEAD).read_text().strip() or None
    except FileNotFoundError:
        return None


def files(home: Home, version: str | None) -> dict[str, list[LakeFile]]:
    """The files of every table in a version; none for the version None."""
    if version is None:
        return {table: [] for table in TABLES}
    tables = _read(home, _HEAD, version)["tables"]
    return {
        table: [LakeFile(**entry) for entry in _read(home, table, tables[table])["files"]] for table in TABLES
    }


def commit(home: Home, tables: dict[str, list[LakeFile]], parent: str | None) -> str:
    """Make these files the newest version, and return its id. The caller holds the lake's lock."""
    versions = {table: _write_table(home, table, tables[table]) for table in TABLES}
    version = digest_json(versions)
    path = home.lake / "manifests" / _HEAD / f"{version}.json"
    if not path.exists():
        write_json(path, {"table": _HEAD, "tables": versions, "parent": parent})
    write_bytes(home.refs / _HEAD, f"{version}\n".encode())
    return version


def _write_table(home: Home, table: str, entries: list[LakeFile]) -> str:
    listed = sorted(set(entries))
    version = digest_json([[entry.path, entry.sha256] for entry in listed])
    path = home.lake / "manifests" / table / f"{version}.json"
    if not path.exists():
        write_json(path, {"table": table, "files": [asdict(entry) for entry in listed]})
    return version


def _read(home: Home, table: str, version: str) -> dict[str, Any]:
    path = home.lake / "manifests" / table / f"{version}.json"
    try:
        if not re.fullmatch("[0-9a-f]{64}", version):
            raise FileNotFoundError(version)
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise NotFound(f"the lake has no version {version} of its table {table}.") from error
    except ValueError as error:
        raise StorageError(f"the manifest {path} is damaged: {error}. Restore it from a backup.") from error
    return found
