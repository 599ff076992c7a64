"""How much is trained, and how."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class OptimizerConfig(BaseModel):
    """AdamW over the adapter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rate: float = Field(default=5e-4, gt=0)
    """Peak rate; LoRA wants about ten times a full fine-tune's."""
    warmup_steps: int = Field(default=2, ge=0)
    """Steps over which the rate rises from zero."""
    final_fraction: float = Field(default=0.2, ge=0, le=1)
    """The last step's rate as a fraction of the peak; it falls linearly."""
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of step `step` (from 0) of `steps`."""
        warm = min(1.0, (step + 1) / (self.warmup_steps + 1))
        fall = 1.0 - (1.0 - self.final_fraction) * step / max(1, steps - 1)
        return self.learning_rate * warm * fall


class SftConfig(OptimizerConfig):
    """Supervised fine-tuning."""

    epochs: float = Field(default=1.0, gt=0)
    """Passes over the dataset; a fraction stops within one."""
    batch_rows: int = Field(default=8, ge=1)
    """Rows in one optimizer step."""
    rank: int = Field(default=16, ge=1)
    """Rank of the LoRA adapter."""
    max_steps: int | None = Field(default=None, ge=1)
    """Stop after this many steps, whatever the epochs say."""


class RlConfig(OptimizerConfig):
    """Policy optimisation on sandboxed tasks."""

    learning_rate: float = Field(default=2e-4, gt=0)
    loss: Literal["gspo", "ppo", "importance_sampling", "cispo"] = "gspo"
    """The loss, fused into one forward-backward; GSPO is arXiv 2507.18071."""
    steps: int = Field(default=10, ge=1)
    """Batches of rollouts, and as many optimizer steps."""
    groups_per_step: int = Field(default=4, ge=1)
    """Tasks in a batch."""
    group_size: int = Field(default=8, ge=2)
    """Rollouts of each task: their mean reward is the baseline."""
    temperature: float = Field(default=1.0, gt=0)
    """Of the rollouts; the ratios are exact at 1 only."""
    clip_low: float = 0.8
    """Lower bound of the importance ratio. Wide, since bfloat16 alone moves a ratio by some percent between sampler and
    trainer: a paper-size clip (3e-4) would clip rounding."""
    clip_high: float = 1.2
    """Upper bound of the importance ratio."""
    rank: int = Field(default=16, ge=1)
    """Rank of the LoRA adapter; must be the start checkpoint's."""

    def loss_config(self) -> dict[str, float] | None:
        """What goes to the server with the loss."""
        if self.loss == "importance_sampling":
            return None
        return {"clip_low_threshold": self.clip_low, "clip_high_threshold": self.clip_high}
