"""Child processes that never outlive their purpose: started in a session of their own, ended with their whole tree.

Keeps true: `stop` leaves no descendant alive whatever process group it moved to; a child that calls `exit_with_parent`
ends soon after its parent, even if that was killed with -9. Leaves to others: what the child does.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

PARENT_POLL_S = 1.0
GRACE_S = 10.0  # between SIGTERM and SIGKILL
LOG_TAIL_BYTES = 4000


def exit_with_parent() -> None:
    """Ends this process (SIGTERM to itself, then a hard exit) once the process that started it is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="exit-with-parent", daemon=True).start()


class Child:
    """A running child with its log file."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.command, self.log = list(command), log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=env,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id, which is its process group's too."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def log_tail(self) -> str:
        """The end of what it wrote."""
        data = self.log.read_bytes() if self.log.exists() else b""
        return data[-LOG_TAIL_BYTES:].decode(errors="replace").strip()

    def stop(self) -> None:
        """Ends it and everything it started."""
        stop_tree(self.pid)
        self._process.wait()


def stop_tree(pid: int, grace_s: float = GRACE_S) -> None:
    """SIGTERM to a process and all its descendants, SIGKILL to what is left after `grace_s`."""
    try:
        root = psutil.Process(pid)
        tree = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for process in tree:
        _signal(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(tree, timeout=grace_s)
    for process in alive:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=grace_s)


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        pass
