"""Every configuration file we ship is one that the program accepts."""

import tomllib
from pathlib import Path

import pytest

from flows.config import NightConfig

ROOT = Path(__file__).resolve().parent.parent
# Task directories carry Harbor's task.toml: another format, read by sandbox.harbor.
CONFIG_FILES = sorted(
    path
    for folder in ("examples", "deploy", "docs", "benchmarks")
    for path in (ROOT / folder).rglob("*.toml")
    if path.name != "task.toml"
)


def test_the_first_night_ships_its_configuration() -> None:
    assert ROOT / "examples" / "first_night" / "nightschool.toml" in CONFIG_FILES


@pytest.mark.parametrize("path", CONFIG_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_shipped_configuration_loads(path: Path) -> None:
    NightConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))


def test_an_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no_such_key"):
        NightConfig.model_validate({"no_such_key": 1})
