"""`promote` and `rollback`: move prod, on evidence or on a person's word, and back."""

import json
from typing import Annotated, Any

import typer

from flows.call import Call, command
from flows.exits import REFUSED, USAGE, Stop


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    command(app, "promote")(promote)
    command(app, "rollback")(rollback)


def promote(
    call: Call,
    ref: Annotated[str, typer.Argument(metavar="REF", help="The checkpoint that is to be prod.")],
    force: Annotated[bool, typer.Option("--force", help="Without the gate; needs --reason.")] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why it is forced; kept in the evidence.")] = "",
) -> None:
    """Make a checkpoint prod if its last evaluation shows that it is better than the present one.

    Exits with 3, and the reasons, if the gate says no.
    """
    from flows.output import pairs
    from storage.registry import Registry

    checkpoint = Registry(call.home).get(ref)
    result = _forced(call, checkpoint.id, reason) if force else _judged(call, checkpoint.id)
    _publish(call)
    document = result.to_json()
    call.output.emit(document, lambda console: console.print(pairs(document)))
    if not result.promoted:
        raise typer.Exit(REFUSED)


def rollback(call: Call) -> None:
    """Make prod what it was before; again makes it what it was."""
    from dataclasses import asdict

    from flows.output import pairs
    from storage.registry import Registry

    registry = Registry(call.home)
    before, after = registry.refs(), registry.rollback()
    document = {
        "promoted": True,
        "checkpoint": after.prod or "base",
        "previous": before.prod or "base",
        "evidence": None,
        "reasons": ["rolled back by a person"],
        "refs": asdict(after),
    }
    call.output.emit(document, lambda console: console.print(pairs(document)))


def _forced(call: Call, checkpoint: str, reason: str) -> Any:
    from storage.runs import Run
    from tasks.promote.promote import force

    if not reason.strip():
        raise typer.BadParameter("--force needs --reason TEXT: the evidence keeps why")
    run = Run.create(call.home, "promote", {"checkpoint": checkpoint, "force": True, "reason": reason})
    result = force(call.home, checkpoint, reason=reason, evidence=run.path / "evidence.json")
    run.finish("completed")
    return result


def _judged(call: Call, checkpoint: str) -> Any:
    from storage.runs import Run
    from tasks.promote.promote import promote

    evaluations, digests = _last_evaluation(call, checkpoint)
    run = Run.create(call.home, "promote", {"checkpoint": checkpoint, "force": False})
    result = promote(
        call.home,
        checkpoint,
        evaluations,
        evidence=run.path / "evidence.json",
        task_digests=digests,
        config=call.config.promote,
    )
    run.finish("completed")
    return result


def _last_evaluation(call: Call, checkpoint: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The newest comparison in which this checkpoint was the candidate, and the digests of its tasks."""
    from storage.errors import StorageError
    from storage.registry import Registry
    from storage.runs import Run

    registry = Registry(call.home)
    for path in sorted(call.home.runs.glob("*/evaluations.json"), reverse=True):
        evaluations = json.loads(path.read_bytes())
        refs = {model["name"]: model["ref"] for model in evaluations["models"]}
        run = Run.open(call.home, path.parent.name)
        digests = [event["digests"] for event in run.events() if event["name"] == "tasks"]
        ref = refs[evaluations["candidate"]]
        try:
            same = ref != "base" and registry.resolve(ref) == checkpoint
        except StorageError:
            continue
        if same and digests and evaluations["candidate"] != evaluations["incumbent"]:
            return evaluations, digests[-1]
    against = registry.refs().prod or "base"
    raise Stop(
        USAGE,
        f"{checkpoint} was not compared with anything yet. Run: "
        f"nightschool evaluate {checkpoint} --against {against}",
    )


def _publish(call: Call) -> None:
    """Make the checkpoints answerable at the standing endpoint, if it ever ran here."""
    if (call.home.serving / "tinker.db").exists():
        from tasks.publish import publish

        with call.output.progress() as progress:
            publish(call.home, call.model_dir(progress))
