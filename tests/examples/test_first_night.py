"""The example: it can be made again, its splits are apart, its verifiers strict, its traces what they say."""

import gzip
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "first_night"
SPLITS = ("train", "heldout", "regression")
LOGS = ("openai_chat.jsonl.gz", "anthropic_messages.jsonl.gz")


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's scripts are no package: they import one another from their own folder."""
    monkeypatch.syspath_prepend(EXAMPLE)


def task_dirs(split: str) -> list[Path]:
    return sorted((EXAMPLE / "tasks" / split).iterdir())


def kind(task: Path) -> str:
    return str(tomllib.loads((task / "task.toml").read_text())["metadata"]["kind"])


def instruction(task: Path) -> str:
    return (task / "instruction.md").read_text().strip()


def files_of(directory: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}
    caches = ("__pycache__", ".mypy_cache", ".ruff_cache")
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(caches)}


def read_log(name: str) -> list[dict[str, Any]]:
    with gzip.open(EXAMPLE / "traces" / name, "rt") as lines:
        return [json.loads(line) for line in lines]


def user_text(record: dict[str, Any]) -> str:
    return next(str(m["content"]) for m in record["request"]["messages"] if m["role"] == "user")


def logs() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for path in sorted((EXAMPLE / "traces").glob("*.jsonl.gz")):
        yield path.name, read_log(path.name)


def test_generating_again_gives_the_committed_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLE / "generate.py", tmp_path], check=True, capture_output=True)
    assert files_of(tmp_path / "tasks") == files_of(EXAMPLE / "tasks")


def test_each_split_has_as_many_tasks_as_it_should_and_every_kind_in_equal_numbers() -> None:
    from generate import COUNTS

    kinds = {split: [kind(task) for task in task_dirs(split)] for split in SPLITS}
    assert {split: len(found) for split, found in kinds.items()} == COUNTS
    assert len(set(kinds["train"])) >= 6
    assert set(kinds["train"]) == set(kinds["heldout"])
    for found in kinds.values():
        assert len({found.count(each) for each in set(found)}) == 1


def test_the_regression_kind_is_in_no_other_split_and_in_no_trace() -> None:
    from chores import TRAINED_KINDS

    regression = {kind(task) for task in task_dirs("regression")}
    assert not regression & {kind(task) for split in ("train", "heldout") for task in task_dirs(split)}
    for name, records in logs():
        for record in records:
            found = record["session_id"].rsplit("-", 2)[1]
            assert found in TRAINED_KINDS, name


def test_no_word_is_in_two_splits_and_no_word_of_a_text_holds_another() -> None:
    from words import POOLS

    words = [word for pools in POOLS.values() for word in set(pools.all())]
    assert len(words) == len(set(words))
    for pools in POOLS.values():
        assert not [(a, b) for a in pools.words for b in pools.words if a != b and a in b]


def test_no_instruction_and_no_set_of_files_is_in_two_tasks() -> None:
    tasks = [task for split in SPLITS for task in task_dirs(split)]
    assert len({instruction(task) for task in tasks}) == len(tasks)
    contents = {repr(sorted(files_of(task / "environment" / "files").items())) for task in tasks}
    assert len(contents) == len(tasks)


def test_no_trace_holds_a_committed_task() -> None:
    from record import attempt_instances, expert_instances

    tasks = [task for split in SPLITS for task in task_dirs(split)]
    instructions = {instruction(task) for task in tasks}
    contents = [files_of(task / "environment" / "files") for task in tasks]
    for made in (*expert_instances(), *attempt_instances()):
        assert made.chore.instruction not in instructions
        assert {path: text.encode() for path, text in made.chore.files.items()} not in contents
    for name, records in logs():
        assert not {user_text(record) for record in records} & instructions, name


def test_instructions_files_and_commands_are_small() -> None:
    from generate import all_tasks

    for instances in all_tasks().values():
        for instance in instances:
            assert len(instance.chore.instruction.split()) <= 40
            assert len(instance.chore.command) <= 80
            assert all(text.count("\n") <= 20 for text in instance.chore.files.values())
    assert sum(len(content) for content in files_of(EXAMPLE).values()) < 1_500_000


def test_the_experts_sessions_are_half_in_each_format_and_each_ends_in_a_passed_test() -> None:
    sessions = {name: {record["session_id"] for record in read_log(name)} for name in LOGS}
    assert [len(found) for found in sessions.values()] == [104, 104]
    for name in LOGS:
        verdicts = [record["verdict"] for record in read_log(name) if "verdict" in record]
        assert verdicts == [{"kind": "test", "reward": 1.0}] * 104


