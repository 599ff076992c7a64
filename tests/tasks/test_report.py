"""The report: what it shows of a whole night and of a broken one, and that hostile text stays text."""

from __future__ import annotations

import io
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from rich.console import Console

from storage import atomic
from storage.errors import NotFound
from storage.home import Home
from storage.registry import Registry
from storage.runs import Run
from tasks.evaluate.paired import by_task, paired, score
from tasks.promote.promote import promote
from tasks.report import plots, rollouts, wording
from tasks.report.data import load
from tasks.report.html import write_report
from tasks.report.markdown import markdown_tables
from tasks.report.terminal import summary
from tasks.report.view import build

HOSTILE = '<script>document.title="taken"</script><img src=http://example.invalid/x.png onerror=alert(1)>'
KINDS = ("count", "extract", "find", "rename", "replace", "sum")
RENDERER = {"name": "chatml-tools-v1", "digest": "5f0c1b7a9d3e"}


def sample_night(home: Home, *, seed: int = 3) -> Run:
    """A night as the flow leaves it: 48 held-out tasks, 16 of regression, SFT, RL, a gain, hostile text."""
    rng = np.random.default_rng(seed)
    run = Run.create(home, "nightly", {"seed": seed})
    sft, rl = checkpoints(home, run)
    write_metrics(run, rng)
    evaluations = measured(rng, sft, rl)
    atomic.write_json(run.path / "evaluations.json", evaluations)
    write_rollouts(run, evaluations)
    digests = {row["task"]: atomic.digest_json(row["task"]) for row in evaluations["models"][0]["results"]}
    decided = promote(home, rl, evaluations, evidence=run.path / "evidence.json", task_digests=digests)
    write_events(run, sft, rl, decided.promoted)
    run.finish("completed")
    return run


def checkpoints(home: Home, run: Run) -> tuple[str, str]:
    archive = home.root / "weights.tar.gz"
    known: list[str] = []
    for kind, parents, steps in (("sft", ["base"], 40), ("rl", [], 30)):
        archive.write_text(kind)
        manifest = {
            "kind": kind, "parents": parents or [known[-1]], "base_model": "smollm2-135m",
            "steps": steps, "renderer": RENDERER, "run": run.id,
            "dataset": "ds-41fe0c92ab77", "tasks": [f"{i:064x}" for i in range(48)],
        }  # fmt: skip
        known.append(Registry(home).add(archive, None, manifest).id)
    return known[0], known[1]


def write_metrics(run: Run, rng: np.random.Generator) -> None:
    for step in range(40):
        loss = 0.12 + 1.9 * np.exp(-step / 9) + rng.normal(0, 0.05)
        run.metric(
            "sft", step, loss=loss, lr=5e-4, grad_norm=0.4 + 2 * np.exp(-step / 8), tokens=4096, seconds=1.7
        )
    for step in range(30):
        reward = 0.55 + 0.33 * (1 - np.exp(-step / 10)) + rng.normal(0, 0.05)
        run.metric(
            "rl", step, reward=min(1.0, reward), loss=rng.normal(0, 0.01),
            entropy=0.5 * np.exp(-step / 25) + 0.05, grad_norm=0.3 + rng.random() * 0.1,
            mismatch_mean=0.001 + rng.random() * 5e-4, kl_base=0.01 * step,
            mismatch_max=0.02 + rng.random() * 0.02, groups_with_signal=int(rng.integers(3, 8)),
        )  # fmt: skip


def measured(rng: np.random.Generator, sft: str, rl: str) -> dict[str, Any]:
    tasks = [(f"{kind}-{1000 + i}", kind, "heldout") for kind in KINDS for i in range(8)]
    tasks += [(f"sort-{2000 + i}", "sort", "regression") for i in range(16)]
    chances = {"base": (0.04, 0.06), "sft": (0.58, 0.2), "rl": (0.85, 0.25)}
    refs, models = {"base": "base", "sft": sft, "rl": rl}, []
    for name, chance in chances.items():
        rows = [verdict(rng, name, task, chance[task[2] == "regression"]) for task in tasks]
        heldout = [row for row in rows if row["set"] == "heldout"]
        models.append(
            {"name": name, "ref": refs[name], "score": score(by_task(heldout)).to_json(), "results": rows}
        )
    return {"models": models, "candidate": "rl", "incumbent": "base", "paired": compared(models)}


