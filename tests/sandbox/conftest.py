"""Small Harbor tasks, made where a test wants them, and a check that no container outlives its test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox import engine
from sandbox.config import SandboxConfig
from sandbox.harbor import Task, load_task

DOCKERFILE = "FROM nightschool-base:bookworm\nWORKDIR /app\nCOPY data /app/data\n"
# As many words as there are files: the answer is 3.
TEST = """#!/bin/bash
if [ "$(cat answer.txt 2>/dev/null)" = 3 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
SOLUTION = "ls data | wc -l > answer.txt\n"
MakeTask = Callable[..., Task]


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    """Makes a task directory: count the files of data/ into answer.txt."""

    def make(
        name: str = "count",
        *,
        test: str = TEST,
        toml: str = "",
        dockerfile: str = DOCKERFILE,
        solution: str | None = SOLUTION,
        files: dict[str, str] | None = None,
    ) -> Task:
        root = tmp_path / name
        texts = {
            "task.toml": f'schema_version = "1.4"\n{toml}',
            "instruction.md": "Count the files in data/ and write the number to answer.txt.",
            "environment/Dockerfile": dockerfile,
            **{f"environment/data/{word}": word for word in ("one", "two", "three")},
            "tests/test.sh": test,
            **({"solution/solve.sh": solution} if solution is not None else {}),
            **(files or {}),
        }
        for path, text in texts.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return load_task(root)

    return make


@pytest.fixture
def config() -> SandboxConfig:
    return SandboxConfig(concurrency=2, memory_mb=128, pids=64, agent_timeout_s=30, verifier_timeout_s=30)


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """The test leaves no container of this process behind."""
    yield
    me = engine.owner()
    left = engine.connect().api.containers(all=True, filters={"label": f"{engine.LABEL}=1"})
    assert [item["Id"] for item in left if item["Labels"].get(engine.OWNER_LABEL) == me] == []
