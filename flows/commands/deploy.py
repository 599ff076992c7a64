"""`deploy`: register the nightly deployment with a Prefect server."""

import os
from typing import Annotated

import typer

from flows.call import Call, command
from flows.exits import FAILED, USAGE, Stop


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "deploy")(deploy)


def deploy(
    call: Call,
    cron: Annotated[str, typer.Option(help="When the night begins.")] = "0 2 * * *",
    timezone: Annotated[str, typer.Option(help="Of the time, such as Europe/Berlin.")] = "UTC",
) -> None:
    """Register the nightly deployment, its work pool and its zombie automation with the server at
    PREFECT_API_URL.

    Doing it again changes nothing else. A worker then runs it: prefect worker start --pool gpu
    """
    from flows.output import pairs

    url = os.environ.get("PREFECT_API_URL")
    if not url:
        raise Stop(
            USAGE,
            "no Prefect server is named. Start one (prefect server start) "
            "and set PREFECT_API_URL to its /api.",
        )
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    from pydantic import ValidationError

    from flows.deployment import ServerUnreachable, register_night

    config_file = call.config_option or _found()
    try:
        document = register_night(call.home, config_file, cron=cron, timezone=timezone)
    except ValidationError as error:
        raise typer.BadParameter(
            f"--cron {cron!r} --timezone {timezone!r}: {error.errors()[0]['msg']}"
        ) from error
    except ServerUnreachable as error:
        raise Stop(
            FAILED, f"no Prefect server answers at {url}: {error}. Start it, or correct PREFECT_API_URL."
        ) from error
    call.output.emit(document, lambda console: console.print(pairs(document)))


def _found() -> "os.PathLike[str] | None":
    from flows.config import DEFAULT_FILE

    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None
