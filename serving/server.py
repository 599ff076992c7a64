"""SkyRL's Tinker server as a supervised child of this process: the one way anything here trains or samples.

Keeps true: it listens on loopback with a key of its own, keeps its state in the folder it is given, is ready when `with`
hands it out, and is gone with its whole tree when the block ends, however it ends. A wait for its answer never outlives it.
"""

import json
import os
import secrets
import socket
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from serving.config import EngineConfig
from serving.errors import ServerFailed
from serving.process import Child

START_TIMEOUT_S = 300.0  # a large model on a cold disk
POLL_S = 0.2
RESULT_POLL_S = 2.0
READY_LINE = "Initialized TinkerEngine"
KEY_PREFIX = "tml-"  # the tinker SDK refuses keys that begin otherwise


class Pending[T](Protocol):
    """What the tinker SDK hands out for a request on its way."""

    def result(self, timeout: float | None = None) -> T:
        """Its result, once there; raises TimeoutError after `timeout` seconds."""
        ...


def new_key() -> str:
    """A fresh API key the tinker SDK accepts."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def free_port() -> int:
    """A TCP port of loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TinkerServer:
    """One server on one base model.

    Args:
        model_dir: directory of the base model; also the name under which the server knows it.
        state_dir: where its database, checkpoints, key and log live.
        engine: the engine's settings.
        host, port: where it listens; port 0 takes a free one.

    Raises:
        ServerFailed: it did not come up, or died while it was needed.
    """

    def __init__(
        self,
        model_dir: Path,
        state_dir: Path,
        engine: EngineConfig,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.model_dir, self.state_dir, self.engine = (
            Path(model_dir).resolve(),
            Path(state_dir).resolve(),
            engine,
        )
        self.host, self.port = host, port or free_port()
        self._child: Child | None = None
        self._services: list[Any] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    @property
    def base_model(self) -> str:
        """The name clients give for the base model."""
        return str(self.model_dir)

    @property
    def api_key(self) -> str:
        """The key that clients must send."""
        return self.key_file.read_text().strip()

    @property
    def key_file(self) -> Path:
        """Where the key lies, readable by its owner alone."""
        return self.state_dir / "api_key"

    @property
    def log(self) -> Path:
        """What the API and the engine wrote."""
        return self.state_dir / "server.log"

    @property
    def pid(self) -> int | None:
        """Its process id; None when it is not running."""
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Starts it and waits until it answers and its model is loaded."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        if not self.key_file.exists():
            write_secret(self.key_file, new_key())
        read_from = self.log.stat().st_size if self.log.exists() else 0
        self._child = Child(self._command(), self.log, env=_environment())
        try:
            self._wait_until_ready(read_from)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends it, and the heartbeats of its clients; a no-op when it is not running."""
        while self._services:
            self._services.pop().holder.close()
        if self._child:
            self._child.stop()
            self._child = None

    def check(self) -> None:
        """Raises ServerFailed if it is no longer running."""
        if self._child is None or self._child.exit_code is not None:
            tail = self._child.log_tail() if self._child else "it was never started"
            raise ServerFailed(f"the training server died; the end of {self.log}:\n{tail}")

    def result[T](self, pending: Pending[T], timeout_s: float | None = None) -> T:
        """Waits for an answer for as long as the server lives.

        Raises:
            ServerFailed: it died while we waited, or the request took longer than `timeout_s`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                return pending.result(timeout=RESULT_POLL_S)
            except (TimeoutError, FutureTimeoutError) as error:
                self.check()
                if deadline is not None and time.monotonic() > deadline:
                    raise ServerFailed(
                        f"no answer from {self.url} within {timeout_s:.0f} s; see {self.log}"
                    ) from error

    def connect(self) -> Any:
        """A tinker `ServiceClient` on this server, with the SDK's telemetry off; it ends with the server."""
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        import tinker

        service = tinker.ServiceClient(base_url=self.url, api_key=self.api_key)
        self._services.append(service)
        return service

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _command(self) -> list[str]:
        options = {
            "base-model": self.base_model,
            "backend": self.engine.backend,
            "backend-config": json.dumps(self.engine.backend_config()),
            "checkpoints-base": str(self.state_dir / "checkpoints"),
            "database-url": f"sqlite:///{self.state_dir / 'tinker.db'}",
            "host": self.host,
            "port": str(self.port),
            "key-file": str(self.key_file),
        }
        return [
            sys.executable,
            "-m",
            "serving.api_main",
            *(part for k, v in options.items() for part in (f"--{k}", v)),
        ]

    def _wait_until_ready(self, read_from: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            self.check()
            with self.log.open("rb") as log:
                log.seek(read_from)
                loaded = READY_LINE.encode() in log.read()
            if loaded and answers(self.url):
                return
            time.sleep(POLL_S)
        raise ServerFailed(
            f"the training server did not get ready within {START_TIMEOUT_S:.0f} s; see {self.log}"
        )


def answers(url: str, timeout_s: float = 2.0) -> bool:
    """Whether a Tinker server says it is well at `url`."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/healthz", timeout=timeout_s) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def write_secret(path: Path, text: str) -> None:
    """Writes `text` for the owner's eyes only."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text + "\n")
    os.replace(beside, path)


def _environment() -> dict[str, str]:
    """The child's environment: ours, offline (nothing leaves the machine) and without SkyRL's own database setting."""
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DO_NOT_TRACK": "1",
    }
    return {k: v for k, v in os.environ.items() if k != "SKYRL_DATABASE_URL"} | quiet
