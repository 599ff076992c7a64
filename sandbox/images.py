"""Task images: built once, known by their content, without network.

Keeps true: the tag names the build context, the base images it starts from and the user who owns the working
directory; two trials that need an image build it once. The last layer gives the image's working directory to
the agent's user, so that containers need no capability to do it. Leaves to others: containers; which features
a task may use (harbor).
"""

import hashlib
import io
import json
import re
import tarfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from sandbox import engine
from sandbox.config import SandboxConfig
from sandbox.errors import ImageError, SandboxError
from sandbox.harbor import Task, digest_directory, unsupported

REPOSITORY = "nightschool-task"
KEEP_S = 30 * 24 * 3600
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE | re.MULTILINE)
_HAND_OVER = 'if [ "$PWD" != / ]; then chown -R {user} "$PWD"; fi'
_locks: dict[str, threading.Lock] = defaultdict(threading.Lock)


def ensure_image(task: Task, config: SandboxConfig) -> str:
    """The id of the task's image, built if it is not there.

    Raises:
        SandboxError: the task uses a feature that cannot be run yet (named).
        ImageError: an image to start from is missing, or the build failed (with the end of its log).
        DockerUnavailable: no engine answers.
    """
    import docker

    refused = unsupported(task)
    if refused:
        raise SandboxError(f"task {task.name} uses {', '.join(refused)}, which this version cannot run")
    dockerfile = _dockerfile(task, config)
    tag = f"{REPOSITORY}:{_content_digest(task, dockerfile, config)[:12]}"
    with _locks[tag]:
        try:
            return str(engine.connect().images.get(tag).id)
        except docker.errors.ImageNotFound:
            return _build(task, dockerfile, tag)


def agent_user(task: Task, config: SandboxConfig) -> str:
    """`user[:group]` the agent acts as: the task's wish, else the configured one."""
    user = task.config.agent.user
    return config.user if user is None else str(user)


def _dockerfile(task: Task, config: SandboxConfig) -> str:
    """The task's own Dockerfile (or `FROM docker_image`) with our last layer."""
    file = task.path / "environment" / "Dockerfile"
    if file.is_file():
        text = file.read_text(encoding="utf-8")
    elif task.config.environment.docker_image:
        text = f"FROM {task.config.environment.docker_image}\n"
    else:
        raise ImageError(f"task {task.name} has neither {file} nor [environment].docker_image")
    if task.config.environment.workdir:
        text = f"{text}\nWORKDIR {task.config.environment.workdir}\n"
    hand_over = _HAND_OVER.format(user=agent_user(task, config))
    return f"{text}\nUSER root\nRUN {json.dumps(['/bin/sh', '-c', hand_over])}\n"


def _content_digest(task: Task, dockerfile: str, config: SandboxConfig) -> str:
    """Over the context, the Dockerfile as built and the ids of the images it starts from."""
    context = task.path / "environment"
    parts = [dockerfile, digest_directory(context) if context.is_dir() else ""]
    stages: set[str] = set()
    for image, stage in _FROM.findall(dockerfile):
        if image not in stages and image != "scratch" and "$" not in image:
            parts.append(_image_id(image, config))
        stages.add(stage)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _image_id(image: str, config: SandboxConfig) -> str:
    """The local id of an image to start from; one that is missing is pulled, except our own base image."""
    import docker

    client = engine.connect()
    try:
        return str(client.images.get(image).id)
    except docker.errors.ImageNotFound:
        if image == config.base_image:
            raise ImageError(f"the base image {image} is not here; `make setup` builds it") from None
    with _locks[image]:
        try:
            repository, _, tag = (
                image.partition("@")[0].rpartition(":") if ":" in image.split("/")[-1] else (image, "", "")
            )
            pulled = client.images.pull(
                image if "@" in image else repository, tag=None if "@" in image else tag or "latest"
            )
        except (docker.errors.APIError, docker.errors.DockerException) as error:
            raise ImageError(
                f"image {image} is not here and cannot be pulled ({error}); `docker pull` or load it"
            ) from error
        return str(pulled.id)


def _build(task: Task, dockerfile: str, tag: str) -> str:
    """Build, tag and return the id. The build's steps have no network."""
    import docker

    limit_s = task.config.environment.build_timeout_sec
    try:
        stream = engine.connect().api.build(
            fileobj=_context(task.path / "environment", dockerfile),
            custom_context=True,
            dockerfile=".nightschool.Dockerfile",
            tag=tag,
            rm=True,
            forcerm=True,
            network_mode="none",
            decode=True,
            labels={
                engine.LABEL: "1",
                engine.RUN_LABEL: "images",
                engine.EXPIRES_LABEL: str(int(time.time() + KEEP_S)),
            },
        )
        _follow(stream, task, time.monotonic() + limit_s)
        return str(engine.connect().images.get(tag).id)
    except docker.errors.DockerException as error:
        raise ImageError(f"the image of task {task.name} was not built: {error}") from error


def _follow(stream: Any, task: Task, deadline: float) -> None:
    """Read the build's log to its end, or raise with the last lines of it."""
    log: list[str] = []
    for line in stream:
        log.append(str(line.get("stream") or line.get("error") or ""))
        if "error" in line:
            raise ImageError(
                f"the image of task {task.name} was not built; end of the log:\n{''.join(log[-20:]).strip()}"
            )
        if time.monotonic() > deadline:
            stream.close()
            raise ImageError(
                f"the image of task {task.name} was not built within [environment].build_timeout_sec"
            )


def _context(directory: Path, dockerfile: str) -> io.BytesIO:
    """The build context as a tar, without what .dockerignore names, with our Dockerfile beside theirs."""
    from docker.utils.build import exclude_paths

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        if directory.is_dir():
            ignore = directory / ".dockerignore"
            patterns = ignore.read_text().splitlines() if ignore.is_file() else []
            for name in sorted(
                exclude_paths(str(directory), [line.strip() for line in patterns if line.strip()])
            ):
                tar.add(directory / name, arcname=name, recursive=False, filter=_unowned)
        data = dockerfile.encode()
        info = tarfile.TarInfo(".nightschool.Dockerfile")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    buffer.seek(0)
    return buffer


def _unowned(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owner and times of a checkout must not decide what the build's cache sees."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info
