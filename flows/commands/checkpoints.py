"""`checkpoints`: the registry."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.call import Call, command, group

Ref = Annotated[
    str,
    typer.Argument(
        metavar="REF", help="An id or its beginning, prod, canary, previous, or a tinker:// path."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    checkpoints = group(app, "Every checkpoint that was trained here.", "checkpoints")
    command(checkpoints, "list")(list_)
    command(checkpoints, "show")(show)
    command(checkpoints, "lineage")(lineage)
    command(checkpoints, "export")(export)


def list_(call: Call) -> None:
    """All checkpoints, the oldest first, with the names that point at them."""
    from dataclasses import asdict

    from flows.output import table
    from storage.registry import Registry

    registry = Registry(call.home)
    refs = asdict(registry.refs())
    found = [_described(checkpoint, refs) for checkpoint in registry.list()]
    columns = ("id", "names", "kind", "parents", "steps", "metrics", "created_at")
    rows = [[each.get(column) for column in columns] for each in found]
    document = {"checkpoints": found, "refs": refs}
    call.output.emit(document, lambda console: console.print(table(columns, rows)))


def show(call: Call, ref: Ref) -> None:
    """One checkpoint: what it was made from, and how. Its files are verified."""
    from dataclasses import asdict

    from flows.output import pairs
    from storage.registry import Registry

    registry = Registry(call.home)
    document = _described(registry.get(ref), asdict(registry.refs()))
    call.output.emit(document, lambda console: console.print(pairs(document)))


def lineage(call: Call, ref: Ref) -> None:
    """Everything a checkpoint comes from: its parents, their datasets, and the traces in those."""
    from flows.output import table
    from storage.registry import Registry

    steps = _line(call, Registry(call.home).get(ref))
    rows = [
        (step["checkpoint"], step["kind"], step["run"], step["dataset"], step["lake"], step["parents"])
        for step in steps
    ]
    columns = ("checkpoint", "kind", "run", "dataset", "lake version", "parents")
    call.output.emit({"lineage": steps}, lambda console: console.print(table(columns, rows)))


def export(
    call: Call,
    ref: Ref,
    form: Annotated[
        Literal["peft", "merged"],
        typer.Option("--as", help="peft: the adapter alone; merged: a whole transformers model."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to; must not be there yet (default: ./ID-FORM).")
    ] = None,
) -> None:
    """Write a checkpoint for other programs.

    Example: nightschool checkpoints export prod --as merged --out my-model
    """
    from flows.output import pairs
    from storage.registry import Registry
    from tasks.export import export

    checkpoint = Registry(call.home).get(ref)
    target = out or Path(f"{checkpoint.id}-{form}")
    with call.output.progress() as progress:
        export(checkpoint, call.model_dir(progress), form, target)
    document = {"checkpoint": checkpoint.id, "as": form, "path": str(target.resolve())}
    call.output.emit(document, lambda console: console.print(pairs(document)))


def _described(checkpoint: Any, refs: dict[str, str | None]) -> dict[str, Any]:
    names = [name for name, id in refs.items() if id == checkpoint.id]
    return {
        **checkpoint.manifest,
        "id": checkpoint.id,
        "names": names,
        "path": checkpoint.tinker_path,
        "folder": str(checkpoint.path),
    }


def _line(call: Call, checkpoint: Any) -> list[dict[str, Any]]:
    """The checkpoint and its ancestors, nearest first."""
    from storage import datasets
    from storage.errors import NotFound
    from storage.registry import Registry

    registry, queue, found = Registry(call.home), [checkpoint], {}
    while queue:
        each = queue.pop(0)
        manifest, dataset = each.manifest, each.manifest.get("dataset")
        try:
            versions = datasets.read_manifest(call.home, dataset).get("parents", []) if dataset else []
        except NotFound:
            versions = []
        found[each.id] = {
            "checkpoint": each.id,
            "kind": manifest.get("kind"),
            "run": manifest.get("run"),
            "dataset": dataset,
            "lake": versions,
            "tasks": manifest.get("tasks"),
            "parents": each.parents,
        }
        queue += [registry.get(parent) for parent in each.parents if parent != "base" and parent not in found]
    return list(found.values())
