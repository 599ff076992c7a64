"""SkyRL's Tinker API on loopback, with a key, its engine started by our own interpreter.

Keeps true: nobody without the key gets an answer but `healthz`'s; the engine is started without `uv run`; when the process
that started this one dies, this one ends and takes the engine along. Leaves to others: supervision (serving.server).
"""

import argparse
import hmac
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import skyrl.tinker.api as api
import uvicorn
from fastapi import Request, Response
from fastapi.responses import JSONResponse
from skyrl.tinker.config import EngineConfig, add_model, config_to_argv

from serving.process import exit_with_parent

OPEN_PATHS = frozenset({"/api/v1/healthz"})


def engine_command(_parent: list[str], config: Any) -> list[str]:
    """Replaces SkyRL's `uv run …`: the engine in this very environment."""
    return [sys.executable, "-m", "serving.engine_main", *config_to_argv(config)]


def require_key(
    key: str,
) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    """A middleware that answers 401 to a request without the key."""

    async def check(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix(
            "Bearer "
        )
        if request.url.path in OPEN_PATHS or hmac.compare_digest(given.encode(), key.encode()):
            return await answer(request)
        return JSONResponse({"detail": "wrong or missing API key: send it as X-API-Key"}, status_code=401)

    return check


def main() -> None:
    """The API's entry point: SkyRL's engine arguments, and ours for host, port and key file."""
    parser = argparse.ArgumentParser(description="Tinker API with the torch backend")
    add_model(parser, EngineConfig)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key-file", type=Path, required=True)
    args = vars(parser.parse_args())
    api._build_uv_run_cmd_engine = engine_command
    api.app.middleware("http")(require_key(args["key_file"].read_text().strip()))
    api.app.state.engine_config = EngineConfig.model_validate(
        {k: v for k, v in args.items() if k in EngineConfig.model_fields}
    )
    config = uvicorn.Config(
        api.app,
        host=args["host"],
        port=args["port"],
        log_level="warning",
        timeout_keep_alive=api.HTTP_KEEP_ALIVE_TIMEOUT_SECONDS,
    )
    exit_with_parent()
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
