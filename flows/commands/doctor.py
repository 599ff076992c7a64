"""`doctor`: what is here and what is missing."""

import typer

from flows.call import Call, command
from flows.exits import FAILED


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "doctor")(doctor)


def doctor(call: Call) -> None:
    """What is here and what is missing for a night, each with its remedy."""
    from flows.doctor import checks, report
    from flows.output import table

    found = checks(call.home, call.config)
    document = report(found)
    rows = [
        ("ok" if each.ok else "MISSING" if each.required else "note", each.name, each.detail, each.remedy)
        for each in found
    ]
    call.output.emit(document, lambda console: console.print(table(("", "check", "detail", "remedy"), rows)))
    if not document["ok"]:
        raise typer.Exit(FAILED)
