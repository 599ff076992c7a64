"""Supervised rows: successful conversations as the model's own tokens, with a mask on what it is to say.

Keeps true: every row is checked before it is written (the mask is not empty, and what it covers decodes to exactly the
trainable assistant turns, stop token included); an assistant message is trained once, however many conversations share it;
what is left out is counted with its reason. Leaves to others: preference pairs, splits, other templates.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from serving.errors import RendererError
from serving.model import model_digest
from serving.renderer import (
    IM_END,
    Renderer,
    TokenRow,
    render_assistant,
    trained_text,
    verify_against_template,
)
from storage import datasets
from storage.conversation import Conversation, path_ids
from storage.home import Home
from storage.lake import Lake
from tasks.convert.config import ConvertConfig
from tasks.errors import TaskError
from tasks.progress import Progress, ProgressEvent, silent


class DatasetResult(BaseModel):
    """What `dataset build` reports."""

    model_config = ConfigDict(frozen=True)

    id: str
    kind: str
    rows: int
    tokens: int
    trained_tokens: int
    dropped: dict[str, int]
    splits: dict[str, int]
    parents: list[str]


class Dropped(Exception):
    """This conversation makes no row; the message is the reason code."""


def build_sft(
    home: Home,
    model_dir: Path,
    config: ConvertConfig,
    *,
    sources: Sequence[str] | None = None,
    version: str | None = None,
    progress: Progress = silent,
) -> DatasetResult:
    """Writes a dataset version from the lake (or from its `version`), for the model in `model_dir`.

    Raises:
        TaskError: the lake is empty, or fewer rows came out than `config.min_rows`; the message counts the reasons.
        RendererError: the model's chat template is not ours to render.
    """
    lake = Lake(home)
    version = version or lake.head()
    if version is None:
        raise TaskError("the lake is empty; ingest traces first: nightschool ingest PATH")
    verify_against_template(model_dir)
    renderer = Renderer(model_dir)
    dropped: Counter[str] = Counter()
    conversations = list(lake.conversations(where=config.where, source=sources, version=version))
    rows = list(_rows(conversations, renderer, config, dropped, progress))
    if len(rows) < config.min_rows:
        reasons = (
            ", ".join(f"{n} {reason}" for reason, n in dropped.most_common()) or "no conversation matched"
        )
        raise TaskError(
            f"only {len(rows)} training rows of {len(conversations)} conversations ({reasons}); min_rows is {config.min_rows}"
        )
    manifest = {
        "kind": "sft",
        "parents": [version],
        "config": config.model_dump(mode="json"),
        "sources": list(sources) if sources else None,
        "model": model_digest(model_dir),
        "renderer": {"name": renderer.name, "digest": renderer.digest},
        "dropped": dict(dropped),
        "counts": _counts(rows),
    }
    counts = _counts(rows)
    return DatasetResult(
        id=datasets.write(home, rows, manifest),
        kind="sft",
        rows=len(rows),
        tokens=counts["tokens"],
        trained_tokens=counts["trained_tokens"],
        dropped=dict(dropped),
        splits={"train": len(rows), "heldout": 0},
        parents=[version],
    )


def _rows(
    conversations: Sequence[Conversation],
    renderer: Renderer,
    config: ConvertConfig,
    dropped: Counter[str],
    progress: Progress,
) -> Iterator[dict[str, Any]]:
    trained: set[str] = set()
    for done, conversation in enumerate(conversations, 1):
        try:
            row, nodes = _row(conversation, renderer, config, trained)
        except Dropped as reason:
            dropped[str(reason)] += 1
        else:
            trained |= nodes
            yield row
        progress(ProgressEvent("convert", done, len(conversations), "conversations"))


def _row(
    conversation: Conversation, renderer: Renderer, config: ConvertConfig, trained: set[str]
) -> tuple[dict[str, Any], set[str]]:
    """(row, the assistant nodes it trains). Raises Dropped with the reason."""
    _check_outcome(conversation, config)
    nodes = path_ids(conversation.tools, conversation.messages)[1:]
    messages = [_target(m, node not in trained) for m, node in zip(conversation.messages, nodes, strict=True)]
    targets = [m for m in messages if m["train"]]
    if not targets:
        raise Dropped("nothing_to_train")
    try:
        row = renderer.training_row(messages, conversation.tools)
    except RendererError:
        raise Dropped("not_renderable") from None
    if len(row.token_ids) > config.max_tokens:
        raise Dropped("too_long")
    check_row(renderer, row, targets)
    return {
        "conversation_id": conversation.id,
        "split": "train",
        "messages": messages,
        "tools": list(conversation.tools),
        "token_ids": row.token_ids,
        "mask": row.mask,
        "weight": 1.0,
    }, {node for node, m in zip(nodes, messages, strict=True) if m["train"]}


def check_row(renderer: Renderer, row: TokenRow, targets: Sequence[dict[str, Any]]) -> None:
    """Raises Dropped unless the mask covers exactly the target turns, each with its stop token."""
    if list(trained_text(renderer, row)) != [render_assistant(target) + IM_END for target in targets]:
        raise Dropped("mask_mismatch")


def _check_outcome(conversation: Conversation, config: ConvertConfig) -> None:
    outcome = conversation.outcome or {}
    reward, passed = outcome.get("reward"), outcome.get("passed")
    if reward is None and passed is None:
        if config.require_outcome:
            raise Dropped("no_outcome")
    elif passed is False if reward is None else float(reward) < config.min_reward:
        raise Dropped("not_successful")


def _target(message: dict[str, Any], first_time: bool) -> dict[str, Any]:
    """The message, trained on only if it is an assistant's, marked trainable, and not trained elsewhere already."""
    wanted = message["role"] == "assistant" and bool(message["train"]) and first_time
    return {**message, "train": wanted}


def _counts(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {
        "rows": len(rows),
        "tokens": sum(len(row["token_ids"]) for row in rows),
        "trained_tokens": sum(sum(row["mask"]) for row in rows),
    }
