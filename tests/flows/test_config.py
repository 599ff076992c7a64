"""The configuration: what it reads, where its paths point, and how it says what is wrong."""

from pathlib import Path

import pytest

from flows import config
from flows.config import ConfigError, NightConfig


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "nightschool.toml"


def complaint(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        config.load(file)
    return str(caught.value)


def test_without_a_file_everything_has_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NIGHTSCHOOL_CONFIG", raising=False)

    found = config.load()

    assert found.rl.loss == "gspo"
    assert found.model.path is None


def test_the_file_in_the_working_directory_is_found(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("seed = 7", encoding="utf-8")
    monkeypatch.chdir(file.parent)

    assert config.load().seed == 7


def test_the_variable_names_a_file_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("seed = 8", encoding="utf-8")
    monkeypatch.setenv("NIGHTSCHOOL_CONFIG", str(file))

    assert config.load().seed == 8


def test_relative_paths_are_taken_from_the_folder_of_the_file(file: Path) -> None:
    file.write_text(
        'home = "var"\n[traces]\npaths = ["logs/*.jsonl", "/srv/traces"]\n[model]\npath = "base"\n'
        '[evaluate]\nregression = "old"\n',
        encoding="utf-8",
    )

    found = config.load(file)

    assert found.home == file.parent / "var"
    assert found.traces.paths == (file.parent / "logs/*.jsonl", Path("/srv/traces"))
    assert found.model.path == file.parent / "base"
    assert found.evaluate.regression == file.parent / "old"
    assert found.evaluate.heldout == file.parent / "tasks/heldout"


def test_what_was_not_set_stays_known_as_not_set(file: Path) -> None:
    file.write_text('[evaluate]\nregression = "old"\n', encoding="utf-8")

    assert config.load(file).evaluate.model_fields_set == {"regression"}


def test_a_configuration_survives_json(file: Path) -> None:
    file.write_text('seed = 3\n[traces]\npaths = ["logs"]\n', encoding="utf-8")
    found = config.load(file)

    assert NightConfig.model_validate(found.model_dump(mode="json")) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sft]\nepoch = 1", "sft.epoch: there is no such setting; did you mean epochs?"),
        ("[sfd]\nepochs = 1", "sfd: there is no such setting; did you mean sft?"),
        ("group_size = 4", "group_size: there is no such setting; did you mean rl.group_size?"),
        ("[traces]\nzzz = 1", "traces.zzz: there is no such setting; allowed are paths, source"),
        ("[sft]\nepochs = 0", "sft.epochs: should be greater than 0, not 0"),
        ('[rl]\nloss = "dpo"', "rl.loss: should be 'gspo'"),
        ('seed = "many"', "seed: should be a valid integer"),
        ("sft = 3", "sft: should be a valid dictionary"),
    ],
)
def test_a_mistake_is_named_with_its_file_key_and_remedy(file: Path, text: str, said: str) -> None:
    assert f"{file}: {said}" in complaint(file, text)


def test_every_mistake_is_named_at_once(file: Path) -> None:
    said = complaint(file, "nope = 1\n[sft]\nepochs = 0\n[rl]\nsteps = 0")

    assert len(said.splitlines()) == 3


def test_a_file_that_is_no_toml_says_where(file: Path) -> None:
    assert "not a TOML file" in (said := complaint(file, "[sft\n")) and "line 1" in said


def test_a_file_in_another_encoding_is_named(file: Path) -> None:
    file.write_bytes('home = "Jürgen"'.encode("latin-1"))

    with pytest.raises(ConfigError, match="not a TOML file"):
        config.load(file)


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"nightschool\.toml: No such file"):
        config.load(file)
