"""One call of the command line: the options that every command takes, before or after its name, and what they
mean.

Keeps true: a command's function gets a `Call` and its own arguments only; home and configuration are read
when first asked for, so that --help and --version touch nothing.
"""

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.output import Output

if TYPE_CHECKING:
    from flows.config import NightConfig
    from storage.home import Home
    from tasks.progress import Progress

HOME_VARIABLE = "NIGHTSCHOOL_HOME"
DEFAULT_HOME = Path("var")
_PANEL = "Every command"


def _option(name: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(name, help=help, metavar=metavar, rich_help_panel=_PANEL)


OPTIONS: dict[str, Any] = {
    "home": Annotated[
        Path | None, _option("--home", "Where everything is kept [NIGHTSCHOOL_HOME, else ./var].", "DIR")
    ],
    "config": Annotated[
        Path | None, _option("--config", "The configuration [./nightschool.toml if there].", "FILE")
    ],
    "as_json": Annotated[bool, _option("--json", "Print exactly one JSON document on stdout.")],
    "debug": Annotated[bool, _option("--debug", "Show the traceback of an error.")],
}


@dataclass
class Call:
    """The common options of one call."""

    home_option: Path | None = None
    config_option: Path | None = None
    output: Output = field(default_factory=Output)

    @cached_property
    def config(self) -> "NightConfig":
        """The configuration. Raises ConfigError."""
        from flows.config import load

        return load(self.config_option)

    @cached_property
    def home(self) -> "Home":
        """The home directory, made if need be. Raises StorageError."""
        from storage.home import Home

        chosen = self.home_option or os.environ.get(HOME_VARIABLE) or self.config.home or DEFAULT_HOME
        return Home.open(chosen)

    def model_dir(self, progress: "Progress") -> Path:
        """The base model's directory; the embedded one is made when it is not there. Raises ServingError."""
        from flows.base_model import base_model

        return base_model(self.home, self.config.model, progress)


def command(
    app: typer.Typer, name: str, **settings: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command. It takes a `Call` first; the common options are added to its own."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            function(_call(arguments), **arguments)

        app.command(name, **settings)(
            _with_options(run, list(inspect.signature(function).parameters.values())[1:])
        )
        return function

    return register


def group(app: typer.Typer, help: str, name: str | None = None) -> typer.Typer:
    """A group of commands below `app`, or `app` itself with `name` None; takes the common options as well."""
    made = typer.Typer(rich_markup_mode="rich") if name else app

    def options(**arguments: Any) -> None:
        context: typer.Context = arguments["context"]
        _call(arguments)
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())
            raise typer.Exit(2)

    options.__doc__ = help
    made.callback(invoke_without_command=True)(_with_options(options, []))
    if name:
        app.add_typer(made, name=name)
    return made


def _with_options(function: Callable[..., None], own: list[inspect.Parameter]) -> Callable[..., None]:
    """`function` with a signature of a context, its own parameters, and the common options."""
    kind = inspect.Parameter.KEYWORD_ONLY
    common = [
        inspect.Parameter(
            name, kind, default=None if name in ("home", "config") else False, annotation=annotation
        )
        for name, annotation in OPTIONS.items()
    ]
    context = inspect.Parameter("context", kind, annotation=typer.Context)
    parameters = [context, *(parameter.replace(kind=kind) for parameter in own), *common]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def _call(arguments: dict[str, Any]) -> Call:
    """Take the common options out of the arguments, on top of those given further left."""
    context: typer.Context = arguments["context"]
    given = {name: arguments.pop(name) for name in OPTIONS}
    merged = {**(context.obj or {}), **{name: value for name, value in given.items() if value}}
    context.obj = merged
    if context.invoked_subcommand is None:
        arguments.pop("context")
    return Call(merged.get("home"), merged.get("config"), Output(bool(merged.get("as_json"))))
