"""The standing Tinker endpoint: one supervised server in the background, started and stopped by name.

Keeps true: at most one per state folder; its supervisor restarts a server that dies and takes it along when it ends; what
it says of itself is checked against the process that runs. Leaves to others: which checkpoints it answers for (catalog).
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from serving.config import EndpointConfig, EngineConfig
from serving.errors import ServerFailed, ServingError
from serving.process import LOG_TAIL_BYTES, stop_tree
from serving.server import START_TIMEOUT_S, answers

STATE_FILE, SUPERVISOR_LOG, SERVER_LOG = "endpoint.json", "supervisor.log", "server.log"
POLL_S = 0.3

_started: dict[int, "subprocess.Popen[bytes]"] = {}
"""Supervisors that this process started: they outlive it, and are reaped here if they end before."""


@dataclass(frozen=True)
class Endpoint:
    """What runs where. `model` is the base model's directory, which is also the name clients give for it."""

    running: bool
    url: str | None
    api_key_file: str | None
    model: str | None
    pid: int | None


NOT_RUNNING = Endpoint(running=False, url=None, api_key_file=None, model=None, pid=None)


def start(state_dir: Path, model_dir: Path, engine: EngineConfig, endpoint: EndpointConfig) -> Endpoint:
    """Starts the endpoint and waits until it answers; the one that runs already is left as it is.

    Raises:
        ServingError: the port is taken by something else.
        ServerFailed: it did not come up; the message holds the end of its log.
    """
    current = status(state_dir)
    if current.running:
        return current
    if _port_taken(endpoint):
        raise ServingError(
            f"port {endpoint.port} on {endpoint.host} is taken by another program; choose one with [serve] port in nightschool.toml"
        )
    state_dir.mkdir(parents=True, exist_ok=True)
    settings = {"model_dir": str(model_dir), "engine": engine.model_dump(), "endpoint": endpoint.model_dump()}
    with (state_dir / SUPERVISOR_LOG).open("ab") as sink:
        supervisor: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", "serving.endpoint_main", str(state_dir), json.dumps(settings)],
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
        )  # fmt: skip
    _started[supervisor.pid] = supervisor
    return _wait(state_dir, supervisor)


def stop(state_dir: Path) -> bool:
    """Stops the endpoint with all its processes; False if none ran."""
    current = status(state_dir)
    if current.running and current.pid:
        stop_tree(current.pid)
        if mine := _started.pop(current.pid, None):
            mine.wait()
    (state_dir / STATE_FILE).unlink(missing_ok=True)
    return current.running


def status(state_dir: Path) -> Endpoint:
    """What runs now, by the process table and not by the file alone."""
    try:
        state = json.loads((state_dir / STATE_FILE).read_text())
        started = psutil.Process(state["pid"]).create_time()
    except (OSError, ValueError, KeyError, psutil.NoSuchProcess):
        return NOT_RUNNING
    if abs(started - state["create_time"]) > 1.0:  # the number was given to another process since
        return NOT_RUNNING
    return Endpoint(True, state["url"], state["api_key_file"], state["model"], state["pid"])


def logs(state_dir: Path) -> str:
    """The end of the supervisor's and the server's logs."""
    parts = []
    for name in (SUPERVISOR_LOG, SERVER_LOG):
        path = state_dir / name
        if path.exists():
            parts.append(f"== {path}\n" + path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace"))
    return "\n".join(parts)


def describe(state_dir: Path, url: str, key_file: Path, model: str) -> None:
    """Called by the supervisor: writes what it runs."""
    me = psutil.Process()
    state = asdict(Endpoint(True, url, str(key_file), model, me.pid)) | {"create_time": me.create_time()}
    beside = state_dir / f".{STATE_FILE}.{me.pid}"
    beside.write_text(json.dumps(state))
    os.replace(beside, state_dir / STATE_FILE)


def _wait(state_dir: Path, supervisor: "subprocess.Popen[bytes]") -> Endpoint:
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            current = status(state_dir)
            if current.running and current.url and answers(current.url):
                return current
            if supervisor.poll() is not None:
                raise ServerFailed(f"the endpoint did not come up:\n{logs(state_dir)[-LOG_TAIL_BYTES:]}")
            time.sleep(POLL_S)
    except BaseException:
        stop_tree(supervisor.pid)
        raise
    stop_tree(supervisor.pid)
    raise ServerFailed(
        f"the endpoint did not answer within {START_TIMEOUT_S:.0f} s; see nightschool serve logs"
    )


def _port_taken(endpoint: EndpointConfig) -> bool:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((endpoint.host, endpoint.port))
        except OSError:
            return True
    return False


def client(state_dir: Path) -> Any:
    """A tinker `ServiceClient` on the running endpoint.

    Raises:
        ServingError: it does not run.
    """
    current = status(state_dir)
    if not current.running or not current.url or not current.api_key_file:
        raise ServingError("the endpoint is not running; start it with: nightschool serve start")
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    import tinker

    return tinker.ServiceClient(base_url=current.url, api_key=Path(current.api_key_file).read_text().strip())
