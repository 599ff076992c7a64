"""Settings of the serving floor: the engine that trains and samples, and where the endpoint listens."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class EngineConfig(BaseModel):
    """The engine on one device."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: Literal["torch"] = "torch"
    """Which backend of SkyRL's engine runs; `torch` is ours, for one device."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the base model; adapters are float32 always. `auto`: bfloat16 where the device multiplies it natively."""
    device: str = "auto"
    """`auto` takes CUDA, then Apple's MPS, then the CPU."""
    tokens_per_pass: int = Field(default=2048, ge=1)
    """Padded tokens in one forward-backward: the first thing to lower when memory runs out."""
    sample_rows: int = Field(default=32, ge=1)
    """Rows generated together."""
    snapshots: int = Field(default=6, ge=1)
    """Checkpoints that stay loaded for sampling."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads; None leaves the choice to torch."""

    def backend_config(self) -> dict[str, object]:
        """What the engine's backend is started with."""
        return self.model_dump(exclude={"backend"}, exclude_none=True)


class EndpointConfig(BaseModel):
    """The standing Tinker endpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    """The address it listens on; anything but loopback is your decision to expose it."""
    port: int = Field(default=8465, ge=1, le=65535)
    """The TCP port it listens on."""
