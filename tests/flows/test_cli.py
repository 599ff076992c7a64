"""The command line as programs rely on it: exit codes, one document, options on either side, quick help."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows import exits
from flows.call import Call
from flows.cli import app
from storage.home import Home
from storage.locks import hold
from storage.registry import Registry

ROOT = Path(__file__).resolve().parents[2]
TRACE = {
    "messages": [{"role": "user", "content": "Count the files."}, {"role": "assistant", "content": "Three."}],
    "reward": 1.0,
}
HEAVY = ["torch", "prefect", "duckdb", "docker", "transformers", "pyarrow", "tinker", "pydantic"]
GROUPS = ["lake", "dataset", "dataset build", "tasks", "train", "checkpoints", "serve"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTSCHOOL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NIGHTSCHOOL_CONFIG", raising=False)
    return Home.open(tmp_path / "home")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(TRACE) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def checkpoint(home: Home, tmp_path: Path) -> str:
    archive = tmp_path / "sampler.tar.gz"
    archive.write_bytes(b"weights")
    return Registry(home).add(archive, None, {"kind": "sft", "base_model": "m", "renderer": "r"}).id


def run(*arguments: str | Path) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return found.exit_code, found.stdout, found.stderr


def document(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """The one JSON document of a command that ends with `code`."""
    exit_code, out, err = run(*arguments, "--json")
    assert exit_code == code, (out, err)
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def subprocess_python(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, **options
    )


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    code = f"import sys, flows.cli; print([name for name in {HEAVY} if name in sys.modules])"

    assert subprocess_python("-c", code).stdout.strip() == "[]"


def test_help_answers_quickly() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = ["-c", "from flows.cli import app; app()", "--help"]
    seconds = []
    for _ in range(4):  # the first compiles what was not compiled yet; a busy machine is no fault of ours
        started = time.perf_counter()
        assert subprocess_python(*command, env=environment).returncode == 0
        seconds.append(time.perf_counter() - started)

    assert min(seconds) < 0.5


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_every_group_explains_itself(group: str) -> None:
    code, out, _ = run(*group.split(), "--help")

    assert code == 0
    assert "--home" in out


def test_no_command_at_all_is_bad_usage_and_shows_help() -> None:
    code, out, _ = run()

    assert code == 2
    assert "nightly" in out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["no-such-command"], 2),
        (["ingest"], 2),
        (["ingest", "/no/such/file"], 2),
        (["lake", "sql", "drop table raw"], 2),
        (["lake", "show", "abc"], 2),
        (["lake", "show", "--no-such-option"], 2),
        (["dataset", "show", "ds-000000000000"], 2),
        (["promote", "ckpt-nope"], 2),
        (["rollback"], 2),
        (["report"], 2),
        (["report", "20200101"], 2),
        (["tasks", "check", "/no/such/folder"], 2),
        (["train", "rl", "--loss", "dpo"], 2),
        (["evaluate", "--agent", "nobody"], 2),
        (["checkpoints", "show", "prod"], 2),
        (["deploy"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_an_error_is_one_document_with_its_exit_code(home: Home, arguments: list[str], code: int) -> None:
    found = document(*arguments, code=code)

    assert found["error"]
    assert found["exit_code"] == code


def test_an_error_for_people_is_a_line_on_stderr_and_no_traceback(home: Home) -> None:
    code, out, err = run("lake", "show", "abc")

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_debug_adds_the_traceback(home: Home) -> None:
    assert "Traceback" in run("lake", "show", "abc", "--debug")[2]


def test_a_typing_error_gets_a_suggestion() -> None:
    assert "Did you mean 'ingest'?" in run("ingst")[2]


def test_a_broken_configuration_is_bad_usage_and_named(home: Home, tmp_path: Path) -> None:
    (tmp_path / "nightschool.toml").write_text("[sft]\nepoch = 1\n", encoding="utf-8")

    assert "did you mean epochs?" in document("doctor", code=2)["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--home", "{}", "--json", "lake", "stats"],
        ["lake", "--home", "{}", "--json", "stats"],
        ["lake", "stats", "--home", "{}", "--json"],
        ["--json", "lake", "--home", "{}", "stats"],
    ],
)
def test_the_common_options_work_on_either_side(tmp_path: Path, arguments: list[str]) -> None:
    place = tmp_path / "elsewhere"
    code, out, _ = run(*(argument.format(place) for argument in arguments))

    assert code == 0
    assert json.loads(out)["records"] == 0
    assert place.is_dir()


def test_the_option_wins_over_the_variable_and_the_right_one_over_the_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTSCHOOL_HOME", str(tmp_path / "variable"))

    run("--home", tmp_path / "left", "lake", "stats", "--home", tmp_path / "right")

    assert [path.name for path in tmp_path.iterdir()] == ["right"]


def test_the_home_of_the_configuration_is_used_where_nothing_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NIGHTSCHOOL_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nightschool.toml").write_text('home = "place"\n', encoding="utf-8")

    document("lake", "stats")

    assert (tmp_path / "place").is_dir()


def test_ingest_counts_and_again_changes_nothing(home: Home, traces: Path) -> None:
    first, again = (
        document("ingest", traces, "--source", "bot"),
        document("ingest", traces, "--source", "bot"),
    )

    assert (first["new"], first["duplicate"], first["conversations"]) == (1, 0, 1)
    assert (again["new"], again["duplicate"]) == (0, 1)
    assert {"source", "files", "bytes", "records", "quarantined", "redacted", "seconds"} <= first.keys()


def test_a_dry_run_previews_and_writes_nothing(home: Home, traces: Path) -> None:
    assert len(document("ingest", traces, "--dry-run")["preview"]) == 1
    assert not home.lake.exists()


def test_the_lake_can_be_looked_into(home: Home, traces: Path) -> None:
    run("ingest", traces)

    [conversation] = document("lake", "show")["conversations"]
    assert conversation["messages"][1]["content"] == "Three."
    assert document("lake", "show", conversation["id"][:6])["conversations"] == [conversation]
    assert document("lake", "sql", "select count(*) as n from conversations") == {
        "columns": ["n"],
        "rows": [[1]],
    }
    assert document("lake", "quarantine") == {"quarantine": []}
    assert "Three." in run("lake", "show", conversation["id"])[1]


def test_values_that_json_does_not_know_still_make_a_strict_document(home: Home) -> None:
    query = "select 'nan'::double as a, date '2026-01-02' as b, 1.5::decimal(4, 2) as c, 'x'::blob as d"

    assert document("lake", "sql", query)["rows"] == [[None, "2026-01-02", "1.50", "x"]]


def test_commands_show_tables_to_people(home: Home, checkpoint: str) -> None:
    for arguments in (
        ["checkpoints", "list"],
        ["status"],
        ["serve", "status"],
        ["dataset", "list"],
        ["lake", "stats"],
    ):
        code, out, _ = run(*arguments)
        assert code == 0
        assert out.strip()


def test_a_forced_promotion_needs_a_reason_and_keeps_it(home: Home, checkpoint: str) -> None:
    assert "--reason" in document("promote", checkpoint, "--force", code=2)["error"]

    found = document("promote", checkpoint[:8], "--force", "--reason", "a person looked at it")

    assert found["promoted"] is True
    assert found["checkpoint"] == checkpoint
    assert "a person looked at it" in Path(found["evidence"]).read_text(encoding="utf-8")
    assert document("serve", "status")["refs"]["prod"] == {
        "checkpoint": checkpoint,
        "path": f"tinker://{checkpoint}/sampler_weights/final",
    }


def test_a_rollback_after_the_first_promotion_serves_the_base_again(home: Home, checkpoint: str) -> None:
    run("promote", checkpoint, "--force", "--reason", "trying")

    assert document("rollback")["checkpoint"] == "base"
    assert Registry(home).refs().prod is None


def test_an_unmeasured_checkpoint_is_not_promoted_and_the_remedy_is_named(
    home: Home, checkpoint: str
) -> None:
    assert (
        f"nightschool evaluate {checkpoint} --against base"
        in document("promote", checkpoint, code=2)["error"]
    )


def test_the_lineage_ends_at_the_base_model(home: Home, checkpoint: str) -> None:
    [step] = document("checkpoints", "lineage", checkpoint)["lineage"]

    assert (step["checkpoint"], step["parents"]) == (checkpoint, ["base"])


def test_a_second_night_is_refused_and_the_holder_named(home: Home) -> None:
    with hold(home.locks / "night.lock", "another run (nightly)"):
        found = document("nightly", code=3)

    assert f"another run (nightly) (pid {os.getpid()}" in found["error"]


def test_a_dataset_that_is_not_there_stops_training_before_anything_starts(
    home: Home, tmp_path: Path
) -> None:
    (tmp_path / "nightschool.toml").write_text('[model]\npath = "none"\n', encoding="utf-8")

    found = document("train", "sft", "--dataset", "ds-000000000000", code=1)

    assert "no model directory" in found["error"]


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(_call: Call) -> Home:
        raise error

    monkeypatch.setattr(Call, "home", property(fail))


def test_a_full_disk_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, OSError(errno.ENOSPC, "No space left on device", "/srv/var"))

    assert "the disk is full" in document("lake", "stats", code=1)["error"]


def test_a_full_disk_is_recognised_behind_another_error() -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as cause:
            raise RuntimeError("could not write") from cause
    except RuntimeError as error:
        classified = exits.classify(error)

    assert classified is not None
    assert classified[0] == 1
    assert "disk is full" in classified[1]


def test_an_interruption_is_130_with_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyboardInterrupt())

    assert "interrupted" in document("lake", "stats", code=130)["error"]


def test_a_bug_is_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ZeroDivisionError("by nought"))

    assert "this is a bug: ZeroDivisionError" in document("lake", "stats", code=1)["error"]


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    assert (
        str(tmp_path / "file")
        in document("lake", "stats", "--home", tmp_path / "file" / "home", code=1)["error"]
    )
