"""Reading Harbor tasks; no engine needed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import TaskError
from sandbox.harbor import Task, load_task, load_tasks, resolve_env, unsupported

MakeTask = Callable[..., Task]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", "1.3", "1.4"])
def test_every_schema_version_of_harbor_0_25_is_read(make_task: MakeTask, version: str) -> None:
    task = make_task()
    (task.path / "task.toml").write_text(f'schema_version = "{version}"\n')
    assert load_task(task.path).config.schema_version == version


def test_a_legacy_file_with_deprecated_keys_means_what_it_meant(make_task: MakeTask) -> None:
    task = make_task()
    (task.path / "task.toml").write_text(
        'version = "1.0"\n[environment]\nmemory = "2G"\nstorage = "512M"\nallow_internet = false\n'
    )
    environment = load_task(task.path).config.environment
    assert (environment.memory_mb, environment.storage_mb) == (2048, 512)
    assert environment.network_mode == "no-network"


def test_unknown_keys_are_ignored(make_task: MakeTask) -> None:
    task = make_task(toml='future = 1\n[agent]\ntimeout_sec = 7\nmood = "good"\n[metadata]\nanything = [1]\n')
    assert task.config.agent.timeout_sec == 7
    assert task.config.metadata == {"anything": [1]}


def test_artifacts_are_paths_or_tables(make_task: MakeTask) -> None:
    task = make_task(toml='artifacts = ["/a", {source = "/b", destination = "/c"}]\n')
    assert [(item.source, item.destination) for item in task.config.artifacts] == [("/a", None), ("/b", "/c")]


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ('[agent]\ntimeout_sec = "soon"\n', "agent.timeout_sec"),
        ('[environment]\nmemory = "lots"\n', "environment"),
        ('[environment]\nnetwork_mode = "carrier pigeon"\n', "environment.network_mode"),
        ('schema_version = "9"\n', "schema_version"),
        ("[agent\n", "not TOML"),
    ],
)
def test_an_unreadable_task_names_the_file_and_the_field(make_task: MakeTask, toml: str, named: str) -> None:
    task = make_task()
    (task.path / "task.toml").write_text(toml)
    with pytest.raises(TaskError, match=named) as raised:
        load_task(task.path)
    assert "task.toml" in str(raised.value)


def test_a_task_without_an_instruction_is_refused(make_task: MakeTask) -> None:
    task = make_task()
    (task.path / "instruction.md").unlink()
    with pytest.raises(TaskError, match=r"instruction\.md"):
        load_task(task.path)


def test_the_digest_follows_content_names_and_executable_bits_only(make_task: MakeTask) -> None:
    task = make_task()
    script = task.path / "tests" / "test.sh"
    text = script.read_text()
    script.write_text(text)
    assert load_task(task.path).digest == task.digest
    script.chmod(0o755)
    executable = load_task(task.path).digest
    script.rename(script.with_name("other.sh"))
    renamed = load_task(task.path).digest
    assert len({task.digest, executable, renamed}) == 3


def test_tasks_are_found_at_any_depth_in_path_order(make_task: MakeTask, tmp_path: Path) -> None:
    make_task("b/second")
    make_task("a", toml='[task]\nname = "org/first"\n')
    assert [task.name for task in load_tasks(tmp_path)] == ["org/first", "second"]


def test_a_folder_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"no task\.toml"):
        load_tasks(tmp_path)


def test_env_templates_take_their_default_and_never_this_machines_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", "mine")
    assert resolve_env({"A": "x-${SECRET:-none}"}, Path("task.toml")) == {"A": "x-none"}
    with pytest.raises(TaskError, match="SECRET"):
        resolve_env({"A": "${SECRET}"}, Path("task.toml"))


def test_features_that_cannot_be_run_are_named(make_task: MakeTask) -> None:
    task = make_task(
        toml='[environment]\ngpus = 1\n[[steps]]\nname = "one"\n',
        files={"environment/docker-compose.yaml": "", "tests/Dockerfile": ""},
    )
    named = set(unsupported(task))
    assert named == {"environment/docker-compose.yaml", "[[steps]]", "[environment].gpus", "tests/Dockerfile"}
    assert unsupported(make_task("plain")) == []
