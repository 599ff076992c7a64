"""The endpoint's supervisor: keeps one Tinker server up until it is told to stop.

Keeps true: a server that dies is started again, after a pause that doubles while it keeps dying; SIGTERM ends both.
"""

import json
import logging
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from serving.config import EndpointConfig, EngineConfig
from serving.endpoint import describe
from serving.errors import ServerFailed
from serving.server import TinkerServer

logger = logging.getLogger(__name__)

POLL_S = 0.5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
STEADY_S = 120.0  # a server that lived this long has earned a short pause again


class Stopped(Exception):
    """SIGTERM arrived."""


def _on_term(_number: int, _frame: FrameType | None) -> None:
    raise Stopped


def supervise(server: TinkerServer, state_dir: Path) -> None:
    """Runs `server` for ever; a first start that fails is an error, a later one is tried again."""
    pause, first = FIRST_PAUSE_S, True
    while True:
        started = time.monotonic()
        try:
            server.start()
            describe(state_dir, server.url, server.key_file, server.base_model)
            first = False
            while True:
                server.check()
                time.sleep(POLL_S)
        except ServerFailed as error:
            if first:
                raise
            logger.warning("restarting the server in %.0f s: %s", pause, error)
        finally:
            server.stop()
        pause = FIRST_PAUSE_S if time.monotonic() - started > STEADY_S else min(2 * pause, LONGEST_PAUSE_S)
        time.sleep(pause)


def main() -> None:
    """Arguments: the state folder, and a JSON object with model_dir, engine and endpoint."""
    state_dir, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    signal.signal(signal.SIGTERM, _on_term)
    endpoint = EndpointConfig.model_validate(settings["endpoint"])
    engine = EngineConfig.model_validate(settings["engine"])
    server = TinkerServer(
        Path(settings["model_dir"]), state_dir, engine, host=endpoint.host, port=endpoint.port
    )
    try:
        supervise(server, state_dir)
    except Stopped:
        server.stop()


if __name__ == "__main__":
    main()
