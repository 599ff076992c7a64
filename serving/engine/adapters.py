"""LoRA adapters on one base model: those in training, and read-only snapshots loaded from sampler archives on demand.

Keeps true: sampling a checkpoint never touches an adapter in training (each snapshot is an adapter of its own, the least
recently used leaves); an archive is written beside and renamed, so a half-written one is never read.
"""

import hashlib
import json
import os
import tarfile
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file

GZIP_LEVEL = 1  # tarfile's default of 9 takes 5 s on a 20 MB adapter and saves next to nothing on weights


class Adapters:
    """The adapters of one base model.

    Args:
        base: the transformers model the adapters sit on.
        max_snapshots: how many read-only snapshots stay loaded.
    """

    def __init__(self, base: Any, max_snapshots: int) -> None:
        self.base = base
        self.model: Any = None  # a PeftModel, once there is an adapter
        self._trained: dict[str, LoraConfig] = {}
        self._snapshots: OrderedDict[str, None] = OrderedDict()
        self._max_snapshots = max_snapshots

    def create(self, name: str, rank: int, alpha: float, seed: int) -> None:
        """A fresh trainable adapter on every linear layer but the head; `seed` decides its first weights."""
        torch.manual_seed(seed)
        config = LoraConfig(
            r=rank, lora_alpha=int(alpha), target_modules="all-linear", exclude_modules=["lm_head"]
        )
        self._add(name, config)
        self._trained[name] = config

    def is_trained(self, name: str) -> bool:
        """Whether `name` is an adapter in training."""
        return name in self._trained

    def delete(self, name: str) -> None:
        """Forgets an adapter in training."""
        self._require().delete_adapter(name)
        del self._trained[name]

    def activate(self, name: str | None) -> Any:
        """The model with adapter `name` switched on (None: the base alone), ready for a pass."""
        if name is None:
            if self.model is None:
                return self.base
            self.model.base_model.disable_adapter_layers()
            return self.model
        model = self._require()
        model.base_model.enable_adapter_layers()
        model.set_adapter(name)
        return model

    def parameters(self, name: str) -> list[torch.nn.Parameter]:
        """The weights of one adapter, in the model's order."""
        return [p for key, p in self._require().named_parameters() if f".{name}." in key]

    def snapshot(self, archive: Path) -> str:
        """The name of the read-only adapter that holds `archive`'s weights, loading it if it is not there.

        Raises:
            FileNotFoundError: there is no such archive.
        """
        stat = archive.stat()
        key = f"{archive}:{stat.st_mtime_ns}:{stat.st_size}"
        name = "snapshot_" + hashlib.sha256(key.encode()).hexdigest()[:16]
        if name not in self._snapshots:
            if len(self._snapshots) >= self._max_snapshots:
                oldest, _ = self._snapshots.popitem(last=False)
                self._require().delete_adapter(oldest)
            self._load_snapshot(name, archive)
        self._snapshots[name] = None
        self._snapshots.move_to_end(name)
        return name

    def write_sampler_archive(self, name: str, output: Path) -> None:
        """`output`: a tar.gz with the adapter in PEFT's own form."""
        with tempfile.TemporaryDirectory() as folder:
            self._require().save_pretrained(folder, selected_adapters=[name], save_embedding_layers=False)
            write_archive(Path(folder) / name, output)

    def state_dict(self, name: str) -> dict[str, torch.Tensor]:
        """PEFT's state dict of one adapter."""
        return dict(
            get_peft_model_state_dict(self._require(), adapter_name=name, save_embedding_layers=False)
        )

    def load_state_dict(self, name: str, state: dict[str, torch.Tensor]) -> None:
        """Replaces the weights of one adapter.

        Raises:
            ValueError: the state is of another rank or other layers.
        """
        try:
            load: Any = set_peft_model_state_dict  # its annotation says None, and it returns the keys
            missing = load(self._require(), state, adapter_name=name).unexpected_keys
        except RuntimeError as error:
            raise ValueError(f"the checkpoint does not fit adapter {name}: {error}") from error
        if missing:
            raise ValueError(
                f"the checkpoint does not fit adapter {name}: it also holds {sorted(missing)[:3]} …"
            )

    def _load_snapshot(self, name: str, archive: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(archive, "r:gz") as tar:
                tar.extractall(folder, filter="data")
            config = LoraConfig(**_lora_fields(Path(folder)))
            self._add(name, config)
            self.load_state_dict(name, load_file(Path(folder) / "adapter_model.safetensors"))
        for parameter in self.parameters(name):
            parameter.requires_grad_(False)

    def _add(self, name: str, config: LoraConfig) -> None:
        if self.model is None:
            self.model = get_peft_model(self.base, config, adapter_name=name)
        else:
            self.model.add_adapter(name, config)

    def _require(self) -> Any:
        if self.model is None:
            raise ValueError("no adapter has been made on this model yet")
        return self.model


def write_archive(folder: Path, output: Path) -> None:
    """Packs `folder` into `output` (tar.gz), written beside and renamed."""
    output.parent.mkdir(parents=True, exist_ok=True)
    beside = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        with tarfile.open(beside, "w:gz", compresslevel=GZIP_LEVEL) as tar:
            tar.add(folder, arcname=".")
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, output)
    finally:
        beside.unlink(missing_ok=True)


def _lora_fields(folder: Path) -> dict[str, Any]:
    stored = json.loads((folder / "adapter_config.json").read_text())
    return {
        "r": stored["r"],
        "lora_alpha": stored["lora_alpha"],
        "target_modules": stored["target_modules"],
        "exclude_modules": stored.get("exclude_modules"),
    }