def verdict(
    rng: np.random.Generator, model: str, task: tuple[str, str, str], chance: float
) -> dict[str, Any]:
    passed = bool(rng.random() < chance)
    row = {"task": task[0], "kind": task[1], "set": task[2], "sample": 0}
    if model == "sft" and task[0] == "find-1003":
        return {**row, "outcome": "sandbox_failed", "reward": None}
    return {**row, "outcome": "passed" if passed else "failed", "reward": float(passed)}


def compared(models: list[dict[str, Any]]) -> dict[str, Any]:
    def against(a: int, b: int, which: str) -> dict[str, Any]:
        sides = (by_task(r for r in models[i]["results"] if r["set"] == which) for i in (a, b))
        return paired(*sides, seed=0).to_json()

    return {
        "heldout": against(2, 0, "heldout"),
        "regression": against(2, 0, "regression"),
        "sft_over_base": against(1, 0, "heldout"),
        "rl_over_sft": against(2, 1, "heldout"),
    }


def write_rollouts(run: Run, evaluations: dict[str, Any]) -> None:
    lines = []
    for model in evaluations["models"]:
        for row in model["results"]:
            messages = attempt(row["task"], well=row["outcome"] == "passed")
            kept = {key: row[key] for key in ("task", "sample", "outcome", "reward")}
            lines.append({"model": model["name"], **kept, "messages": messages})
    (run.path / "rollouts.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def attempt(task: str, *, well: bool) -> list[dict[str, Any]]:
    asked = (
        f"Count the lines of /app/{task}/notes.txt that mention rain. Write the number to /app/answer.txt."
    )
    start = [{"role": "system", "content": "You have a shell."}, {"role": "user", "content": asked}]
    if not well:
        return [
            *start,
            {"role": "assistant", "content": f"Sure! There are 12 lines. {HOSTILE}", "tool_calls": []},
        ]
    return [
        *start,
        call("ls /app && head -3 /app/*/notes.txt"),
        {"role": "tool", "content": "answer.txt.example\nnotes.txt\nrain at dawn\nsun\x1b[31m\u202erain\n"},
        call("grep -c rain /app/*/notes.txt > /app/answer.txt && cat /app/answer.txt"),
        {"role": "tool", "content": "17\n"},
        {
            "role": "assistant",
            "content": "17 lines mention rain; the number is in /app/answer.txt.",
            "tool_calls": [],
        },
    ]


def call(command: str) -> dict[str, Any]:
    one = {"id": "c1", "name": "bash", "arguments": {"command": command}, "arguments_state": "ok"}
    return {"role": "assistant", "content": "", "tool_calls": [one]}


def write_events(run: Run, sft: str, rl: str, promoted: bool) -> None:
    stages: list[tuple[str, float, dict[str, Any]]] = [
        ("ingest", 1.4, {"records": 214, "conversations": 208, "quarantined": 2, "lake": "9c2e41aa07d1"}),
        ("convert", 2.1, {"dataset": "ds-41fe0c92ab77", "rows": 162, "trained_tokens": 31_502}),
        ("sft", 141.0, {"checkpoint": sft}),
        ("rl", 302.5, {"checkpoint": rl}),
        ("evaluate", 188.2, {"tasks": 64, "models": 3}),
        ("promote", 0.3, {"promoted": promoted}),
    ]
    for name, seconds, output in stages:
        run.event("stage", stage=name, state="running")
        run.event(
            "stage", stage=name, state="completed", seconds=seconds, reused=name == "ingest", output=output
        )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home.open(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def night(home: Home) -> Run:
    return sample_night(home)


@pytest.fixture(scope="module")
def page(home: Home, night: Run) -> str:
    return write_report(home, night.id).read_text()


class Links(HTMLParser):
    """Every tag, and every attribute that makes a browser fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.fetched: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.fetched += [
            value
            for name, value in attrs
            if name in ("src", "href", "xlink:href", "srcset", "action") and value
        ]


def read(page: str) -> Links:
    links = Links()
    links.feed(page)
    return links


def rendered(home: Home, run: Run) -> str:
    console = Console(file=io.StringIO(), width=110)
    console.print(summary(home, run.id))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_page_says_the_decision_the_scores_and_what_each_stage_added(page: str) -> None:
    assert "Promoted: the candidate now serves as prod." in page
    assert re.search(r"SFT added \+\d+ points", page)
    assert re.search(r"RL added \+\d+ points", page)
    assert "95% interval" in page


def test_the_page_asks_nothing_of_the_network_and_runs_no_script(page: str) -> None:
    links = read(page)
    assert not {"script", "img", "iframe", "object", "embed"} & links.tags
    assert all(target.startswith(("#", "data:,")) for target in links.fetched)
    assert "default-src 'none'" in page
    assert not re.search(r"@import|url\((?!#)", page)


def test_hostile_text_of_a_rollout_is_shown_as_text(page: str) -> None:
    assert "&lt;script&gt;document.title=" in page
    assert "<script" not in page
    assert "\x1b" not in page and "\u202e" not in page
    assert "⟨U+202E⟩" in page and "⟨U+001B⟩" in page


def test_no_two_elements_of_the_page_share_an_id(page: str) -> None:
    ids = read(page).ids
    assert len(ids) == len(set(ids))


def test_the_curves_are_drawn_inline_named_and_in_the_pages_colours(page: str) -> None:
    assert page.count('<svg role="img" aria-label="') == 10
    assert "var(--rl)" in page and "#010206" not in page


def test_every_task_of_both_sets_is_in_the_paired_tables(page: str) -> None:
    for kind in KINDS:
        assert f"{kind}-1007" in page
    assert "sort-2015" in page


def test_a_sample_without_a_verdict_is_never_shown_as_failed(home: Home, tmp_path: Path) -> None:
    run = Run.create(home, "nightly", {})
    row = {
        "task": "t",
        "kind": "k",
        "set": "heldout",
        "sample": 0,
        "outcome": "sandbox_failed",
        "reward": None,
    }
    models = [{"name": name, "ref": "base", "results": [row]} for name in ("base", "rl")]
    atomic.write_json(
        run.path / "evaluations.json", {"models": models, "candidate": "rl", "incumbent": "base"}
    )
    page = write_report(home, run.id).read_text()
    assert 'title="no verdict"' in page
    assert 'title="failed"' not in page
    assert "not compared on the same tasks" in page


def test_the_page_is_the_same_when_written_again(home: Home, night: Run, page: str) -> None:
    assert write_report(home, night.id).read_text() == page


def test_a_night_that_died_early_still_has_a_report_that_says_what_is_missing(home: Home) -> None:
    run = Run.create(home, "nightly", {})
    run.event("stage", stage="ingest", state="failed", seconds=0.5)
    run.finish("failed", error="no space left on device")
    page = write_report(home, run.id).read_text()
    assert "No decision about promotion: the night is failed." in page
    assert "no space left on device" in page
    for name in ("evaluations.json", "evidence.json", "metrics.jsonl", "rollouts.jsonl"):
        assert name in page
    assert "The page is not written yet" not in rendered(home, run)


def test_what_the_run_did_comes_before_what_the_gate_said(home: Home, night: Run) -> None:
    later = Run.create(home, "nightly", {})
    atomic.write_json(later.path / "evidence.json", orjson.loads((night.path / "evidence.json").read_bytes()))
    later.finish("completed", promotion={"outcome": "keep", "reasons": ["prod was moved since"]})
    verdict = build(load(home, later.id)).verdict
    assert (verdict.tone, verdict.reasons) == ("kept", ["prod was moved since"])


def test_a_skipped_stage_says_why(home: Home) -> None:
    run = Run.create(home, "nightly", {})
    run.event(
        "stage", stage="evaluate", state="skipped", seconds=0.0, reused=False, note="there are no tasks"
    )
    assert "there are no tasks" in write_report(home, run.id).read_text()


def test_a_long_list_of_digests_is_counted_and_named_by_one(page: str) -> None:
    assert "48 (digest of the list " in page
    assert "0" * 63 + "7" not in page


def test_a_file_that_cannot_be_read_is_named(home: Home) -> None:
    run = Run.create(home, "nightly", {})
    (run.path / "evaluations.json").write_text("{")
    assert "evaluations.json cannot be read" in write_report(home, run.id).read_text()


def test_an_unknown_run_is_not_found(home: Home) -> None:
    with pytest.raises(NotFound):
        write_report(home, "19990101-000000-0000")


def test_the_pairs_show_a_change_for_the_better_and_a_loss_if_there_is_one(home: Home, night: Run) -> None:
    shown = rollouts.pairs(load(home, night.id))
    assert 1 <= len(shown) <= 4
    assert shown[0].change == "fixed"
    assert [turn.what for turn in shown[0].after.turns] == ["command", "output", "command", "output", "said"]


def test_a_call_that_could_not_be_parsed_is_shown_as_it_came() -> None:
    message = {
        "role": "assistant",
        "tool_calls": [{"name": "bash", "arguments": None, "arguments_raw": '{"comm'}],
    }
    assert [turn.text for turn in rollouts._turns(message)] == ['bash {"comm']


def test_the_ladder_goes_from_base_over_sft_to_rl(home: Home, night: Run) -> None:
    ladder = build(load(home, night.id)).ladder
    assert [(step.name, step.added_by) for step in ladder] == [("base", None), ("sft", "SFT"), ("rl", "RL")]


def test_stages_keep_their_order_their_last_state_and_their_share(home: Home, night: Run) -> None:
    stages = build(load(home, night.id)).stages
    assert [stage.name for stage in stages] == ["ingest", "convert", "sft", "rl", "evaluate", "promote"]
    assert all(stage.state == "completed" for stage in stages)
    assert stages[0].reused
    assert sum(stage.share for stage in stages) == pytest.approx(1.0)


def test_a_metric_that_was_never_measured_has_no_curve() -> None:
    metrics = [{"stage": "sft", "step": 1, "loss": 2.0}, {"stage": "sft", "step": 2, "loss": None}]
    (curve,) = plots.main_curves(metrics)
    assert curve.change == "2"
    assert plots.small_curves(metrics) == []


def test_the_terminal_shows_the_same_in_one_screen(home: Home, night: Run, page: str) -> None:
    text = rendered(home, night)
    assert "Promoted" in text and "After RL" in text and "evaluate" in text
    assert "report.html" in text.replace("\n", "")
    assert len(text.splitlines()) <= 30


def test_the_artifacts_hold_the_tables_and_no_markup_of_others(home: Home, night: Run) -> None:
    found = markdown_tables(home, night.id)
    assert found.summary.startswith("# Promoted")
    assert "| After RL |" in found.summary
    assert len(found.paired) == 64
    assert {"task", "kind", "Base model", "After RL", "difference"} <= found.paired[0].keys()


def test_foreign_names_cannot_break_out_of_a_markdown_table(home: Home) -> None:
    run = Run.create(home, "nightly", {})
    run.event("stage", stage="a|b <script>[x](http://example.invalid)\n# big", state="completed", seconds=1.0)
    text = markdown_tables(home, run.id).summary
    assert r"a\|b &lt;script&gt;\[x\]\(http" in text
    assert "\n# big" not in text


def test_the_report_task_leaves_its_page_and_both_artifacts(
    home: Home, night: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.report import task

    made: dict[str, Any] = {}
    for kind in ("markdown", "table"):
        name = f"create_{kind}_artifact"
        monkeypatch.setattr(task, name, lambda content, key, description: made.update({key: content}))
    assert task.report_task.fn(home, night.id) == night.path / "report.html"
    assert made["night"].startswith("# Promoted") and len(made["paired"]) == 64


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "–"), (0.31, "0.3 s"), (59.6, "1 min 00 s"), (3725, "1 h 02 min")]
)
def test_a_duration_is_said_as_a_person_would(seconds: float | None, words: str) -> None:
    assert wording.duration(seconds) == words


def test_long_text_is_cut_and_says_how_much() -> None:
    assert wording.visible("x" * 1500, 10) == "x" * 10 + "\n… 1,490 more characters"


@pytest.mark.browser
def test_a_browser_shows_the_page_without_an_error_or_a_request(
    home: Home, night: Run, page: str, browser: str, tmp_path: Path
) -> None:
    netlog = tmp_path / "net.json"
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--disable-component-update", "--no-first-run", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path}/profile",
            f"--log-net-log={netlog}", "--dump-dom", (night.path / "report.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    assert "<title>taken</title>" not in done.stdout
    assert "Promoted: the candidate now serves as prod." in done.stdout
    requested = set(re.findall(r'"url":"(https?://[^"]+)"', netlog.read_text()))
    assert not any("example.invalid" in url for url in requested)
