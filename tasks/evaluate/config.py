"""What models are compared on."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class EvaluateConfig(BaseModel):
    """Held-out evaluation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    heldout: Path = Path("tasks/heldout")
    """Folder of the tasks that decide; never trained on."""
    regression: Path | None = None
    """Folder of the tasks on which a candidate must not be worse."""
    samples: int = Field(default=1, ge=1)
    """Rollouts of each task; the same seeds for every model."""
    temperature: float = Field(default=1.0, ge=0)
    """Of the agent under evaluation: serve with what you evaluate with."""
