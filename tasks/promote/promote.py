"""Promotion on evidence: write down everything the decision rests on, then move prod if it says so.

The evidence file is written before any name moves and holds all that `recompute` needs to come to the same
decision elsewhere. Doing it again changes nothing. What was measured, and how, is the evaluation's.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from storage import atomic
from storage.home import Home
from storage.registry import Checkpoint, Registry
from tasks.evaluate.paired import Paired, by_task, paired
from tasks.promote.config import GateConfig
from tasks.promote.errors import PromoteError
from tasks.promote.gate import Decision, Facts, decide

FORMAT = 1
VERSIONED = ("nightschool", "scipy", "numpy")


@dataclass(frozen=True)
class Promotion:
    """What was decided and done. `checkpoint` is the candidate; `previous` what prod was, "base" if unset."""

    promoted: bool
    outcome: str
    checkpoint: str
    previous: str
    evidence: Path
    reasons: list[str]

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line's contract."""
        return {**asdict(self), "evidence": str(self.evidence)}


def promote(
    home: Home,
    candidate: str,
    evaluations: Mapping[str, Any],
    *,
    evidence: Path,
    task_digests: Mapping[str, str],
    config: GateConfig | None = None,
    failed_audits: Iterable[str] = (),
    renderer: Any = None,
) -> Promotion:
    """Decide on `candidate` (a checkpoint reference) by `evaluations` (what evaluations.json holds), and act.

    `evaluations` names under "candidate" and "incumbent" which of its models meet; the incumbent's "ref" is a
    checkpoint or "base". `task_digests` pins every task that was measured. `renderer` is the one in use now,
    for an incumbent that is the base model and has none of its own. Raises PromoteError if the evaluations do
    not fit.
    """
    registry = Registry(home)
    checkpoint = registry.get(candidate)
    incumbent = _incumbent(registry, evaluations)
    document = _document(checkpoint, incumbent, evaluations, task_digests, config or GateConfig())
    overtaken_by = _overtaken_by(registry, checkpoint.id, document["incumbent"]["checkpoint"])
    facts = _facts(checkpoint, incumbent, renderer)
    document["facts"] = asdict(replace(facts, failed_audits=tuple(failed_audits), overtaken_by=overtaken_by))
    document["statistics"] = {name: value.to_json() for name, value in statistics(document).items()}
    decision = recompute(document)
    document["decision"] = asdict(decision)
    atomic.write_json(evidence, document)
    return _act(registry, checkpoint.id, decision, evidence)


def force(home: Home, candidate: str, *, reason: str, evidence: Path) -> Promotion:
    """Make `candidate` prod without the gate, on a person's word, which the evidence file records."""
    if not reason.strip():
        raise PromoteError("a forced promotion needs a reason. Give one with --reason.")
    registry = Registry(home)
    checkpoint = registry.get(candidate)
    decision = Decision("promote", [f"Forced by a person: {reason.strip()}"])
    document = {
        "format": FORMAT,
        "forced": True,
        "candidate": _described(checkpoint),
        "versions": _versions(),
    }
    atomic.write_json(evidence, {**document, "decision": asdict(decision)})
    return _act(registry, checkpoint.id, decision, evidence)


def recompute(evidence: Mapping[str, Any]) -> Decision:
    """The gate's decision from nothing but the evidence: its verdicts, facts and config."""
    if evidence.get("forced"):
        raise PromoteError("this promotion was forced by a person; there is no measurement to decide by.")
    measured = statistics(evidence)
    facts = Facts(**{**evidence["facts"], "failed_audits": tuple(evidence["facts"]["failed_audits"])})
    config = GateConfig.model_validate(evidence["config"])
    return decide(measured["heldout"], measured.get("regression"), config, facts)


def statistics(evidence: Mapping[str, Any]) -> dict[str, Paired]:
    """The paired statistics of each set, from the verdicts in the evidence."""
    seed = GateConfig.model_validate(evidence["config"]).seed
    sides = (evidence["candidate"]["verdicts"], evidence["incumbent"]["verdicts"])
    sets = {"heldout"} | {row["set"] for rows in sides for row in rows}
    return {
        name: paired(*(by_task(r for r in rows if r["set"] == name) for rows in sides), seed=seed)
        for name in sets
    }


