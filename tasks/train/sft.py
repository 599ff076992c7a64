"""Supervised fine-tuning of an adapter on a dataset's rows.

Keeps true: the loss is the mean over the batch's trained tokens, each row by its weight; rows come in a seeded order, every
row once an epoch; each step's loss and pace are in the run's metrics before the next begins.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving.config import EngineConfig
from storage import datasets
from storage.home import Home
from storage.runs import Run
from tasks.errors import TaskError
from tasks.progress import Progress, ProgressEvent, silent
from tasks.train.config import SftConfig
from tasks.train.session import TrainResult, TrainSession, datum, train_session

Row = dict[str, Any]


def train_sft(
    home: Home,
    run: Run,
    model_dir: Path,
    dataset_id: str,
    config: SftConfig,
    engine: EngineConfig,
    *,
    seed: int,
    start: str | None = None,
    progress: Progress = silent,
) -> TrainResult:
    """Trains and registers a checkpoint.

    Raises:
        TaskError: the dataset is empty or was rendered for another model.
        ServerFailed: the training server died.
    """
    started = time.monotonic()
    manifest, loaded = datasets.load(home, dataset_id)
    rows = [row for row in loaded if row["split"] == "train"]
    batches = batch_plan(len(rows), config, seed)
    if not batches:
        raise TaskError(f"dataset {dataset_id} has no training rows")
    with train_session(
        home, run, model_dir, engine, name="sft", rank=config.rank, seed=seed, start=start
    ) as session:
        _check_renderer(manifest, session)
        tokens, losses = 0, []
        for step, batch in enumerate(batches):
            report = _step(session, [rows[i] for i in batch], config, config.rate(step, len(batches)))
            run.metric("sft", step, **report)
            tokens += int(report["tokens"])
            losses.append(report["loss"])
            progress(ProgressEvent("sft", step + 1, len(batches), f"loss {report['loss']:.3f}"))
        metrics = {"loss_first": losses[0], "loss_last": losses[-1]}
        made_from = {
            "dataset": dataset_id,
            "steps": len(batches),
            "metrics": metrics,
            "config": config.model_dump(mode="json"),
            "seed": seed,
        }
        checkpoint = session.register("sft", made_from)
    return TrainResult(
        run=run.id, checkpoint=checkpoint.id, steps=len(batches), tokens=tokens,
        seconds=time.monotonic() - started, metrics=metrics,
    )  # fmt: skip


def batch_plan(rows: int, config: SftConfig, seed: int) -> list[list[int]]:
    """Row numbers of each step: a seeded permutation per epoch, the last batch of an epoch may be short."""
    order = random.Random(seed)
    wanted = round(rows * config.epochs)
    numbers: list[int] = []
    batches: list[list[int]] = []
    while len(numbers) < wanted:
        epoch = list(range(rows))
        order.shuffle(epoch)
        epoch = epoch[: wanted - len(numbers)]
        numbers += epoch
        batches += [epoch[i : i + config.batch_rows] for i in range(0, len(epoch), config.batch_rows)]
    return batches[: config.max_steps]


def _step(session: TrainSession, rows: Sequence[Row], config: SftConfig, rate: float) -> dict[str, float]:
    started = time.monotonic()
    total = sum(sum(row["mask"]) * row["weight"] for row in rows)
    data = [datum(row["token_ids"], [m * row["weight"] / total for m in row["mask"]]) for row in rows]
    output, optim = session.step(data, "cross_entropy", None, rate, config)
    return {
        "loss": sum(sum(o["elementwise_loss"].data) for o in output.loss_fn_outputs),
        "lr": rate,
        "grad_norm": optim.get("grad_norm", float("nan")),
        "tokens": float(sum(len(row["token_ids"]) for row in rows)),
        "seconds": time.monotonic() - started,
    }


def _check_renderer(manifest: dict[str, Any], session: TrainSession) -> None:
    made = (manifest.get("renderer") or {}).get("digest")
    if made != session.renderer.digest:
        raise TaskError(
            "the dataset was rendered for another tokenizer or text form; build it again with dataset build sft"
        )
