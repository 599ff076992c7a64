"""What a night needs of this machine: what is here, what is missing, and the remedy for each.

Keeps true: looking changes nothing, no check raises, none takes longer than a few seconds or loads torch.
Leaves to others: making it so (deploy/setup.sh), and how a check is shown (the command).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.home import Home
from storage.locks import read_holder

if TYPE_CHECKING:
    from flows.config import NightConfig

PINS = Path(__file__).resolve().parent.parent / "requirements" / "pipeline.txt"
PYTHONS = ((3, 12), (3, 15))  # from, to (exclusive): SkyRL's own range
FREE_GB = 5  # a night's checkpoints, lake and images on top of an installed Nightschool
MEMORY_GB = 10  # the first night's budget
GB = 1e9
SETUP = "run `make setup`"


@dataclass(frozen=True)
class Check:
    """One thing looked at. `required` says whether a night is impossible without it."""

    name: str
    ok: bool
    required: bool
    detail: str
    remedy: str = ""


def checks(home: Home, config: NightConfig) -> list[Check]:
    """Everything a night needs, in the order in which a newcomer would mend it."""
    return [
        python(),
        packages(PINS),
        prefect(),
        docker_engine(),
        base_image(config.sandbox.base_image),
        disk(home.root),
        memory(),
        processor(),
        gpu(),
        embedded_model(home.models),
        device(home.locks),
    ]


def report(found: list[Check]) -> dict[str, Any]:
    """The JSON document of `nightschool doctor`: `ok` if nothing required is missing."""
    return {
        "ok": all(check.ok for check in found if check.required),
        "checks": [asdict(check) for check in found],
    }


def python() -> Check:
    """The interpreter that runs us."""
    low, high = (".".join(map(str, bound)) for bound in PYTHONS)
    fits = PYTHONS[0] <= sys.version_info[:2] < PYTHONS[1]
    detail = f"{platform.python_version()} in {sys.prefix}"
    return Check("python", fits, True, detail, "" if fits else f"use Python {low} or newer, below {high}")


def packages(pins: Path) -> Check:
    """Whether the installed packages are the pinned ones; an installed wheel has no pins to compare with."""
    if not pins.is_file():
        return Check("packages", True, False, "no pinned requirements beside this installation")
    wrong = different(pins.read_text(encoding="utf-8").splitlines())
    if not wrong:
        return Check("packages", True, False, f"as pinned in {pins.name}")
    detail = f"{len(wrong)} not as pinned: {', '.join(wrong[:5])}{' …' if len(wrong) > 5 else ''}"
    return Check("packages", False, False, detail, SETUP)


def different(pins: list[str]) -> list[str]:
    """The pinned packages of which another version, or none, is installed."""
    from packaging.requirements import Requirement

    wrong = []
    for pin in map(Requirement, pins):
        if pin.marker is None or pin.marker.evaluate():
            installed = installed_version(pin.name)
            if installed is None or not pin.specifier.contains(installed, prereleases=True):
                wrong.append(f"{pin.name} {installed or 'missing'} (pinned {pin.specifier})")
    return wrong


def installed_version(name: str) -> str | None:
    """The version of an installed distribution; None where there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def prefect() -> Check:
    """The flow engine, and the server it reports to."""
    found = installed_version("prefect")
    server = os.environ.get("PREFECT_API_URL") or "an ephemeral server of its own"
    return Check("prefect", found is not None, True, f"{found}, with {server}", "" if found else SETUP)


def docker_engine() -> Check:
    """Whether an engine answers where DOCKER_HOST, or the default socket, points."""
    answer, problem = ask_docker(lambda client: client.version())
    if problem:
        remedy = f"{SETUP} (Debian, Ubuntu), or start Docker; if it denies you: join the group docker"
        return Check("docker", False, True, problem, remedy)
    return Check("docker", True, True, f"engine {answer['Version']}, API {answer['ApiVersion']}")


