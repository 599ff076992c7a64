"""The Prefect API that a night reports to: the one at PREFECT_API_URL, or a small one of our own for as long
as it runs.

Keeps true: our own keeps its database under the home directory, listens on loopback, is not reached by the
terminal's Ctrl-C (the flow still has to tell it how it ended), and ends with us however we end. Prefect's own
ephemeral server does neither of the last two. It starts in the background; `ready` waits.
"""

import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import StorageError

if TYPE_CHECKING:
    from serving.process import Child

START_TIMEOUT_S = 90.0
POLL_S = 0.1
PARTS = ("flows", "tasks", "storage", "sandbox", "serving")


class PrefectApi:
    """The API, perhaps still on its way up."""

    def __init__(self, child: "Child | None", url: str) -> None:
        self._child, self.url = child, url

    def ready(self) -> None:
        """Wait until it answers. Raises StorageError with the end of its log if it does not."""
        if self._child is None:
            return
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._child.exit_code is None:
            if _answers(self.url):
                return
            time.sleep(POLL_S)
        raise StorageError(
            f"the Prefect server did not come up; the end of {self._child.log}:\n{self._child.log_tail()}"
        )


@contextmanager
def prefect_api(prefect_home: Path) -> Iterator[PrefectApi]:
    """Set the environment that Prefect reads when it is imported, and run a server if none is named.

    Must be entered before anything imports prefect.
    """
    _defaults(prefect_home)
    if os.environ.get("PREFECT_API_URL"):
        yield PrefectApi(None, os.environ["PREFECT_API_URL"])
        return
    from serving.process import Child
    from serving.server import free_port

    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    env = {
        **os.environ,
        "PREFECT__SERVER_EPHEMERAL": "1",
        "PREFECT__SERVER_FINAL": "1",
        "PREFECT_UI_ENABLED": "0",
    }
    child = Child([sys.executable, "-m", "flows.prefect_server", str(port)], prefect_home / "server.log", env)
    os.environ["PREFECT_API_URL"] = url
    try:
        yield PrefectApi(child, url)
    finally:
        os.environ.pop("PREFECT_API_URL", None)
        child.stop()


def _defaults(prefect_home: Path) -> None:
    os.environ.setdefault("PREFECT_HOME", str(prefect_home))
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_LOGGING_EXTRA_LOGGERS", ",".join(PARTS))
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "90")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2.0) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def main(port: int) -> None:
    """The child: Prefect's API on loopback until its parent is gone."""
    import uvicorn
    from prefect.server.api.server import create_app

    from serving.process import exit_with_parent

    exit_with_parent()
    uvicorn.run(create_app(), host="127.0.0.1", port=port, log_level="error", lifespan="on")


if __name__ == "__main__":
    main(int(sys.argv[1]))
