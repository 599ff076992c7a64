"""Finished stages, keyed by the digest of their inputs, so that nothing is done twice.

An output holds references (ids, paths, digests) and never the thing itself. Whether what it refers to is
still there is for the caller to check; a record that cannot be read counts as none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage import atomic
from storage.home import Home


def key(inputs: Mapping[str, Any]) -> str:
    """The digest that names a stage's inputs; equal for equal JSON values, whatever the order of the keys."""
    return atomic.digest_json(dict(inputs))


def reuse(home: Home, name: str, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The output recorded for the same stage and inputs, or None if it has to be done."""
    try:
        record = json.loads(_path(home, name, inputs).read_bytes())
    except (OSError, ValueError):
        return None
    output = record.get("output") if isinstance(record, dict) else None
    return output if isinstance(output, dict) else None


def record(home: Home, name: str, inputs: Mapping[str, Any], output: Mapping[str, Any]) -> None:
    """Remember a finished stage; written in one step, the last record of the same inputs wins."""
    recorded_at = datetime.now(UTC).isoformat(timespec="seconds")
    kept = {"name": name, "inputs": dict(inputs), "output": dict(output), "recorded_at": recorded_at}
    atomic.write_json(_path(home, name, inputs), kept)


def _path(home: Home, name: str, inputs: Mapping[str, Any]) -> Path:
    return home.stages / name / f"{key(inputs)}.json"