def test_the_experts_sessions_are_of_agent_sized_variety() -> None:
    from expert import MANNERS, manner
    from record import expert_instances

    found = [manner(instance.seed) for instance in expert_instances()]
    assert set(found) == set(MANNERS)
    assert 0.45 < found.count("direct") / len(found) < 0.65
    said = [record["response"]["choices"][0]["message"] for record in read_log(LOGS[0])]
    assert any(len(message.get("tool_calls", [])) > 1 for message in said)


def test_every_call_resends_the_whole_history() -> None:
    records = read_log(LOGS[0])
    for before, after in pairwise(records):
        if before["session_id"] == after["session_id"]:
            history = [*before["request"]["messages"], before["response"]["choices"][0]["message"]]
            assert after["request"]["messages"][: len(history)] == history


def test_the_agent_is_given_the_experts_system_prompt_and_tool() -> None:
    from expert import SYSTEM_PROMPT

    from sandbox.agents import BASH_TOOL

    config = tomllib.loads((EXAMPLE / "nightschool.toml").read_text())
    assert config["agent"]["system_prompt"] == SYSTEM_PROMPT
    for record in read_log(LOGS[0]):
        assert record["request"]["messages"][0] == {"role": "system", "content": SYSTEM_PROMPT}
        assert record["request"]["tools"] == [BASH_TOOL]


@pytest.mark.docker
def test_oracles_pass_and_doing_nothing_fails() -> None:
    from sandbox.agents import NoopAgent, OracleAgent
    from sandbox.config import SandboxConfig
    from sandbox.harbor import load_task
    from sandbox.trial import TrialJob, run_trials

    first = {kind(task): task for split in SPLITS for task in reversed(task_dirs(split))}
    tasks = [load_task(path) for path in first.values()]
    for agent, outcome in ((OracleAgent(), "passed"), (NoopAgent(), "failed")):
        trials = run_trials([TrialJob(task, agent) for task in tasks], SandboxConfig(concurrency=3))
        assert [(trial.task, trial.outcome, trial.error) for trial in trials] == [
            (task.name, outcome, None) for task in tasks
        ]


# In one container for all 160 tasks: done right; with an untouched file changed; with a link for each result.
GRADE_ALL = """
grade() { rm -f /logs/verifier/reward.txt; bash /tests/test.sh; cat /logs/verifier/reward.txt; }
fresh() { cd /; rm -rf /app /tests; cp -r "$1/environment/files" /app; cp -r "$1/tests" /tests; cd /app; }
mkdir -p /logs/verifier
for task in /tasks/*/*; do
    fresh "$task"; echo "$task noop $(grade)"
    fresh "$task"; bash "$task/solution/solve.sh"; echo "$task oracle $(grade)"
    for path in $(cd /tests/expected && find . -type f); do
        mv "/app/$path" /tmp/real; ln -s /tmp/real "/app/$path"; echo "$task link $(grade)"
        rm "/app/$path"; mv /tmp/real "/app/$path"
        printf '\\n\\n' >> "/app/$path"; echo "$task newline $(grade)"
        echo more >> "/app/$path"; echo "$task more $(grade)"
        break  # one is enough: all results are graded by the same lines
    done
    for path in $(cd /tests && [ -d unchanged ] && cd unchanged && find . -type f); do
        fresh "$task"; bash "$task/solution/solve.sh"
        echo >> "/app/$path"; echo "$task touched $(grade)"; break
    done
    for path in $(cat /tests/gone); do
        fresh "$task"; bash "$task/solution/solve.sh"; touch "/app/$path"; echo "$task kept $(grade)"; break
    done
done
"""


@pytest.mark.docker
@pytest.mark.slow
def test_every_verifier_takes_the_right_result_and_nothing_else() -> None:
    import docker

    client = docker.from_env(timeout=300)
    volumes = {str(EXAMPLE / "tasks"): {"bind": "/tasks", "mode": "ro"}}
    output = client.containers.run(
        "nightschool-base:bookworm",
        ["bash", "-c", GRADE_ALL],
        volumes=volumes,
        network_mode="none",
        remove=True,
        labels={"nightschool": "1", "nightschool.run": "tests"},
    )
    graded = [line.split() for line in output.decode().splitlines()]
    right = {"oracle", "newline"}
    assert [line for line in graded if line[2] != ("1" if line[1] in right else "0")] == []
    assert {line[1] for line in graded} == {"noop", "oracle", "link", "newline", "more", "touched", "kept"}
    assert len({line[0] for line in graded}) == 160


@pytest.mark.docker
@pytest.mark.slow
def test_recording_again_gives_the_committed_records(tmp_path: Path) -> None:
    from record import expert_instances, record_expert

    record_expert(tmp_path, expert_instances(16))
    for name in LOGS:
        with gzip.open(tmp_path / "traces" / name, "rt") as lines:
            again = [json.loads(line) for line in lines]
        assert again == read_log(name)[: len(again)]