def read_evidence(path: Path) -> dict[str, Any]:
    """The evidence file's content. Raises PromoteError if it cannot be read or is of another format."""
    try:
        document = dict(json.loads(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise PromoteError(f"cannot read the evidence {path}: {error}. Evaluate again to make it.") from error
    if document.get("format") != FORMAT:
        raise PromoteError(f"{path} has format {document.get('format')}; this version reads {FORMAT}.")
    return document


def _act(registry: Registry, checkpoint_id: str, decision: Decision, evidence: Path) -> Promotion:
    promoted = decision.outcome == "promote"
    previous = registry.promote(checkpoint_id) if promoted else registry.refs().prod
    return Promotion(
        promoted, decision.outcome, checkpoint_id, previous or "base", evidence, decision.reasons
    )


def _incumbent(registry: Registry, evaluations: Mapping[str, Any]) -> Checkpoint | None:
    """The incumbent's checkpoint; None is the base model."""
    ref = _model(evaluations, "incumbent").get("ref") or "base"
    return None if ref == "base" else registry.get(ref)


def _model(evaluations: Mapping[str, Any], side: str) -> Mapping[str, Any]:
    name = evaluations.get(side)
    found = next((model for model in evaluations.get("models", []) if model.get("name") == name), None)
    if found is None:
        raise PromoteError(f"the evaluations have no model {name!r} for the {side}. Evaluate it first.")
    return dict(found)


def _document(
    checkpoint: Checkpoint,
    incumbent: Checkpoint | None,
    evaluations: Mapping[str, Any],
    task_digests: Mapping[str, str],
    config: GateConfig,
) -> dict[str, Any]:
    verdicts = {side: _verdicts(_model(evaluations, side)) for side in ("candidate", "incumbent")}
    measured = {row["task"] for rows in verdicts.values() for row in rows}
    if unpinned := sorted(measured - task_digests.keys()):
        raise PromoteError(f"these tasks were measured but have no digest: {', '.join(unpinned)}. Pin them.")
    return {
        "format": FORMAT,
        "config": config.model_dump(mode="json"),
        "tasks": {task: task_digests[task] for task in sorted(measured)},
        "candidate": {**_described(checkpoint), "verdicts": verdicts["candidate"]},
        "incumbent": {**_described(incumbent), "verdicts": verdicts["incumbent"]},
        "versions": _versions(),
    }


def _verdicts(model: Mapping[str, Any]) -> list[dict[str, Any]]:
    keys = ("set", "task", "kind", "sample", "outcome", "reward")
    rows = [{key: row.get(key) for key in keys} for row in model.get("results", [])]
    return sorted(rows, key=lambda row: (str(row["set"]), str(row["task"]), row["sample"] or 0))


def _described(checkpoint: Checkpoint | None) -> dict[str, Any]:
    if checkpoint is None:
        return {"checkpoint": "base"}
    digest = atomic.digest_file(checkpoint.sampler_tar)
    return {"checkpoint": checkpoint.id, "sampler_digest": digest, "manifest": checkpoint.manifest}


def _facts(checkpoint: Checkpoint, incumbent: Checkpoint | None, renderer: Any) -> Facts:
    ours = checkpoint.manifest
    # The base model is what the candidate was trained from, rendered as the evaluation renders now.
    theirs = incumbent.manifest if incumbent else {**ours, "renderer": renderer or ours["renderer"]}
    return Facts(
        candidate_base_model=_name(ours["base_model"]),
        incumbent_base_model=_name(theirs["base_model"]),
        candidate_renderer=_name(ours["renderer"]),
        incumbent_renderer=_name(theirs["renderer"]),
    )


def _name(value: Any) -> str:
    """One line for a name, or for a name with its digest."""
    return (
        value
        if isinstance(value, str)
        else " ".join(str(part) for _, part in sorted(dict(value).items(), reverse=True))
    )


def _overtaken_by(registry: Registry, candidate: str, incumbent: str) -> str | None:
    """What prod is now, if that is neither side of the comparison."""
    now = registry.refs().prod or "base"
    return None if now in (incumbent, candidate) else now


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
