"""`tasks`: list and audit Harbor tasks."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.call import Call, command, group
from flows.exits import REFUSED, USAGE, Stop


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    tasks = group(app, "Harbor-format tasks: what an agent is trained and judged on.", "tasks")
    command(tasks, "check")(check)
    command(tasks, "list")(list_)


def check(
    call: Call, folders: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Folders of tasks.")]
) -> None:
    """Audit tasks: the solution passes, doing nothing fails, a planted reward fails, and twice the same
    verdict.

    Exits with 3 if a task cannot be believed.
    """
    from dataclasses import asdict

    from flows.output import table
    from sandbox.audit import audit
    from tasks.progress import ProgressEvent

    found = load(folders)
    audits: list[dict[str, Any]] = []
    with call.output.progress() as progress:
        for task in found:
            audits.append(asdict(audit(task, call.config.sandbox)))
            progress(ProgressEvent("check", len(audits), len(found), task.name))
    columns = ("name", "ok", "oracle", "noop", "planted", "flaky", "problems")
    rows = [[each[column] for column in columns] for each in audits]
    call.output.emit({"tasks": audits}, lambda console: console.print(table(columns, rows)))
    if not all(each["ok"] for each in audits):
        raise typer.Exit(REFUSED)


def list_(
    call: Call,
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR…]", help="Folders (default: the configuration's).")
    ] = None,
) -> None:
    """The tasks of these folders, or of the configuration."""
    from flows.output import table

    config = call.config
    usual = [config.tasks.train, config.evaluate.heldout, config.evaluate.regression]
    found = load(folders or [folder for folder in usual if folder is not None and folder.is_dir()])
    document = [
        {
            "name": t.name,
            "path": str(t.path),
            "digest": t.digest,
            "instruction": t.instruction,
            "has_solution": t.has_solution,
        }
        for t in found
    ]
    rows = [(t.name, t.digest[:12], t.has_solution, t.path) for t in found]
    call.output.emit(
        {"tasks": document},
        lambda console: console.print(table(("name", "digest", "solution", "path"), rows)),
    )


def load(folders: list[Path]) -> list[Any]:
    """All tasks below these folders. Raises Stop for a folder that is not there or has none."""
    from sandbox.harbor import load_tasks

    found = []
    for folder in folders:
        if not folder.is_dir():
            raise Stop(USAGE, f"{folder}: there is no such folder.")
        members = load_tasks(folder)
        if not members:
            raise Stop(USAGE, f"{folder}: there are no tasks in it; a task is a folder with a task.toml.")
        found += members
    return found
