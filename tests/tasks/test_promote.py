"""Promotion: the evidence comes first, can be recomputed, and doing it twice changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage.errors import NotFound
from storage.home import Home
from storage.registry import Registry
from tasks.promote.config import GateConfig
from tasks.promote.errors import PromoteError
from tasks.promote.promote import Promotion, force, promote, read_evidence, recompute

RENDERER = {"name": "chatml", "digest": "d1"}
TASKS = {f"h{i:02}": f"digest{i}" for i in range(24)} | {f"r{i:02}": f"digest{i}" for i in range(12)}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def checkpoint(home: Home, text: str, **manifest: Any) -> str:
    path = home.root / f"{text}.tar.gz"
    path.write_text(text)
    given = {"kind": "rl", "base_model": "smol", "renderer": RENDERER, **manifest}
    return Registry(home).add(path, None, given).id


def rows(heldout: str, regression: str = "0" * 12) -> list[dict[str, Any]]:
    sets = [("heldout", "h", heldout), ("regression", "r", regression)]
    return [
        {
            "task": f"{letter}{i:02}", "kind": "count", "set": name, "sample": 0,
            "outcome": "passed" if v == "1" else "sandbox_failed" if v == "-" else "failed",
            "reward": None if v == "-" else float(v),
        }
        for name, letter, values in sets
        for i, v in enumerate(values)
    ]  # fmt: skip


def evaluations(candidate: str, before: str, after: str, incumbent: str = "base") -> dict[str, Any]:
    return {
        "models": [
            {"name": "prod", "ref": incumbent, "results": rows(before)},
            {"name": "rl", "ref": candidate, "results": rows(after)},
        ],
        "candidate": "rl",
        "incumbent": "prod",
    }


def decide_on(home: Home, candidate: str, before: str, after: str, **more: Any) -> Promotion:
    incumbent = more.pop("incumbent", "base")
    measured = evaluations(candidate, before, after, incumbent)
    return promote(
        home, candidate, measured, evidence=home.root / "evidence.json", task_digests=TASKS, **more
    )


def test_a_better_candidate_becomes_prod(home: Home) -> None:
    candidate = checkpoint(home, "w")
    done = decide_on(home, candidate, "0" * 24, "1" * 20 + "0" * 4)
    assert done.promoted
    assert (done.checkpoint, done.previous) == (candidate, "base")
    assert Registry(home).refs().prod == candidate


def test_a_candidate_that_is_not_better_leaves_prod_alone(home: Home) -> None:
    done = decide_on(home, checkpoint(home, "w"), "01" * 12, "10" * 12)
    assert (done.promoted, done.outcome) == (False, "keep")
    assert Registry(home).refs().prod is None


def test_the_decision_is_recomputed_from_the_file_alone(home: Home) -> None:
    for after in ("1" * 24, "0" * 24, "-" * 10 + "1" * 14):
        done = decide_on(home, checkpoint(home, "w"), "0" * 24, after)
        evidence = read_evidence(done.evidence)
        again = recompute(evidence)
        assert (again.outcome, again.reasons) == (done.outcome, done.reasons)
        assert evidence["decision"] == {"outcome": done.outcome, "reasons": done.reasons}


def test_a_changed_verdict_changes_the_recomputed_decision(home: Home) -> None:
    done = decide_on(home, checkpoint(home, "w"), "0" * 24, "1" * 12 + "0" * 12)
    evidence = read_evidence(done.evidence)
    for row in evidence["candidate"]["verdicts"]:
        row["reward"] = 0.0
    assert recompute(evidence).outcome == "keep"


def test_the_evidence_holds_digests_verdicts_statistics_config_and_versions(home: Home) -> None:
    candidate = checkpoint(home, "w")
    evidence = read_evidence(decide_on(home, candidate, "0" * 24, "1" * 24).evidence)
    assert evidence["tasks"] == TASKS
    assert evidence["candidate"]["checkpoint"] == candidate
    assert len(evidence["candidate"]["sampler_digest"]) == 64
    assert len(evidence["incumbent"]["verdicts"]) == 36
    assert evidence["statistics"]["heldout"]["difference"] == 1.0
    assert evidence["config"] == GateConfig().model_dump(mode="json")
    assert {"python", "scipy", "numpy"} <= evidence["versions"].keys()


def test_promoting_again_gives_the_same_file_and_moves_nothing(home: Home) -> None:
    old, new = checkpoint(home, "old"), checkpoint(home, "new")
    Registry(home).promote(old)
    first = decide_on(home, new, "0" * 24, "1" * 24, incumbent=old)
    written = first.evidence.read_bytes()
    again = decide_on(home, new, "0" * 24, "1" * 24, incumbent=old)
    assert (again.promoted, again.previous) == (True, old) == (first.promoted, first.previous)
    assert again.evidence.read_bytes() == written
    assert Registry(home).refs().previous == old


def test_the_evidence_is_on_disk_before_prod_moves(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: Registry, ref: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Registry, "promote", killed)
    with pytest.raises(KeyboardInterrupt):
        decide_on(home, checkpoint(home, "w"), "0" * 24, "1" * 24)
    assert read_evidence(home.root / "evidence.json")["decision"]["outcome"] == "promote"


def test_a_candidate_measured_against_yesterdays_prod_is_kept_back(home: Home) -> None:
    old, other, new = (checkpoint(home, text) for text in ("old", "other", "new"))
    Registry(home).promote(other)
    done = decide_on(home, new, "0" * 24, "1" * 24, incumbent=old)
    assert done.outcome == "keep"
    assert other in done.reasons[0]
    assert recompute(read_evidence(done.evidence)).outcome == "keep"


def test_another_renderer_than_the_incumbents_is_kept_back(home: Home) -> None:
    old = checkpoint(home, "old", renderer={"name": "chatml", "digest": "d0"})
    Registry(home).promote(old)
    done = decide_on(home, checkpoint(home, "new"), "0" * 24, "1" * 24, incumbent=old)
    assert "renderer changed from chatml d0 to chatml d1" in done.reasons[0]


def test_another_renderer_than_the_one_the_base_was_measured_with_is_kept_back(home: Home) -> None:
    now = {"name": "chatml", "digest": "d9"}
    assert decide_on(home, checkpoint(home, "w"), "0" * 24, "1" * 24, renderer=now).outcome == "keep"


def test_failed_audits_are_part_of_the_evidence(home: Home) -> None:
    done = decide_on(home, checkpoint(home, "w"), "0" * 24, "1" * 24, failed_audits=["no-op scored 1"])
    assert done.outcome == "keep"
    assert recompute(read_evidence(done.evidence)).reasons == done.reasons


def test_a_task_without_a_digest_is_refused(home: Home) -> None:
    candidate = checkpoint(home, "w")
    measured = evaluations(candidate, "0" * 24, "1" * 24)
    with pytest.raises(PromoteError, match="h00"):
        promote(home, candidate, measured, evidence=home.root / "e.json", task_digests={})


def test_evaluations_without_the_incumbent_are_refused(home: Home) -> None:
    candidate = checkpoint(home, "w")
    measured = {**evaluations(candidate, "0", "1"), "incumbent": "sft"}
    with pytest.raises(PromoteError, match="no model 'sft' for the incumbent"):
        promote(home, candidate, measured, evidence=home.root / "e.json", task_digests=TASKS)


def test_an_unknown_candidate_is_not_found(home: Home) -> None:
    with pytest.raises(NotFound):
        decide_on(home, "ckpt-000000000000", "0" * 24, "1" * 24)


def test_a_forced_promotion_needs_a_reason_and_records_it(home: Home) -> None:
    candidate = checkpoint(home, "w")
    with pytest.raises(PromoteError, match="--reason"):
        force(home, candidate, reason=" ", evidence=home.root / "e.json")
    done = force(home, candidate, reason="demo", evidence=home.root / "e.json")
    assert done.promoted and Registry(home).refs().prod == candidate
    evidence = read_evidence(done.evidence)
    assert evidence["forced"] and "demo" in evidence["decision"]["reasons"][0]
    with pytest.raises(PromoteError, match="forced"):
        recompute(evidence)


def test_evidence_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    with pytest.raises(PromoteError, match="cannot read"):
        read_evidence(path)
    path.write_text(json.dumps({"format": 99}))
    with pytest.raises(PromoteError, match="format 99"):
        read_evidence(path)
