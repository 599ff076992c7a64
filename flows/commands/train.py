"""`train`: one training step by itself, outside a night."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.call import Call, command, group

Start = Annotated[
    str | None,
    typer.Option("--model", metavar="REF", help="The checkpoint to begin from (default: the base model)."),
]
Steps = Annotated[
    int | None, typer.Option("--steps", min=1, help="Optimizer steps (default: the configuration's).")
]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, help="Of order and rollouts (default: the configuration's).")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    train = group(app, "Train a checkpoint: supervised, or by reinforcement in sandboxes.", "train")
    command(train, "sft")(sft)
    command(train, "rl")(rl)


def sft(
    call: Call,
    dataset: Annotated[str, typer.Option(metavar="ID", help="A version, as `dataset list` names it.")],
    model: Start = None,
    steps: Steps = None,
    seed: Seed = None,
) -> None:
    """Supervised fine-tuning on a dataset.

    Example: nightschool train sft --dataset ds-0123456789ab --steps 40
    """
    from flows.runs import running
    from tasks.train.sft import train_sft

    config = call.config.sft.model_copy(update={"max_steps": steps} if steps else {})
    asked = {"dataset": dataset, "model": model or "base", "sft": config.model_dump(mode="json")}
    with call.output.progress() as progress, running(call.home, "train-sft", asked) as run:
        result = train_sft(
            call.home,
            run,
            call.model_dir(progress),
            dataset,
            config,
            call.config.engine,
            seed=_seed(call, seed),
            start=start(model),
            progress=progress,
        )
    _print(call, result)


def rl(
    call: Call,
    tasks: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of tasks (default: the configuration's).")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(help="gspo, ppo, importance_sampling or cispo (default: the configuration's)."),
    ] = None,
    model: Start = None,
    steps: Steps = None,
    seed: Seed = None,
) -> None:
    """Reinforcement on sandboxed tasks: the agent acts, the verifier judges, the policy learns.

    Example: nightschool train rl --tasks examples/first_night/tasks/train --model ckpt-0123 --loss gspo
    --steps 4
    """
    from flows.runs import running
    from tasks.train.config import RlConfig
    from tasks.train.rl import train_rl

    changes = {key: value for key, value in {"loss": loss, "steps": steps}.items() if value is not None}
    config = checked(RlConfig, {**call.config.rl.model_dump(), **changes})
    folder = tasks or call.config.tasks.train
    asked = {"tasks": str(folder), "model": model or "base", "rl": config.model_dump(mode="json")}
    with call.output.progress() as progress, running(call.home, "train-rl", asked) as run:
        result = train_rl(
            call.home,
            run,
            call.model_dir(progress),
            folder,
            start(model),
            config,
            call.config.agent,
            call.config.sandbox,
            call.config.engine,
            seed=_seed(call, seed),
            progress=progress,
        )
    _print(call, result)


def checked[M: Any](model: type[M], values: dict[str, Any]) -> M:
    """A configuration with an option's values. Raises a usage error for a value that is not allowed."""
    from pydantic import ValidationError

    try:
        made: M = model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"--{first['loc'][0]}: {first['msg']}, not {first['input']!r}") from error
    return made


def start(model: str | None) -> str | None:
    """The checkpoint that training begins from; None is the base model."""
    return None if model in (None, "base") else model


def _seed(call: Call, seed: int | None) -> int:
    return call.config.seed if seed is None else seed


def _print(call: Call, result: Any) -> None:
    from flows.output import pairs

    document = result.model_dump(mode="json")
    call.output.emit(document, lambda console: console.print(pairs(document)))
