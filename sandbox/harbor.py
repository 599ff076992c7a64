"""Tasks in Harbor's directory format (0.25, schema 1.0 to 1.4), read as Harbor reads them.

    task.toml  instruction.md  environment/{Dockerfile}  tests/test.sh  solution/solve.sh

Keeps true: unknown keys are ignored as Harbor ignores them; a task is known by the digest of its files.
Leaves to others: which of the format's features we can run (`unsupported` names the rest).
"""

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sandbox.errors import TaskError

SCHEMA_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
_TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SIZES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
_Network = Literal["no-network", "public", "allowlist"]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TaskInfo(_Section):
    """[task]"""

    name: str | None = None
    version: str | None = None
    description: str = ""
    keywords: list[str] = []


class AgentSection(_Section):
    """[agent]"""

    timeout_sec: float | None = Field(600.0, gt=0)
    user: str | int | None = None
    network_mode: _Network | None = None
    allowed_hosts: list[str] = []


class EnvironmentSection(_Section):
    """[environment], and [verifier.environment]"""

    build_timeout_sec: float = Field(600.0, gt=0)
    docker_image: str | None = None
    os: Literal["linux", "windows"] = "linux"
    cpus: float | None = Field(None, gt=0)
    memory_mb: int | None = Field(None, gt=0)
    storage_mb: int | None = Field(None, gt=0)
    gpus: int | None = None
    tpu: Any = None
    mcp_servers: list[Any] = []
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: Any = None
    workdir: str | None = None
    network_mode: _Network = "public"
    allowed_hosts: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _deprecated_keys(cls, data: Any) -> Any:
        """`memory = "2G"`, `storage` and `allow_internet` say the same as today's keys."""
        if not isinstance(data, dict):
            return data
        data = dict(data)
        for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
            if data.get(old) is not None:
                data.setdefault(new, _megabytes(data[old]))
        if "allow_internet" in data:
            data.setdefault("network_mode", "public" if data["allow_internet"] else "no-network")
        return data


class VerifierSection(_Section):
    """[verifier]"""

    timeout_sec: float = Field(600.0, gt=0)
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentSection | None = None
    collect: list[Any] = []


class SolutionSection(_Section):
    """[solution]"""

    env: dict[str, str] = {}


class Artifact(_Section):
    """A file or folder of the agent's container that the verifier gets."""

    source: str
    destination: str | None = None
    exclude: list[str] = []
    service: str | None = None


class TaskConfig(_Section):
    """task.toml"""

    schema_version: str = "1.4"
    task: TaskInfo = TaskInfo()
    metadata: dict[str, Any] = {}
    agent: AgentSection = AgentSection()
    verifier: VerifierSection = VerifierSection()
    environment: EnvironmentSection = EnvironmentSection()
    solution: SolutionSection = SolutionSection()
    artifacts: list[Artifact] = []
    steps: list[dict[str, Any]] = []

    @model_validator(mode="before")
    @classmethod
    def _legacy_version(cls, data: Any) -> Any:
        """Harbor 1.0 files say `version = "1.0"`."""
        if isinstance(data, dict) and "version" in data and "schema_version" not in data:
            return {**data, "schema_version": data["version"]}
        return data

    @field_validator("schema_version")
    @classmethod
    def _known_version(cls, value: str) -> str:
        if value not in SCHEMA_VERSIONS:
            raise ValueError(f"{value!r} is none of {', '.join(SCHEMA_VERSIONS)}")
        return value

    @field_validator("artifacts", mode="before")
    @classmethod
    def _plain_paths(cls, value: Any) -> Any:
        """An artifact may be given as its path alone."""
        if not isinstance(value, list):
            return value
        return [{"source": item} if isinstance(item, str) else item for item in value]


@dataclass(frozen=True)
class Task:
    """One Harbor task. `digest` is the hex sha256 of the directory's content."""

    name: str
    path: Path
    digest: str
    instruction: str
    config: TaskConfig

    @property
    def has_solution(self) -> bool:
        """Whether the oracle agent has something to run."""
        return (self.path / "solution" / "solve.sh").is_file()


