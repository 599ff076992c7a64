"""Removes what a dead owner left behind: containers by owner and expiry, images by expiry.

Keeps true: nothing without our label is touched, and nothing whose owner lives and whose time is not over.
Safe to run at any time, from several processes. Leaves to others: when.
"""

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandbox import engine

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True)
class Reaped:
    """How many of each were removed."""

    containers: int = 0
    images: int = 0


def reap(client: "docker.DockerClient | None" = None) -> Reaped:
    """Remove containers whose owner is gone or whose time is over, and images past their expiry that
    nobody uses.

    Raises:
        DockerUnavailable: no engine answers.
    """
    client = client or engine.connect()
    containers = [item["Id"] for item in _ours(client) if _is_orphan(item["Labels"])]
    images = [
        item["Id"]
        for item in client.api.images(filters={"label": f"{engine.LABEL}=1"})
        if _is_expired(item["Labels"])
    ]
    return Reaped(
        sum(_remove(client, item) for item in containers), sum(_remove_image(client, item) for item in images)
    )


def remove_runs(run_ids: Iterable[str], client: "docker.DockerClient | None" = None) -> int:
    """Remove this process's containers of these runs, working or not; how many there were."""
    client = client or engine.connect()
    wanted, me = set(run_ids), engine.owner()
    found = [
        item["Id"]
        for item in _ours(client)
        if item["Labels"].get(engine.RUN_LABEL) in wanted and item["Labels"].get(engine.OWNER_LABEL) == me
    ]
    return sum(_remove(client, item) for item in found)


def _ours(client: "docker.DockerClient") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.api.containers(all=True, filters={"label": f"{engine.LABEL}=1"})
    return items


def _is_orphan(labels: dict[str, str]) -> bool:
    return engine.owner_is_dead(labels.get(engine.OWNER_LABEL, "")) or _is_expired(labels)


def _is_expired(labels: dict[str, str] | None) -> bool:
    expires = (labels or {}).get(engine.EXPIRES_LABEL, "")
    return expires.isdigit() and int(expires) < time.time()


def _remove(client: "docker.DockerClient", container: str) -> bool:
    """Whether it was removed here; another reaper may have been faster."""
    import docker

    with contextlib.suppress(docker.errors.APIError):
        client.api.remove_container(container, force=True, v=True)
        return True
    return False


def _remove_image(client: "docker.DockerClient", image: str) -> bool:
    """Whether it was removed; one that a container uses stays."""
    import docker

    with contextlib.suppress(docker.errors.APIError):
        client.api.remove_image(image)
        return True
    return False
