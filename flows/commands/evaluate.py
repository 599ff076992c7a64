"""`evaluate`: a checkpoint, or the task's own solution, on tasks in sandboxes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.call import Call, command
from flows.commands.tasks import load
from flows.exits import USAGE, Stop

KEYS = ("task", "sample", "outcome", "reward")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    command(app, "evaluate")(evaluate)


def evaluate(
    call: Call,
    ref: Annotated[
        str | None,
        typer.Argument(metavar="[REF]", help="A checkpoint, prod, base … (default: prod, else base)."),
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of tasks (default: the configuration's sets).")
    ] = None,
    agent: Annotated[
        Literal["bash", "oracle", "noop"],
        typer.Option(help="bash: the model; oracle: the task's own solution; noop: nothing."),
    ] = "bash",
    against: Annotated[
        str | None, typer.Option(metavar="REF", help="Compare with this one, in pairs.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Rollouts of each task (default: the configuration's).")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The same for every model (default: the configuration's).")
    ] = None,
) -> None:
    """Run an agent on tasks in sandboxes; the verifier's verdict is the reward.

    Example: nightschool evaluate ckpt-0123 --tasks examples/first_night/tasks/heldout --against base
    """
    from flows.output import pairs, table
    from flows.runs import running

    sets = _sets(call, tasks)
    digests = {task.name: task.digest for task in load(list(sets.values()))}
    samples = samples or call.config.evaluate.samples
    seed = call.config.seed if seed is None else seed
    asked: dict[str, Any] = {"ref": ref, "against": against, "agent": agent, "samples": samples, "seed": seed}
    asked["tasks"] = {name: str(folder) for name, folder in sets.items()}
    with call.output.progress() as progress, running(call.home, "evaluate", asked) as run:
        run.event("tasks", digests=digests)
        given = (call, run, sets, samples, seed, progress)
        document = (
            _scripted(agent, *given) if agent != "bash" else _models(ref or _default(call), against, *given)
        )
    rows = [[each[key] for key in KEYS] for each in document["results"]]

    def people(console: Any) -> None:
        console.print(table(KEYS, rows))
        console.print(
            pairs({"run": document["run"], "score": document["score"], "paired": document.get("paired")})
        )

    call.output.emit(document, people)


def _models(
    ref: str,
    against: str | None,
    call: Call,
    run: Any,
    sets: Mapping[str, Path],
    samples: int,
    seed: int,
    progress: Any,
) -> dict[str, Any]:
    import json

    from tasks.evaluate.evaluate import evaluate

    config = call.config
    refs = {"incumbent": against, "candidate": ref} if against else {"candidate": ref}
    evaluate(
        call.home,
        run,
        call.model_dir(progress),
        refs,
        sets,
        config.evaluate.model_copy(update={"samples": samples}),
        config.agent,
        config.sandbox,
        config.engine,
        seed=seed,
        progress=progress,
    )
    found = json.loads((run.path / "evaluations.json").read_bytes())
    judged = found["models"][-1]
    document = {"run": run.id, "ref": ref, "results": judged["results"], "score": judged["score"]}
    return {**document, "paired": found["paired"]["heldout"]} if against else document


def _scripted(
    agent: str, call: Call, run: Any, sets: Mapping[str, Path], samples: int, seed: int, progress: Any
) -> dict[str, Any]:
    from sandbox.agents import NoopAgent, OracleAgent
    from sandbox.harbor import load_tasks
    from tasks.evaluate.evaluate import roll_out
    from tasks.evaluate.paired import by_task, score

    actor = OracleAgent() if agent == "oracle" else NoopAgent()
    members = {name: load_tasks(folder) for name, folder in sets.items()}
    found = roll_out(agent, actor, members, samples, call.config.sandbox, run, seed=seed, progress=progress)
    results: Sequence[dict[str, Any]] = found["results"]
    return {
        "run": run.id,
        "ref": None,
        "results": results,
        "score": score(by_task(results), seed=seed).to_json(),
    }


def _sets(call: Call, tasks: Path | None) -> dict[str, Path]:
    if tasks is not None:
        return {"heldout": tasks}
    config = call.config.evaluate
    if not config.heldout.is_dir():
        raise Stop(
            USAGE,
            f"{config.heldout}: there is no such folder. Name one with --tasks, or as [evaluate] heldout.",
        )
    return {"heldout": config.heldout, **({"regression": config.regression} if config.regression else {})}


def _default(call: Call) -> str:
    from storage.registry import Registry

    return Registry(call.home).refs().prod or "base"
