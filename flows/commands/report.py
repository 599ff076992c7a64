"""`report` and `status`: what happened, and what is going on."""

from typing import Annotated, Any

import typer

from flows.call import Call, command
from flows.exits import USAGE, Stop


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    command(app, "report")(report)
    command(app, "status")(status)


def report(
    call: Call,
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="A run's id or its beginning (default: the last night)."),
    ] = None,
) -> None:
    """A night in one screen, and its page."""
    from storage.runs import Run
    from tasks.report.html import write_report
    from tasks.report.terminal import summary

    found = Run.open(call.home, run) if run else Run.latest(call.home, "nightly")
    if found is None:
        raise Stop(USAGE, f"there was no night in {call.home.root} yet. Run one: nightschool nightly")
    page = write_report(call.home, found.id)
    manifest = found.manifest()
    document = {
        "run": found.id,
        "state": manifest.get("state"),
        "promotion": manifest.get("promotion"),
        "report": str(page),
        "stages": [event for event in found.events() if event["name"] == "stage"],
    }
    call.output.emit(document, lambda console: console.print(summary(call.home, found.id)))


def status(call: Call) -> None:
    """What runs now, what ran last, what prod is."""
    from dataclasses import asdict

    from flows.doctor import holder
    from flows.output import pairs
    from flows.runs import LOCK
    from serving.endpoint import status
    from storage.registry import Registry
    from storage.runs import Run

    last = Run.latest(call.home)
    shown = {key: value for key, value in (last.manifest() if last else {}).items() if key != "config"}
    endpoint = status(call.home.serving)
    document: dict[str, Any] = {
        "home": str(call.home.root),
        "working": holder(call.home.locks / LOCK),
        "last_run": shown or None,
        "refs": asdict(Registry(call.home).refs()),
        "endpoint": {"running": endpoint.running, "url": endpoint.url},
    }
    call.output.emit(document, lambda console: console.print(pairs(document)))
