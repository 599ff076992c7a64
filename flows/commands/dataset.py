"""`dataset`: build training rows and look at them."""

from typing import Annotated, Any

import typer

from flows.call import Call, command, group
from flows.exits import USAGE, Stop


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    dataset = group(app, "Training rows, in immutable versions.", "dataset")
    build = group(dataset, "Build a new version from the lake.", "build")
    command(build, "sft")(build_sft)
    command(dataset, "list")(list_)
    command(dataset, "show")(show)


def build_sft(
    call: Call,
    source: Annotated[
        list[str] | None, typer.Option(help="Only traces of this source; may be given again.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Only conversations for which this holds.")
    ] = None,
    min_reward: Annotated[
        float | None, typer.Option(help="The least reward of a conversation with a verdict.")
    ] = None,
    any_outcome: Annotated[
        bool, typer.Option("--any-outcome", help="Also conversations without a verdict.")
    ] = False,
) -> None:
    """Supervised rows of the successful conversations, for the base model's own tokens.

    Example: nightschool dataset build sft --where "tool_calls > 0"
    """
    from flows.output import pairs
    from tasks.convert.sft import build_sft

    changes = {
        "where": where,
        "min_reward": min_reward,
        "require_outcome": False if any_outcome else None,
    }
    chosen = {key: value for key, value in changes.items() if value is not None}
    config = call.config.convert.model_copy(update=chosen)
    with call.output.progress() as progress:
        model_dir = call.model_dir(progress)
        document = build_sft(
            call.home, model_dir, config, sources=source or None, progress=progress
        ).model_dump(mode="json")
    call.output.emit(document, lambda console: console.print(pairs(document)))


def list_(call: Call) -> None:
    """All versions, the oldest first."""
    from flows.output import table
    from storage import datasets

    found = [datasets.read_manifest(call.home, id) for id in datasets.list_ids(call.home)]
    columns = ("id", "kind", "rows", "tokens", "trained_tokens", "splits")
    rows = [[each.get(column) for column in columns] for each in found]
    call.output.emit({"datasets": found}, lambda console: console.print(table(columns, rows)))


def show(
    call: Call,
    id: Annotated[str, typer.Argument(metavar="ID", help="A version, as `dataset list` names it.")],
    row: Annotated[int | None, typer.Option(min=0, help="This row only, as the model sees it.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many rows.")] = 20,
) -> None:
    """The rows as the model will see them, what it learns to say marked.

    Example: nightschool dataset show ds-0123456789ab --row 0
    """
    from flows.output import table
    from storage import datasets

    manifest, rows = datasets.load(call.home, id)
    if row is not None and row >= len(rows):
        raise Stop(USAGE, f"{id} has {len(rows)} rows, numbered from 0; there is no row {row}.")
    chosen = rows[:limit] if row is None else [rows[row]]

    def people(console: Any) -> None:
        if row is not None:
            _marked(console, call, chosen[0])
            return
        lines = [
            (n, r["conversation_id"], r["split"], len(r["token_ids"]), sum(r["mask"]))
            for n, r in enumerate(chosen)
        ]
        console.print(
            table(
                ("row", "conversation", "split", "tokens", "trained"), lines, title=f"{id}, {len(rows)} rows"
            )
        )

    call.output.emit({"id": id, "manifest": manifest, "rows": chosen}, people)


def _marked(console: Any, call: Call, row: dict[str, Any]) -> None:
    """The row's text, trained tokens in green."""
    from itertools import groupby

    from rich.text import Text

    from serving.renderer import Renderer

    with call.output.progress() as progress:
        renderer = Renderer(call.model_dir(progress))
    text = Text()
    for trained, span in groupby(
        zip(row["token_ids"], row["mask"], strict=True), key=lambda pair: bool(pair[1])
    ):
        piece = renderer.decode([token for token, _ in span])
        marked = piece if console.is_terminal or not trained else f"⟦{piece}⟧"
        text.append(marked, style="bold green" if trained else "dim")
    console.print(text)
