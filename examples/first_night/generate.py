"""Writes the example's Harbor tasks: `python examples/first_night/generate.py [DIR]` (default: here).

Keeps true: the same seeds give the same bytes; no two tasks have the same instruction, nor the same files;
the regression kind is in no other split. Leaves to record.py: the traces.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from chores import REGRESSION_KINDS, TRAINED_KINDS, Chore
from words import POOLS

HERE = Path(__file__).parent
COUNTS = {"train": 96, "heldout": 48, "regression": 16}
SEEDS = {"train": 10_000, "heldout": 20_000, "regression": 30_000, "trace": 40_000, "attempt": 50_000}
# Instances are numbered from here, so that a task's name says its split: no two splits share one.
FIRST_NUMBER = {"train": 1, "heldout": 51, "regression": 81, "trace": 101, "attempt": 201}

DOCKERFILE = "FROM nightschool-base:bookworm\nWORKDIR /app\nCOPY files/ /app/\n"

TASK_TOML = """\
schema_version = "1.4"

[task]
name = "{name}"
description = "A small file chore, done with bash."

[metadata]
kind = "{kind}"
seed = {seed}

[agent]
timeout_sec = 60

[verifier]
timeout_sec = 30

[environment]
network_mode = "no-network"
cpus = 1
memory_mb = 256
"""

TEST_SH = """\
#!/bin/bash
# Grades /app by what is beside this script: expected/ (files that must be there; newlines at the end free),
# unchanged/ (files that must be there, byte for byte) and gone (paths that must not). Writes 1 or 0.
PATH=/usr/bin:/bin
export LC_ALL=C
tests=$(dirname "$0")

regular() {
    [ -f "$1" ] && [ "$(stat -c %s "$1")" -le 65536 ]
}

same_but_for_the_last_newline() {
    regular "$2" && [ "$(cat "$1")" = "$(tr '\\0' '?' < "$2")" ]
}

same_bytes() {
    regular "$2" && cmp -s "$1" "$2"
}

each_file() {
    local wanted
    [ -d "$tests/$1" ] || return 0
    while IFS= read -r wanted; do
        "$2" "$tests/$1/$wanted" "/app/$wanted" || return 1
    done < <(cd "$tests/$1" && find . -type f)
}

right() {
    local path
    # Behind a link could be anything, the verifier's own files included.
    [ ! -L /app ] && [ -z "$(find /app -type l -print -quit)" ] || return 1
    each_file expected same_but_for_the_last_newline && each_file unchanged same_bytes || return 1
    while IFS= read -r path; do
        [ ! -e "/app/$path" ] || return 1
    done < "$tests/gone"
}

if right; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


@dataclass(frozen=True)
class Instance:
    """One chore with its name and seed."""

    name: str
    seed: int
    chore: Chore


def instances(split: str, total: int, taken: set[str]) -> Iterator[Instance]:
    """`total` chores, evenly over the split's kinds; what is in `taken` is not made again but added to it."""
    kinds = REGRESSION_KINDS if split == "regression" else TRAINED_KINDS
    pools = POOLS.get(split, POOLS["train"])
    for index in range(total):
        number, kind_index = divmod(index, len(kinds))
        kind = list(kinds)[kind_index]
        seed = SEEDS[split] + 1000 * kind_index + number
        rng = Random(seed)
        chore = kinds[kind](rng, pools)
        while not taken.isdisjoint(fingerprint(chore)):
            chore = kinds[kind](rng, pools)
        taken |= fingerprint(chore)
        yield Instance(f"{kind}-{FIRST_NUMBER[split] + number:02d}", seed, chore)


def fingerprint(chore: Chore) -> set[str]:
    """What must not be in two instances: the instruction, and the files."""
    return {chore.instruction, json.dumps(chore.files, sort_keys=True)}


def all_tasks() -> dict[str, list[Instance]]:
    """Every committed task by split."""
    taken: set[str] = set()
    return {split: list(instances(split, total, taken)) for split, total in COUNTS.items()}


def write_task(instance: Instance, directory: Path) -> None:
    """One Harbor task directory."""
    chore = instance.chore
    name = f"first-night/{instance.name}"
    _write(directory / "task.toml", TASK_TOML.format(name=name, kind=chore.kind, seed=instance.seed))
    _write(directory / "instruction.md", chore.instruction + "\n")
    _write(directory / "environment" / "Dockerfile", DOCKERFILE)
    _write_files(directory / "environment" / "files", chore.files)
    solution = f"#!/bin/bash\ncd /app || exit 1\n{chore.command}\n"
    _write(directory / "solution" / "solve.sh", solution, executable=True)
    _write(directory / "tests" / "test.sh", TEST_SH, executable=True)
    touched = {*chore.expected, *chore.gone}
    unchanged = {path: text for path, text in chore.files.items() if path not in touched}
    _write_files(directory / "tests" / "expected", chore.expected)
    _write_files(directory / "tests" / "unchanged", unchanged)
    _write(directory / "tests" / "gone", "".join(f"{path}\n" for path in chore.gone))


def _write_files(directory: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        _write(directory / path, text)


def _write(path: Path, text: str, *, executable: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    path.chmod(0o755 if executable else 0o644)


def main(directory: Path) -> None:
    """Writes all tasks anew under `directory`/tasks."""
    shutil.rmtree(directory / "tasks", ignore_errors=True)
    for split, made in all_tasks().items():
        for instance in made:
            write_task(instance, directory / "tasks" / split / instance.name)
        print(f"{split}: {len(made)} tasks")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
