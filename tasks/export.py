"""A checkpoint as a directory for other programs: the adapter in PEFT's form, or merged into its base model.

Keeps true: the directory appears whole or not at all. Leaves to others: which checkpoint, and the registry's
own files.
"""

import shutil
import tarfile
from pathlib import Path
from typing import Any, Literal

from serving.renderer import Renderer
from storage.atomic import replace_dir, temporary_beside
from storage.registry import Checkpoint
from tasks.errors import TaskError
from tasks.train.session import check_fits


def export(checkpoint: Checkpoint, model_dir: Path, form: Literal["peft", "merged"], target: Path) -> None:
    """Write `checkpoint` to `target`.

    Raises:
        TaskError: there is something at `target`, or the checkpoint is of another base model.
    """
    if target.exists():
        raise TaskError(f"{target} is there already; choose another place with --out")
    check_fits(checkpoint, model_dir, Renderer(model_dir))
    target.parent.mkdir(parents=True, exist_ok=True)
    adapter, merged = temporary_beside(target), temporary_beside(target)
    try:
        adapter.mkdir()
        with tarfile.open(checkpoint.sampler_tar, "r:gz") as archive:
            archive.extractall(adapter, filter="data")
        if form == "merged":
            _merge(adapter, model_dir, merged)
        replace_dir(merged if form == "merged" else adapter, target)
    finally:
        for left in (adapter, merged):
            shutil.rmtree(left, ignore_errors=True)


def _merge(adapter: Path, model_dir: Path, target: Path) -> None:
    """The base model with the adapter added to its weights, and its tokenizer beside."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    base: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto")
    model: Any = PeftModel.from_pretrained(base, str(adapter))
    model.merge_and_unload().save_pretrained(target)
    tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
    tokenizer.save_pretrained(target)
