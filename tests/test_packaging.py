"""The distribution: five plain package names that are ours alone; a wheel that runs far from its checkout."""

import json
import os
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"flows", "tasks", "storage", "sandbox", "serving"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without touching it."""
    out = tmp_path_factory.mktemp("dist")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(out)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return out / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it, which borrows the dependencies installed here.

    They come after the wheel on its path, and the editable checkout is not among them, so whatever of ours is
    imported there is the wheel's.
    """
    directory = tmp_path_factory.mktemp("elsewhere") / "venv"
    venv.create(directory, symlinks=True)
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*uv, "--python", directory / "bin" / "python", wheel], check=True)
    (site,) = directory.glob("lib/python*/site-packages")
    # A plain line adds the directory without reading its .pth files, the editable checkout's among them.
    lent = Path(distribution("typer").locate_file(""))
    (site / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")
    return directory


def run(installed: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [installed / "bin" / command[0], *command[1:]],
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_no_other_installed_distribution_claims_our_package_names(installed: Path) -> None:
    # Asked there, for an editable installation does not know its own packages.
    program = "import json, importlib.metadata as m; print(json.dumps(m.packages_distributions()))"

    owners = json.loads(run(installed, "python", "-c", program).stdout)

    assert "typer" in owners, "the borrowed packages must be among those asked"
    assert {name: owners.get(name) for name in PACKAGES} == {name: ["nightschool"] for name in PACKAGES}


def test_the_distribution_refuses_to_be_uploaded() -> None:
    assert "Private :: Do Not Upload" in PROJECT["classifiers"]


def test_the_wheel_holds_the_five_packages_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_every_source_file_is_in_the_wheel(wheel: Path) -> None:
    paths = (path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))

    with ZipFile(wheel) as archive:
        assert {path.relative_to(ROOT).as_posix() for path in paths} - set(archive.namelist()) == set()


def test_the_wheel_answers_help_outside_the_checkout(installed: Path) -> None:
    done = run(installed, "nightschool", "--help")

    assert done.returncode == 0, done.stderr
    assert "nightly" in done.stdout


def test_what_runs_outside_the_checkout_is_the_wheel(installed: Path) -> None:
    where = "\n".join(f"import {name}; print({name}.__file__)" for name in PACKAGES)

    done = run(installed, "python", "-c", where)

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if not Path(line).is_relative_to(installed)] == []
