"""`nightly`: the whole night once, through the Prefect flow."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.call import Call, command
from flows.exits import FAILED, USAGE, Stop, classify


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "nightly")(nightly)


def nightly(
    call: Call,
    traces: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="Ingest these instead; may be given again.")
    ] = None,
    more: Annotated[list[Path] | None, typer.Argument(metavar="[PATH…]", help="More traces.")] = None,
    source: Annotated[
        str | None, typer.Option(help="The name of these traces, and the only source trained on.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of everything that draws (default: the configuration's).")
    ] = None,
) -> None:
    """The whole night once: ingest, convert, SFT, RL, evaluate, promote, report.

    Stages whose inputs did not change are not done again, so a night that was interrupted goes on where it
    stopped.

    Example: nightschool nightly --config examples/first_night/nightschool.toml
    """
    from flows.prefect_server import prefect_api
    from flows.runs import LOCK
    from storage.locks import hold
    from tasks.progress import ProgressEvent

    config = _with_options(call.config, [*(traces or []), *(more or [])], source, seed)
    with hold(call.home.locks / LOCK, "a night that begins"):
        pass  # a second night is refused now, and not after Prefect has started
    with call.output.progress() as progress, prefect_api(call.home.prefect) as server:
        progress(ProgressEvent("prefect", 0, 0, f"waiting for {server.url}"))
        from flows.night import NightFailed
        from flows.nightly import listener
        from flows.nightly import nightly as flow

        server.ready()
        listener.set(progress)
        try:
            result = flow(config=config, home=str(call.home.root))
        except NightFailed as failure:
            document = failure.result.model_dump(mode="json")
            raise Stop(*_why(failure), document) from failure

    def people(console: Any) -> None:
        from tasks.report.terminal import summary

        console.print(summary(call.home, result.run))

    call.output.emit(result.model_dump(mode="json"), people)


def _with_options(config: Any, paths: list[Path], source: str | None, seed: int | None) -> Any:
    """The configuration with what the options say."""
    traces = {"paths": tuple(path.absolute() for path in paths)} if paths else {}
    named = {**traces, "source": source} if source else traces
    drawn = {} if seed is None else {"seed": seed}
    return config.model_copy(update={"traces": config.traces.model_copy(update=named), **drawn})


def _why(failure: Any) -> tuple[int, str]:
    """Exit code and message of a night that failed."""
    from tasks.ingest.errors import IngestError

    cause = failure.__cause__
    known = classify(cause)
    failed = next((stage.name for stage in failure.result.stages if stage.state == "failed"), "the night")
    what = known[1] if known else f"this is a bug: {type(cause).__name__}: {cause}. --debug shows where."
    kept = "What was done before is kept; the same command goes on from there."
    return USAGE if isinstance(cause, IngestError) else FAILED, f"{failed} failed: {what}\n{kept}"
