"""The configuration: one tree of frozen models, read from nightschool.toml.

Keeps true: the same model is the flow's parameter, the commands' input and the run manifest's content; an
unknown key is an error that says what was meant; a relative path in a file is relative to that file's folder.
What a setting does is the floor's to say whose section it is in.
"""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.config import SandboxConfig
from serving.config import EndpointConfig, EngineConfig
from tasks.agent import AgentConfig
from tasks.convert.config import ConvertConfig
from tasks.evaluate.config import EvaluateConfig
from tasks.promote.config import GateConfig
from tasks.train.config import RlConfig, SftConfig

DEFAULT_FILE = Path("nightschool.toml")
CONFIG_VARIABLE = "NIGHTSCHOOL_CONFIG"


class ConfigError(Exception):
    """The configuration file cannot be used; one line for each thing that is wrong with it."""


class TracesConfig(BaseModel):
    """[traces]"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: tuple[Path, ...] = ()
    """Files, folders or glob patterns that a night ingests; none: the inbox of the home directory."""
    source: str | None = None
    """The name the lake knows them by, and the only source the night trains on; None: one name a file or
    folder."""


class ModelConfig(BaseModel):
    """[model]"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path | None = None
    """Directory of a transformers model; None: the embedded SmolLM2-135M-Instruct."""


class TrainTasksConfig(BaseModel):
    """[tasks]"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: Path = Path("tasks/train")
    """Folder of the Harbor tasks that RL trains on."""


class NightConfig(BaseModel):
    """A whole night."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path | None = None
    """Where everything is kept; None: --home, NIGHTSCHOOL_HOME, or ./var."""
    seed: int = Field(default=0, ge=0)
    """Of everything that draws: order of rows, rollouts, evaluation."""
    traces: TracesConfig = TracesConfig()
    model: ModelConfig = ModelConfig()
    tasks: TrainTasksConfig = TrainTasksConfig()
    engine: EngineConfig = EngineConfig()
    agent: AgentConfig = AgentConfig()
    sandbox: SandboxConfig = SandboxConfig()
    convert: ConvertConfig = ConvertConfig()
    sft: SftConfig = SftConfig()
    rl: RlConfig = RlConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    promote: GateConfig = GateConfig()
    serve: EndpointConfig = EndpointConfig()


def load(path: Path | None = None) -> NightConfig:
    """The configuration at `path`; without one NIGHTSCHOOL_CONFIG's, else ./nightschool.toml's, else the
    defaults.

    Raises:
        ConfigError: the file is not there, no TOML, or not this configuration.
    """
    if path is None and os.environ.get(CONFIG_VARIABLE):
        path = Path(os.environ[CONFIG_VARIABLE])
    if path is None and not DEFAULT_FILE.is_file():
        return absolute(NightConfig(), Path.cwd())
    return read(path or DEFAULT_FILE)


def read(path: Path) -> NightConfig:
    """The configuration in one file. Raises ConfigError."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror or error}. Name an existing file with --config."
        ) from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(f"{path}: not a TOML file: {error}.") from error
    try:
        config = NightConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in _lines(error))) from error
    return absolute(config, path.resolve().parent)


def absolute[M: BaseModel](model: M, folder: Path) -> M:
    """`model` with every relative path in it taken from `folder`. What was not set stays known as not set."""
    changed = {name: _absolute(getattr(model, name), folder) for name in type(model).model_fields}
    copy = model.model_copy(update=changed)
    copy.__pydantic_fields_set__.intersection_update(model.model_fields_set)
    return copy


def _absolute(value: Any, folder: Path) -> Any:
    if isinstance(value, BaseModel):
        return absolute(value, folder)
    if isinstance(value, tuple):
        return tuple(_absolute(each, folder) for each in value)
    return folder / value.expanduser() if isinstance(value, Path) else value


def _lines(error: ValidationError) -> Iterator[str]:
    """Each mistake as `section.key: what; what is allowed`."""
    for each in error.errors(include_url=False):
        key = ".".join(str(part) for part in each["loc"])
        if each["type"] == "extra_forbidden":
            yield f"{key}: there is no such setting{_meant(each['loc'])}"
        else:
            yield f"{key}: {_what(each['msg'])}, not {_shown(each['input'])}"


def _what(message: str) -> str:
    return message.replace("Input should be", "should be").replace("Value error, ", "")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _meant(location: tuple[int | str, ...]) -> str:
    """What the unknown key was likely meant to be, and what there is."""
    fields = _fields(location[:-1])
    key = str(location[-1])
    near = difflib.get_close_matches(key, fields, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    elsewhere = [f"{name}.{key}" for name, section in _sections() if key in section]
    if elsewhere and len(location) == 1:
        return f"; did you mean {' or '.join(elsewhere)}?"
    return f"; allowed are {', '.join(sorted(fields))}"


def _fields(location: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = NightConfig
    for part in location:
        found = _model_of(model.model_fields[str(part)].annotation)
        if found is None:
            return []
        model = found
    return list(model.model_fields)


def _sections() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, field in NightConfig.model_fields.items():
        if model := _model_of(field.annotation):
            yield name, model.model_fields


def _model_of(annotation: Any) -> type[BaseModel] | None:
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None
