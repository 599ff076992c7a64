"""`nightschool`: the command line.

Keeps true: every command takes the common options before or after its name; with --json exactly one document
reaches stdout, whatever happens; nothing heavy is imported before a command runs. What commands do is in
flows/commands/.
"""

import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from flows import exits
from flows.call import group
from flows.commands import (
    checkpoints,
    dataset,
    deploy,
    doctor,
    evaluate,
    ingest,
    lake,
    nightly,
    promote,
    report,
    sample,
    serve,
    tasks,
    train,
)
from flows.output import Output

HELP = """Your agents go to night school: traces in the evening, a better model in the morning.

[dim]A first night:[/]   nightschool nightly --config examples/first_night/nightschool.toml
[dim]Your own traces:[/] nightschool ingest traces/*.jsonl  and then  nightschool nightly
[dim]The result:[/]      nightschool serve start  and then  nightschool chat
"""


class Root(TyperGroup):
    """The application: runs a command, and turns what goes wrong into a message and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that `args` name, and exit with its code."""
        arguments = list(sys.argv[1:] if args is None else args)
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        output = Output("--json" in options)
        try:
            with exits.terminate_as_interrupt():
                code = super().main(
                    arguments, prog_name or "nightschool", complete_var, standalone_mode=False, **extra
                )
        except typer.TyperException as error:
            code = _usage(error, output)
        except (Exception, typer.Abort) as error:
            code = _failed(error, output, debug="--debug" in options)
        if code == exits.INTERRUPTED:
            output.fail(
                code, "interrupted; everything was cleaned up, and the same command goes on from here", {}
            )
        sys.exit(code if isinstance(code, int) else exits.DONE)


def _usage(error: typer.TyperException, output: Output) -> int:
    context = getattr(error, "ctx", None)
    hint = (
        f"\n{context.get_usage()}\nTry '{context.command_path} --help'."
        if context and not output.as_json
        else ""
    )
    output.fail(exits.USAGE, error.format_message() + hint, {})
    return exits.USAGE


def _failed(error: Exception, output: Output, *, debug: bool) -> int:
    if debug:
        traceback.print_exc(file=sys.stderr)
    known = exits.classify(error)
    code, message = known or (
        exits.FAILED,
        f"this is a bug: {type(error).__name__}: {error}. The same command with --debug shows where.",
    )
    output.fail(code, message, error.document if isinstance(error, exits.Stop) else {})
    return code


app = group(typer.Typer(cls=Root, rich_markup_mode="rich", add_completion=True), HELP)

for module in (
    nightly,
    doctor,
    ingest,
    lake,
    dataset,
    tasks,
    train,
    evaluate,
    promote,
    checkpoints,
    sample,
    serve,
    report,
    deploy,
):
    module.register(app)
