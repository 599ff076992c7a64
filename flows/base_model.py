"""Which base model a command works on, and making the embedded one when it is not there yet."""

from pathlib import Path

from flows.config import ModelConfig
from serving.errors import ServingError
from serving.model import embedded_model
from storage.home import Home
from tasks.progress import Progress, ProgressEvent


def base_model(home: Home, config: ModelConfig, progress: Progress) -> Path:
    """The directory of the base model. Raises ServingError if a named one is not there, or the embedded
    cannot be made."""
    if config.path is None:
        return embedded_model(home.models, say=lambda text: progress(ProgressEvent("model", 0, 0, text)))
    if not (config.path / "config.json").is_file():
        raise ServingError(
            f"{config.path} is no model directory (no config.json). Set [model] path in nightschool.toml."
        )
    return config.path
