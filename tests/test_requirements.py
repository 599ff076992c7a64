"""The pinned environments: each one resolves, fits what it was made from, and names no address."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "requirements"
COMPILE = ("pip", "compile", "--quiet", "--no-header", "--no-annotate")
UNIVERSAL = ("--universal",)
LINUX = ("--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_34")
ON_PIPELINE = ("-c", "requirements/pipeline.txt")
OVERRIDES = ("--override", "requirements/engine-fsdp.overrides.txt")
# What each file is compiled from, as `make lock` does it.
ENVIRONMENTS = {
    "pipeline": ("pyproject.toml", *UNIVERSAL),
    "dev": ("--group", "dev", *UNIVERSAL, *ON_PIPELINE),
    "jax": ("pyproject.toml", "--extra", "jax", *UNIVERSAL, *ON_PIPELINE),
    "trackers": ("pyproject.toml", "--extra", "trackers", *UNIVERSAL, *ON_PIPELINE),
    "harbor": ("requirements/harbor.in", "--universal", "--python-version", "3.12"),
    "engine-vllm": ("requirements/engine-vllm.in", *LINUX),
    "engine-fsdp": ("requirements/engine-fsdp.in", *LINUX, *OVERRIDES),
}
NO_REGISTRY = re.compile(
    "error sending request|failed to fetch|dns error|could not connect|timed out|network was", re.I
)


def pins(name: str) -> dict[str, str]:
    """Package name to version, as committed."""
    requirements = map(Requirement, (PINS / f"{name}.txt").read_text(encoding="utf-8").splitlines())
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in requirements}


def uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs this environment's uv in the checkout."""
    program = Path(sys.executable).with_name("uv")
    return subprocess.run(
        [program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


def test_every_committed_environment_is_tested() -> None:
    committed = {path.stem for path in PINS.glob("*.txt")} - {"engine-fsdp.overrides"}

    assert committed == set(ENVIRONMENTS)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_resolves_to_just_what_is_committed(
    name: str, tmp_path: Path, or_skip: Callable[[str], None]
) -> None:
    committed = PINS / f"{name}.txt"
    resolved = tmp_path / committed.name
    shutil.copy(committed, resolved)  # uv keeps the versions it finds there wherever they still fit

    done = uv(*COMPILE, *ENVIRONMENTS[name], "--output-file", str(resolved))
    if done.returncode and NO_REGISTRY.search(done.stderr):
        or_skip(f"no package registry answers: {done.stderr.strip()[-300:]}")

    assert done.returncode == 0, done.stderr
    assert resolved.read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_is_pinned_and_names_no_address_and_no_path(name: str) -> None:
    lines = (PINS / f"{name}.txt").read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[\w.+!-]+( ; .+)?", line)] == []


@pytest.mark.parametrize("name", ["jax", "trackers"])
def test_an_extra_leaves_the_pipelines_versions_alone(name: str) -> None:
    pipeline, extra = pins("pipeline"), pins(name)

    assert {package: extra.get(package) for package in pipeline} == pipeline


@pytest.mark.parametrize("name", ["engine-vllm", "engine-fsdp"])
def test_an_engine_environment_speaks_the_pipelines_protocol(name: str) -> None:
    pipeline, engine = pins("pipeline"), pins(name)

    assert (engine["skyrl"], engine["tinker"]) == (pipeline["skyrl"], pipeline["tinker"])
    assert "vllm" in engine


def test_prefect_and_vllm_cannot_share_an_environment(or_skip: Callable[[str], None], tmp_path: Path) -> None:
    """The reason for two environments. When this fails, one may do."""
    both = tmp_path / "both.in"
    lines = f"prefect=={pins('pipeline')['prefect']}\nvllm=={pins('engine-vllm')['vllm']}\n"
    both.write_text(lines, encoding="utf-8")

    done = uv(*COMPILE, str(both), *LINUX)
    if NO_REGISTRY.search(done.stderr):
        or_skip("no package registry answers")

    assert done.returncode != 0
    assert "fastapi" in done.stderr
