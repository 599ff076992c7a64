"""`serve`: the standing endpoint."""

from typing import Any

import typer

from flows.call import Call, command, group


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    serve = group(
        app, "The Tinker endpoint: every checkpoint, at its tinker:// path, on loopback, with a key.", "serve"
    )
    command(serve, "start")(start)
    command(serve, "stop")(stop)
    command(serve, "status")(status)
    command(serve, "logs")(logs)


def start(call: Call) -> None:
    """Start the endpoint in the background, and wait until it answers; the one that runs is left alone."""
    from serving import endpoint
    from tasks.progress import ProgressEvent
    from tasks.publish import publish

    with call.output.progress() as progress:
        model_dir = call.model_dir(progress)
        progress(ProgressEvent("serve", 0, 0, "loading the model"))
        endpoint.start(call.home.serving, model_dir, call.config.engine, call.config.serve)
        publish(call.home, model_dir)
    _print(call)


def stop(call: Call) -> None:
    """Stop the endpoint and everything it started."""
    from serving import endpoint

    endpoint.stop(call.home.serving)
    _print(call)


def status(call: Call) -> None:
    """Whether it runs, where, with which key, and what it serves by name."""
    _print(call)


def logs(call: Call) -> None:
    """The end of the endpoint's logs."""
    from serving import endpoint

    text = endpoint.logs(call.home.serving)
    call.output.emit({"logs": text}, lambda console: console.print(text, markup=False, highlight=False))


def _print(call: Call) -> None:
    from flows.output import pairs

    document = describe(call)
    shown = {
        **document,
        "refs": {name: ref["path"] if ref else None for name, ref in document["refs"].items()},
    }
    call.output.emit(document, lambda console: console.print(pairs(shown)))


def describe(call: Call) -> dict[str, Any]:
    """The document of `serve status`."""
    from dataclasses import asdict

    from serving import endpoint
    from serving.catalog import sampler_path
    from storage.registry import Registry

    found = endpoint.status(call.home.serving)
    refs = {
        name: {"checkpoint": id, "path": sampler_path(id)} if id else None
        for name, id in asdict(Registry(call.home).refs()).items()
    }
    return {**asdict(found), "gateway_url": None, "refs": refs}
