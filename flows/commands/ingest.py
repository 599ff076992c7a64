"""`ingest`: bring traces into the lake."""

from typing import Annotated

import typer

from flows.call import Call, command


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "ingest")(ingest)


def ingest(
    call: Call,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH…", help="Files, folders, glob patterns, or - for stdin.")
    ],
    format: Annotated[str, typer.Option(help="auto, or the name of a format.")] = "auto",
    source: Annotated[
        str | None, typer.Option(help="The name the lake knows these traces by (default: the file's).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing, and show what would be kept.")
    ] = False,
) -> None:
    """Bring traces into the lake: logs of chat completions, messages or trajectories, plain, gzip or zstd.

    Running it again changes nothing. What cannot be used is listed with its reason, and kept in the
    quarantine.

    Example: nightschool ingest logs/*.jsonl.gz --source support-bot
    """
    from flows.output import pairs, table
    from tasks.ingest.ingest import ingest
    from tasks.progress import ProgressEvent

    with call.output.progress() as progress:
        result = ingest(
            call.home,
            paths,
            format=format,
            source=source,
            dry_run=dry_run,
            progress=lambda file, done, size: progress(ProgressEvent("ingest", done, size, file)),
        )
    document = result.model_dump(mode="json", exclude_none=True)

    def show(console: object) -> None:
        from rich.console import Console

        assert isinstance(console, Console)
        hidden = {"quarantined", "preview", "redacted"}
        counts = {key: value for key, value in document.items() if key not in hidden}
        console.print(pairs({**counts, "quarantined": len(result.quarantined)}))
        if result.quarantined:
            rows = [
                (each.file, each.byte_offset, each.reason, each.detail) for each in result.quarantined[:20]
            ]
            console.print(
                table(("file", "byte", "reason", "detail"), rows, title="\nnot used (the first 20)")
            )
        for each in document.get("preview", [])[:3]:
            console.print_json(data=each)

    call.output.emit(document, show)
