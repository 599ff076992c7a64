"""What the gate asks of a candidate. Differences are of mean reward, 0…1 (0.10 is ten points)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class GateConfig(BaseModel):
    """The rules of promotion; part of every evidence file, so that a decision can be made again from it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_gain: float = Field(0.0, ge=0.0, le=1.0)
    """The whole 95% interval of the held-out difference must lie above this."""
    max_p_value: float = Field(0.05, gt=0.0, lt=1.0)
    """The sign-flip test's p-value must lie below this."""
    min_tasks: int = Field(20, ge=2)
    """Held-out tasks with a verdict on both sides; fewer are not enough data."""
    max_missing_fraction: float = Field(0.10, ge=0.0, le=1.0)
    """Share of samples without a verdict on both sides, above which the rest is not trusted."""
    regression_margin: float = Field(0.10, ge=0.0, le=1.0)
    """How much worse the candidate may be on the regression set."""
    regression_rule: Literal["mean", "interval"] = "mean"
    """What must stay above -regression_margin: the mean difference, or its whole 95% interval.

    The interval needs about 100 tasks: on 16 it reaches some 20 points below the mean, and nothing would ever
    pass.
    With either rule a loss that is beyond chance keeps the incumbent, however small it is."""
    seed: int = Field(0, ge=0)
    """Of the bootstrap and the sign flips."""
