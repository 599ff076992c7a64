"""`lake`: look into what was ingested."""

from typing import Annotated, Any

import typer

from flows.call import Call, command, group


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    lake = group(app, "Look into the lake: every trace that was ingested.", "lake")
    command(lake, "stats")(stats)
    command(lake, "show")(show)
    command(lake, "sql")(sql)
    command(lake, "quarantine")(quarantine)


def stats(call: Call) -> None:
    """How much is in the lake, by source and outcome."""
    from flows.output import pairs
    from storage.lake import Lake

    document = Lake(call.home).stats()
    call.output.emit(document, lambda console: console.print(pairs(document)))


def show(
    call: Call,
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A conversation's id, or the beginning of it.")
    ] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Only those for which this holds.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 20,
) -> None:
    """The conversations, or one of them in full.

    Example: nightschool lake show --where "passed and tool_calls > 3"
    """
    from itertools import islice

    from flows.output import table
    from storage.lake import Lake

    lake = Lake(call.home)
    found = [lake.conversation(id)] if id else list(islice(lake.conversations(where=where), limit))
    document = {"conversations": [each.to_json() for each in found]}
    rows = [(c.id, c.source, c.format, len(c.messages), c.outcome, c.flags) for c in found]

    def people(console: Any) -> None:
        if id:
            _dialogue(console, document["conversations"][0])
        else:
            console.print(table(("id", "source", "format", "messages", "outcome", "flags"), rows))

    call.output.emit(document, people)


def sql(call: Call, query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT.")]) -> None:
    """Ask the lake in SQL. Views: conversations, messages, nodes, outcomes, raw, quarantine.

    Example: nightschool lake sql "select source, count(*), avg(reward) from conversations group by source"
    """
    from flows.output import table
    from storage.lake import Lake

    columns, rows = Lake(call.home).sql(query)
    document = {"columns": columns, "rows": [list(row) for row in rows]}
    call.output.emit(document, lambda console: console.print(table(columns, rows)))


def quarantine(call: Call) -> None:
    """What could not be used: file, byte offset, reason."""
    from flows.output import table
    from storage.lake import Lake

    entries = Lake(call.home).quarantine()
    columns = ("source", "file", "byte_offset", "reason", "detail")
    rows = [[entry.get(column) for column in columns] for entry in entries]
    call.output.emit({"quarantine": entries}, lambda console: console.print(table(columns, rows)))


def _dialogue(console: Any, conversation: dict[str, Any]) -> None:
    """One conversation as a person reads it."""
    from rich.markup import escape

    from flows.output import cell

    console.print(f"[bold]{conversation['id']}[/]  {escape(cell(conversation['outcome']))}")
    for message in conversation["messages"]:
        console.print(f"\n[bold cyan]{message['role']}[/]{'' if message['train'] else ' [dim](context)[/]'}")
        content = message["content"]
        if content:
            console.print(
                content if isinstance(content, str) else cell(content), markup=False, highlight=False
            )
        for call in message["tool_calls"]:
            console.print(f"→ {call['name']}({call['arguments_raw']})", markup=False, highlight=False)
