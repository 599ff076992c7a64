"""What becomes a training row."""

from pydantic import BaseModel, ConfigDict, Field


class ConvertConfig(BaseModel):
    """Selection of conversations for supervised rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    where: str | None = None
    """SQL over the lake's `conversations` view, on top of the outcome rule."""
    require_outcome: bool = True
    """Only conversations with a verdict, and a reward of at least `min_reward`; false takes what has no verdict too."""
    min_reward: float = 1.0
    """The least reward a conversation with a verdict must have."""
    max_tokens: int = Field(default=1024, ge=8)
    """Longer rows are left out whole (a cut row would teach half a call)."""
    min_rows: int = Field(default=1, ge=1)
    """Fewer rows than this is an error that says what was dropped and why."""
