"""Run directories: what a run was asked, what happened in it, and what was measured.

`runs/<id>/manifest.json` says what it is and how it ended; `events.jsonl` and `metrics.jsonl` grow by whole
lines while it goes on, so that a killed run still tells all but its last moment. What the events mean is left
to the writers.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from storage import atomic
from storage.errors import NotFound, StorageError
from storage.home import Home

_RUN_ID = re.compile(r"^\d{8}-\d{6}-[0-9a-f]{4}$")


@dataclass(frozen=True)
class Run:
    """One run's directory."""

    home: Home
    id: str

    @classmethod
    def create(cls, home: Home, kind: str, config: Mapping[str, Any]) -> Run:
        """A new run in state "running". `config` is what would start the same run again (JSON values)."""
        now = datetime.now(UTC)
        run = cls(home, f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}")
        run._make_directory()
        run._write_manifest(
            {"id": run.id, "kind": kind, "state": "running", "created_at": _iso(now), "config": dict(config)}
        )
        return run

    @classmethod
    def open(cls, home: Home, run_id: str) -> Run:
        """The run with this id or unique prefix. Raises NotFound, or StorageError if several begin so."""
        matches = [name for name in _ids(home) if run_id and name.startswith(run_id)]
        if len(matches) > 1:
            raise StorageError(
                f"{run_id!r} is ambiguous: it begins {', '.join(matches)}. Type more of the id."
            )
        if not matches:
            raise NotFound(
                f"no run is called {run_id!r} in {home.runs}. The latest are: {_latest_ids(home)}."
            )
        return cls(home, matches[0])

    @classmethod
    def latest(cls, home: Home, kind: str | None = None) -> Run | None:
        """The newest run of this kind (of any kind for None)."""
        runs = (cls(home, run_id) for run_id in reversed(_ids(home)))
        return next((run for run in runs if kind is None or run.manifest().get("kind") == kind), None)

    @property
    def path(self) -> Path:
        """The run's directory."""
        return self.home.runs / self.id

    def manifest(self) -> dict[str, Any]:
        """What the run is and how it ended. Raises StorageError if the file cannot be read."""
        path = self.path / "manifest.json"
        try:
            return dict(orjson.loads(path.read_bytes()))
        except (OSError, ValueError) as error:
            raise StorageError(
                f"cannot read {path}: {error}. Remove the run's directory, or restore it."
            ) from error

    def event(self, name: str, **fields: Any) -> None:
        """Append one event; `name` says what it is about, for instance "stage"."""
        self._append("events.jsonl", {"time": _iso(datetime.now(UTC)), "name": name, **fields})

    def metric(self, stage: str, step: int, **values: Any) -> None:
        """Append one step's measurements. NaN and infinity are kept as null."""
        record = {"time": _iso(datetime.now(UTC)), "stage": stage, "step": step, **values}
        self._append("metrics.jsonl", record)

    def events(self) -> list[dict[str, Any]]:
        """All events so far, in order."""
        return list(read_lines(self.path / "events.jsonl"))

    def metrics(self, stage: str | None = None) -> list[dict[str, Any]]:
        """All measurements so far, in order, of one stage or of all."""
        records = read_lines(self.path / "metrics.jsonl")
        return [record for record in records if stage is None or record.get("stage") == stage]

    def finish(self, state: str, **fields: Any) -> None:
        """Write how the run ended ("completed", "failed", "interrupted", …) into its manifest."""
        ended = {"state": state, "finished_at": _iso(datetime.now(UTC)), **fields}
        self._write_manifest({**self.manifest(), **ended})

    def _make_directory(self) -> None:
        try:
            self.path.mkdir(parents=True)
        except OSError as error:
            raise StorageError(
                f"cannot make the run directory {self.path}: {error.strerror or error}. "
                "Check free space and permissions."
            ) from error

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        atomic.write_json(self.path / "manifest.json", manifest)

    def _append(self, name: str, record: dict[str, Any]) -> None:
        line = orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
        path = self.path / name
        try:
            with path.open("ab+") as file:
                if _ends_within_a_line(file):
                    line = b"\n" + line
                file.write(line)
        except OSError as error:
            raise StorageError(
                f"cannot append to {path}: {error.strerror or error}. Check free space."
            ) from error


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON Lines file without lines that a kill cut short; nothing if it is not there."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(record, dict):
                yield record


def _ends_within_a_line(file: Any) -> bool:
    """Whether a kill left half a line at the end; the next record must not be joined to it."""
    if file.seek(0, 2) == 0:
        return False
    file.seek(-1, 2)
    return bool(file.read(1) != b"\n")


def _ids(home: Home) -> list[str]:
    """Run ids, the oldest first (they begin with the time)."""
    if not home.runs.is_dir():
        return []
    return sorted(
        p.name for p in home.runs.iterdir() if _RUN_ID.match(p.name) and (p / "manifest.json").is_file()
    )


def _latest_ids(home: Home) -> str:
    return ", ".join(_ids(home)[-3:]) or "none yet"


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
