"""Where a candidate came from: traces, dataset, tasks and checkpoints, each with what identifies it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage import atomic
from tasks.report.data import Record, RunData

MAX_LISTED = 4
SHOWN = ("kind", "base_model", "renderer", "parents", "dataset", "tasks", "steps", "run", "created_at")


@dataclass(frozen=True)
class Node:
    """One thing in the line, with the facts that identify it as (name, value)."""

    what: str
    name: str
    facts: Sequence[tuple[str, str]]


def trace(data: RunData) -> list[Node]:
    """The line, from the source to the evidence; what the run does not know is left out."""
    return [*_stage_outputs(data), *_checkpoints(data), *_evidence(data)]


def _stage_outputs(data: RunData) -> Iterator[Node]:
    outputs: dict[str, Record] = {}
    for event in data.events:
        if event.get("name") == "stage" and event.get("output"):
            outputs[str(event.get("stage"))] = event["output"]
    if ingested := outputs.get("ingest"):
        yield Node("Traces", "in the lake", _facts(ingested))
    if converted := outputs.get("convert"):
        name = str(converted.get("dataset") or converted.get("id") or "dataset")
        yield Node("Dataset", name, _facts(converted))


def _checkpoints(data: RunData) -> Iterator[Node]:
    if data.checkpoints:
        yield Node("Base model", _one_line(data.checkpoints[-1].get("base_model")), [])
    for manifest in reversed(data.checkpoints):
        shown = {key: manifest[key] for key in SHOWN if manifest.get(key)}
        yield Node("Checkpoint", str(manifest.get("id")), _facts(shown))


def _evidence(data: RunData) -> Iterator[Node]:
    if not data.evidence:
        return
    tasks = data.evidence.get("tasks") or {}
    facts = {
        "sha256": data.evidence_digest,
        "pinned_tasks": len(tasks),
        **(data.evidence.get("versions") or {}),
    }
    digest = (data.evidence.get("candidate") or {}).get("sampler_digest")
    yield Node("Evidence", "evidence.json", _facts({**facts, "candidate_weights_sha256": digest}))


def _facts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (key.replace("_", " "), _one_line(value)) for key, value in values.items() if value not in (None, "")
    ]


def _one_line(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_one_line(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple) and len(value) > MAX_LISTED:
        return f"{len(value)} (digest of the list {atomic.digest_json(value)[:12]})"
    if isinstance(value, list | tuple):
        return ", ".join(map(_one_line, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
