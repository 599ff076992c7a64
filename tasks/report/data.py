"""What a run left behind, read once for every form of the report, with a note of what is missing.

Nothing here fails because a night ended early: a file that is not there, or not readable, is named in
`missing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from storage import atomic
from storage.errors import StorageError
from storage.home import Home
from storage.registry import Registry
from storage.runs import Run, read_lines

type Record = dict[str, Any]

MAX_LINEAGE = 50


@dataclass(frozen=True)
class RunData:
    """One run's files. `checkpoints` are the candidate's manifest and its ancestors', the candidate first."""

    manifest: Record
    events: Sequence[Record]
    metrics: Sequence[Record]
    evaluations: Record
    evidence: Record
    evidence_digest: str | None
    rollouts: Sequence[Record]
    checkpoints: Sequence[Record]
    missing: Sequence[str]

    @property
    def config(self) -> Record:
        """What the run was asked."""
        return dict(self.manifest.get("config") or {})


def load(home: Home, run_id: str) -> RunData:
    """Read a run. Raises NotFound if there is no such run."""
    run = Run.open(home, run_id)
    missing: list[str] = []
    evaluations = _json(run.path / "evaluations.json", "The models were not evaluated", missing)
    evidence = _json(run.path / "evidence.json", "No evidence for a promotion was written", missing)
    return RunData(
        manifest=run.manifest(),
        events=_lines(run.path / "events.jsonl", "No stage was recorded", missing),
        metrics=_lines(run.path / "metrics.jsonl", "No training step was recorded", missing),
        evaluations=evaluations,
        evidence=evidence,
        evidence_digest=atomic.digest_file(run.path / "evidence.json") if evidence else None,
        rollouts=_lines(run.path / "rollouts.jsonl", "No rollout was kept to read", missing),
        checkpoints=_lineage(home, _candidate(evaluations, evidence), missing),
        missing=missing,
    )


def _json(path: Path, otherwise: str, missing: list[str]) -> Record:
    try:
        found = orjson.loads(path.read_bytes())
        return dict(found)
    except FileNotFoundError:
        missing.append(f"{otherwise}: there is no {path.name}.")
    except (OSError, ValueError, TypeError):
        missing.append(f"{otherwise}: {path.name} cannot be read.")
    return {}


def _lines(path: Path, otherwise: str, missing: list[str]) -> list[Record]:
    found = list(read_lines(path))
    if not found:
        missing.append(f"{otherwise}: {path.name} is {'empty' if path.is_file() else 'not there'}.")
    return found


def _candidate(evaluations: Record, evidence: Record) -> str | None:
    if ref := (evidence.get("candidate") or {}).get("checkpoint"):
        return str(ref)
    models = {model.get("name"): model for model in evaluations.get("models", [])}
    ref = models.get(evaluations.get("candidate"), {}).get("ref")
    return str(ref) if ref and ref != "base" else None


def _lineage(home: Home, ref: str | None, missing: list[str]) -> list[Record]:
    registry = Registry(home)
    found: dict[str, Record] = {}
    queue = [ref] if ref else []
    while queue and len(found) < MAX_LINEAGE:
        name = queue.pop(0)
        if name == "base" or name in found:
            continue
        try:
            checkpoint = registry.get(name)
        except StorageError as error:
            missing.append(f"The lineage stops at {name}: {error}")
            continue
        found[name] = checkpoint.manifest
        queue += checkpoint.parents
    return list(found.values())
