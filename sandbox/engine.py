"""The one Docker client of a process, and the labels by which what we make is known again.

Keeps true: every container carries our mark, its run, its owner (a process, told from a later one with the
same id) and an expiry, so that the reaper can tell an orphan from a colleague. Leaves to others: what is
created (images, container).
"""

import functools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import DockerUnavailable

if TYPE_CHECKING:
    import docker

LABEL = "nightschool"
RUN_LABEL, OWNER_LABEL, EXPIRES_LABEL = f"{LABEL}.run", f"{LABEL}.owner", f"{LABEL}.expires"
REMEDY = "start it (`make setup` installs one on Debian and Ubuntu) or set DOCKER_HOST, and try again"


def connect() -> "docker.DockerClient":
    """This process's client, shared by its threads.

    Raises:
        DockerUnavailable: no engine answers where DOCKER_HOST (or the default socket) points.
    """
    return _connect(os.getpid())


@functools.lru_cache(maxsize=1)
def _connect(pid: int) -> "docker.DockerClient":
    """Keyed by process id: a forked child must not share its parent's sockets."""
    import docker
    from requests.exceptions import RequestException

    try:
        client = docker.DockerClient.from_env(max_pool_size=128, timeout=120)
        client.ping()
    except (docker.errors.DockerException, RequestException, OSError) as error:
        raise DockerUnavailable(f"no Docker engine answers ({error}); {REMEDY}") from error
    return client


def labels(run_id: str, lifetime_s: float) -> dict[str, str]:
    """Labels of something this process makes for `run_id` and needs for `lifetime_s` seconds at most."""
    return {
        LABEL: "1",
        RUN_LABEL: run_id,
        OWNER_LABEL: owner(),
        EXPIRES_LABEL: str(int(time.time() + lifetime_s)),
    }


def owner(pid: int | None = None) -> str:
    """`boot/pid namespace/pid/start time`.

    Names a process once and for all; empty if there is no such process.
    """
    pid = pid or os.getpid()
    try:
        # Fields after the command name, which may itself hold spaces and parentheses; start time is field 22.
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
    return f"{_here()}/{pid}/{started}"


def owner_is_dead(label: str) -> bool:
    """Whether the labelled owner is known to be gone; an owner in another pid namespace cannot be judged."""
    parts = label.split("/")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    here = _here()
    if parts[0] != here.split("/")[0]:
        return _same_machine_rebooted()
    if "/".join(parts[:2]) != here:
        return False
    return owner(int(parts[2])) != label


def _same_machine_rebooted() -> bool:
    """Containers outlive no reboot of a local engine; a remote engine's owners may be on other machines."""
    return os.environ.get("DOCKER_HOST", "unix://").startswith("unix://")


@functools.lru_cache(maxsize=1)
def _here() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"{boot}/{namespace}"
