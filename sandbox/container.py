"""One container in which an agent, or a verifier, runs commands.

Keeps true: no network, no capability beyond those named, no new privileges, limits on memory, cpu, processes
and files, no mounts, no engine log. Pid 1 belongs to root and ends by itself when the container's time is
over; an agent's commands run as another user. Output is read bounded and time limits really kill. Leaves to
others: what is run, and what it means.
"""

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sandbox import engine
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxError, SandboxStopped
from sandbox.streams import Output, read_output

SLACK_S = 120.0
_END_S = 3.0
_MARK = "NIGHTSCHOOL_EXEC"
_KILL = 'for p in /proc/[0-9]*; do grep -qs "$0" "$p/environ" && kill -9 "${p#/proc/}"; done'
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class ExecResult:
    """What a command did. `exit_code` is None where it was killed for time or output."""

    exit_code: int | None
    output: str
    truncated: bool
    timed_out: bool
    seconds: float


@dataclass(frozen=True)
class Limits:
    """What one container may use, and for how long it may exist (seconds)."""

    cpus: float
    memory_mb: int
    pids: int
    file_mb: int
    lifetime_s: float


class Sandbox:
    """A running container. Use as a context manager: leaving it removes the container.

    Raises:
        DockerUnavailable, SandboxError: the container cannot be made or started.
    """

    def __init__(
        self,
        image: str,
        config: SandboxConfig,
        *,
        user: str,
        run_id: str,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        capabilities: Sequence[str] = (),
        start: bool = True,
    ) -> None:
        self.user = user
        self.image = image
        self.deadline = time.monotonic() + limits.lifetime_s
        self._config = config
        self._env = dict(env or {})
        self._client = engine.connect()
        # Two SLACK_S: the container is still there to be read when the time of those inside is over.
        options = _options(
            config, limits, capabilities, command or ["sleep", str(int(limits.lifetime_s + SLACK_S))]
        )
        made = self._call(
            self._client.api.create_container,
            image,
            environment=self._env,
            labels=engine.labels(run_id, limits.lifetime_s + 2 * SLACK_S),
            host_config=self._client.api.create_host_config(**options.pop("host")),
            **options,
        )
        self.id: str = made["Id"]
        self.workdir: str = self._inspect()["Config"]["WorkingDir"] or "/"
        if start:
            try:
                self.start()
            except BaseException:
                self.remove()
                raise

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def start(self) -> None:
        """Start it, again after a kill if need be; files are kept."""
        self._call(self._client.api.start, self.id)

    def kill(self) -> None:
        """End every process inside, at once. A container that has ended already is fine."""
        import docker

        try:
            self._client.api.kill(self.id)
        except docker.errors.APIError as error:
            if error.status_code not in (404, 409):
                raise SandboxError(f"cannot kill container {self.id[:12]}: {error}") from error

    def remove(self) -> None:
        """Remove it with all it holds; never fails for a container that is gone."""
        import docker

        try:
            self._client.api.remove_container(self.id, force=True, v=True)
        except docker.errors.APIError as error:
            if error.status_code not in (404, 409):
                raise SandboxError(f"cannot remove container {self.id[:12]}: {error}") from error

    def remaining(self) -> float:
        """Seconds left of the container's time, 0 at the end."""
        return max(0.0, self.deadline - time.monotonic())

    def exec(
        self,
        command: str,
        timeout_s: float | None = None,
        max_output_bytes: int | None = None,
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ExecResult:
        """Run `command` in bash, in the working directory, as the agent's user; stdout and stderr
        come as one.

        It ends when the shell does: what it leaves in the background runs on. At `timeout_s` seconds, or when
        the container's time is over, or far beyond `max_output_bytes`, it is killed with all its children.

        Raises:
            SandboxStopped: the container is gone or has ended.
        """
        started = time.monotonic()
        timeout_s = min(timeout_s or self.remaining(), self.remaining())
        kept = max_output_bytes or self._config.max_output_bytes
        mark = f"{_MARK}={secrets.token_hex(8)}"
        made = self._call(
            self._client.api.exec_create,
            self.id,
            # One shell sets the merged stream up and then becomes the command's bash.
            ["/bin/sh", "-c", 'exec /bin/bash -c "$1" 2>&1', "sh", command],
            user=user or self.user,
            environment=[mark, *(f"{name}={value}" for name, value in (env or {}).items())],
        )
        socket = self._call(self._client.api.exec_start, made["Id"], socket=True)
        output = read_output(
            socket, started + timeout_s, kept, lambda: self._exec_state(made["Id"])["Running"]
        )
        if output.cut:
            self._end_exec(made["Id"], mark, user or self.user)
        code = None if output.cut else self._exec_state(made["Id"])["ExitCode"]
        return _result(output, code, time.monotonic() - started)

    def put(self, path: str, tar: Any) -> None:
        """Unpack a tar (bytes or a file) at `path`, which must exist; owners and modes are the tar's."""
        self._call(self._client.api.put_archive, self.id, path, tar)

    @contextmanager
    def get(self, path: str) -> Iterator[Iterator[bytes]]:
        """`path` as the chunks of a tar, empty if there is no such path; works on an ended container too.

        Leaving the context early ends the download: docker-py's own call would keep the container locked.
        """
        api = self._client.api
        url = f"{api.base_url}/v{api.api_version}/containers/{self.id}/archive"
        with self._call(api.get, url, params={"path": path}, stream=True, timeout=api.timeout) as response:
            if response.status_code == 404 and "No such container" not in response.text:
                yield iter([bytes(1024)])  # a tar of nothing
                return
            if response.status_code != 200:
                raise SandboxStopped(
                    f"cannot read {path} of container {self.id[:12]}: {response.text.strip()}"
                )
            yield response.iter_content(1 << 17)

    def changes(self) -> list[tuple[str, str]]:
        """(kind, path) of all that differs from the image; kind is `changed`, `added` or `deleted`."""
        kinds = ("changed", "added", "deleted")
        return [
            (kinds[item["Kind"]], item["Path"]) for item in self._call(self._client.api.diff, self.id) or []
        ]

    def wait(self, timeout_s: float) -> int | None:
        """The exit code once pid 1 has ended, or None when `timeout_s` seconds are over."""
        from requests.exceptions import ConnectionError as Disconnected
        from requests.exceptions import Timeout

        try:
            return int(self._client.api.wait(self.id, timeout=math.ceil(timeout_s))["StatusCode"])
        except (Timeout, Disconnected):
            return None

    def out_of_memory(self) -> bool:
        """Whether the kernel killed something inside for memory."""
        return bool(self._inspect()["State"]["OOMKilled"])

    def _end_exec(self, exec_id: str, mark: str, user: str) -> None:
        """Kill an exec's processes by the mark in their environment; where that fails, all processes."""
        try:
            made = self._client.api.exec_create(self.id, ["/bin/sh", "-c", _KILL, mark], user=user)
            self._client.api.exec_start(made["Id"], detach=True)
            if self._within(_END_S, lambda: not self._exec_state(exec_id)["Running"]):
                return
        except Exception:
            # A fork bomb leaves no process for the killer: the hard way follows.
            pass
        self.kill()
        self._within(_END_S, lambda: not self._inspect()["State"]["Running"])
        self.start()

    def _within(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Whether `done` came true in time."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def _exec_state(self, exec_id: str) -> dict[str, Any]:
        state: dict[str, Any] = self._call(self._client.api.exec_inspect, exec_id)
        return state

    def _inspect(self) -> dict[str, Any]:
        state: dict[str, Any] = self._call(self._client.api.inspect_container, self.id)
        return state

    def _call(self, function: Any, *args: Any, **options: Any) -> Any:
        """One call of the engine, its errors turned into ours."""
        import docker
        from requests.exceptions import RequestException

        try:
            return function(*args, **options)
        except docker.errors.APIError as error:
            if error.status_code in (404, 409):
                raise SandboxStopped(
                    f"the container is gone or has ended: {error.explanation or error}"
                ) from error
            raise SandboxError(
                f"the Docker engine refused {function.__name__}: {error.explanation or error}"
            ) from error
        except (RequestException, docker.errors.DockerException, OSError) as error:
            raise SandboxError(
                f"the Docker engine did not answer {function.__name__}: {error}; {engine.REMEDY}"
            ) from error


def _options(
    config: SandboxConfig, limits: Limits, capabilities: Sequence[str], command: Sequence[str]
) -> dict[str, Any]:
    """What a container is created with; `host` are the options of its host config."""
    from docker.types import LogConfig, Ulimit

    file_bytes = limits.file_mb * 1024 * 1024
    host = {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": list(capabilities),
        "security_opt": ["no-new-privileges"],
        "init": True,
        "mem_limit": f"{limits.memory_mb}m",
        "memswap_limit": f"{limits.memory_mb}m",
        "nano_cpus": int(limits.cpus * 1e9),
        "pids_limit": limits.pids,
        "log_config": LogConfig(type="none"),
        "runtime": config.runtime,
        "ipc_mode": "private",
        "ulimits": [
            Ulimit(name="fsize", soft=file_bytes, hard=file_bytes),
            Ulimit(name="nofile", soft=4096, hard=4096),
            Ulimit(name="core", soft=0, hard=0),
        ],
    }
    # Pid 1 is root's, with no capability, so that no agent can end the container.
    return {"host": host, "entrypoint": list(command), "command": [], "user": "0:0", "hostname": "sandbox"}


def _result(output: Output, code: int | None, seconds: float) -> ExecResult:
    text = output.text
    return ExecResult(code, text, output.truncated, output.cut == "time", seconds)