def base_image(name: str) -> Check:
    """The image that sandboxes start from."""
    image, problem = ask_docker(lambda client: client.images.get(name))
    if problem:
        return Check("base image", False, True, f"{name}: {problem}", SETUP)
    return Check("base image", True, True, f"{name}, {image.attrs['Size'] / GB:.2f} GB")


def ask_docker(question: Callable[[Any], Any]) -> tuple[Any, str]:
    """The engine's answer, or the problem in words."""
    import docker
    from requests.exceptions import RequestException

    try:
        client = docker.from_env(timeout=5)
    except (docker.errors.DockerException, RequestException, OSError) as error:
        return None, f"no Docker engine answers: {error}"
    try:
        return question(client), ""
    except docker.errors.ImageNotFound:
        return None, "not there"
    except (docker.errors.DockerException, RequestException, OSError) as error:
        return None, str(error)
    finally:
        client.close()


def disk(root: Path) -> Check:
    """Room for a night under the home directory."""
    free = shutil.disk_usage(root).free / GB
    enough = free >= FREE_GB
    remedy = "" if enough else f"a night needs about {FREE_GB} GB: free some, or choose another --home"
    return Check("disk", enough, True, f"{free:.1f} GB free in {root}", remedy)


def memory() -> Check:
    """Memory that a night could have."""
    import psutil

    found = psutil.virtual_memory()
    enough = found.available / GB >= MEMORY_GB
    detail = f"{found.available / GB:.1f} of {found.total / GB:.1f} GB available"
    remedy = f"the first night wants {MEMORY_GB} GB: close programs, or lower tokens_per_pass"
    return Check("memory", enough, False, detail, "" if enough else remedy)


def processor() -> Check:
    """Cores, and whether the processor multiplies bfloat16 itself, which halves a night without a GPU."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        flags = set()
    native = [flag for flag in ("amx_bf16", "avx512_bf16", "bf16") if flag in flags]
    arithmetic = f"bfloat16 by {native[0]}" if native else "no native bfloat16: float32"
    return Check("processor", True, False, f"{cores} cores, {arithmetic}")


def gpu() -> Check:
    """NVIDIA's devices as its driver lists them, or Apple's; none is no fault."""
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return Check("gpu", True, False, "Apple silicon (MPS)")
    query = ["nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
    except FileNotFoundError:
        return Check("gpu", True, False, "none: the night runs on the processor")
    except (subprocess.SubprocessError, OSError) as error:
        return Check("gpu", False, False, f"nvidia-smi fails: {error}", "mend the NVIDIA driver")
    return Check("gpu", True, False, "; ".join(done.stdout.strip().splitlines()))


def embedded_model(models: Path) -> Check:
    """The base model of the first night, made on first use."""
    from serving.model import NAME

    here = (models / NAME / "config.json").is_file()
    detail = f"{NAME} in {models}" if here else f"{NAME} is not made yet"
    return Check(
        "embedded model", here, False, detail, "" if here else "`make nightly` makes it, in about a minute"
    )


def device(locks: Path) -> Check:
    """Whether a run holds one of the home's locks right now, and whose it is."""
    busy = [f"{path.stem} by {name}" for path in sorted(locks.glob("*")) if (name := holder(path))]
    if busy:
        return Check(
            "device", False, False, f"held: {', '.join(busy)}", "wait for it to end, or stop that process"
        )
    return Check("device", True, False, "free")


def holder(lock: Path) -> str | None:
    """Who holds a lock, in words; None where nobody does.

    Judged by the holder's process, for to try the lock would be to take it, if only for a moment.
    """
    import psutil

    found = read_holder(lock)
    if not isinstance(found.get("pid"), int) or not psutil.pid_exists(found["pid"]):
        return None
    since = found.get("started_at", "an unknown time")
    return f"{found.get('run', 'an unnamed run')} (pid {found['pid']}, since {since})"