def load_task(directory: Path) -> Task:
    """Read one task directory.

    Raises:
        TaskError: task.toml, instruction.md or a field of them cannot be read; names which.
    """
    directory = Path(directory)
    file = directory / "task.toml"
    try:
        config = TaskConfig.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read {file}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{file} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise TaskError(
            f"{file}: field {field or '(top)'}: {first['msg']} (got {first['input']!r})"
        ) from error
    name = config.task.name or directory.resolve().name
    return Task(
        name, directory.resolve(), digest_directory(directory), _instruction(directory, config), config
    )


def _instruction(directory: Path, config: TaskConfig) -> str:
    file = directory / "instruction.md"
    if config.steps and not file.exists():
        return ""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(
            f"cannot read {file}: {error}; a Harbor task tells the agent there what to do"
        ) from error


def load_tasks(directory: Path) -> list[Task]:
    """Every task at or below `directory`, by path.

    Raises:
        TaskError: there is none, or one of them cannot be read.
    """
    directory = Path(directory)
    found = [load_task(path.parent) for path in sorted(directory.rglob("task.toml")) if path.is_file()]
    if not found:
        raise TaskError(f"no task.toml in or below {directory}; give a Harbor task or a folder of them")
    return found


def digest_directory(directory: Path) -> str:
    """Hex sha256 over the sorted paths, kinds, executable bits and bytes below `directory`.

    Links are not followed.
    """
    digest = hashlib.sha256()
    for path in _walk(Path(directory)):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            kind, content = "link", os.readlink(path).encode()
        else:
            kind, content = ("exec" if os.access(path, os.X_OK) else "file"), path.read_bytes()
        digest.update(f"{kind} {len(content)} {name}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _walk(directory: Path) -> Iterator[Path]:
    """Files and links below `directory`, in a fixed order."""
    return iter(sorted(path for path in directory.rglob("*") if path.is_symlink() or path.is_file()))


def resolve_env(env: dict[str, str], file: Path) -> dict[str, str]:
    """`${VAR:-default}` becomes its default: what this machine's environment holds stays out of sandboxes.

    Raises:
        TaskError: a variable has no default.
    """

    def default(match: re.Match[str]) -> str:
        if match[2] is None:
            raise TaskError(
                f"{file}: env needs ${{{match[1]}}} from this machine; give it a default, ${{{match[1]}:-…}}"
            )
        return match[2]

    return {name: _TEMPLATE.sub(default, value) for name, value in env.items()}


def unsupported(task: Task) -> list[str]:
    """Features of Harbor's format that the task uses and we cannot run yet, by name."""
    environment, verifier = task.config.environment, task.config.verifier
    own_image = [
        name for name in ("Dockerfile", "docker-compose.yaml") if (task.path / "tests" / name).exists()
    ]
    checks = {
        "environment/docker-compose.yaml": (task.path / "environment" / "docker-compose.yaml").exists(),
        "[[steps]]": bool(task.config.steps),
        "[environment].os = windows": environment.os == "windows",
        "[environment].gpus": bool(environment.gpus),
        "[environment].tpu": bool(environment.tpu),
        "[environment].mcp_servers": bool(environment.mcp_servers),
        "[environment].skills_dir": bool(environment.skills_dir),
        "[environment].healthcheck": bool(environment.healthcheck),
        "[verifier.environment]": verifier.environment is not None,
        "[[verifier.collect]]": bool(verifier.collect),
        "[[artifacts]].service": any(artifact.service for artifact in task.config.artifacts),
        **{f"tests/{name}": True for name in own_image},
    }
    return [name for name, used in checks.items() if used]


def _megabytes(size: Any) -> int:
    """`"2G"`, `"512M"` or a number of MiB, as MiB."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)(?:i?B)?\s*", str(size), re.IGNORECASE)
    if match is None:
        raise ValueError(f"{size!r} is no size such as 2G or 512M")
    return max(1, int(float(match[1]) * _SIZES[match[2].upper() or "M"]))
