"""What a sandbox may use. Limits here are ceilings: a task may ask for less, never for more."""

from pydantic import BaseModel, ConfigDict, Field


class SandboxConfig(BaseModel):
    """Limits and choices for every sandbox of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    concurrency: int = Field(8, ge=1, le=256, description="trials at a time")
    cpus: float = Field(1.0, gt=0, description="CPU cores a container may use")
    memory_mb: int = Field(1024, ge=16, description="memory of a container, MiB, without swap")
    pids: int = Field(128, ge=8, description="processes and threads in a container")
    agent_timeout_s: float = Field(600.0, gt=0, description="seconds an agent may work on a task")
    verifier_timeout_s: float = Field(300.0, gt=0, description="seconds a task's tests may take")
    max_output_bytes: int = Field(
        65536, ge=256, description="bytes kept of one command's output, head and tail"
    )
    max_file_mb: int = Field(256, ge=1, description="largest file a process may write, MiB")
    max_work_mb: int = Field(512, ge=1, description="work an agent may leave for the verifier, MiB")
    user: str = Field("1000:1000", description="user[:group] of the agent where the task names none")
    runtime: str | None = Field(
        None, description="Docker runtime, such as runsc; the engine's own if not given"
    )
    base_image: str = Field("nightschool-base:bookworm", description="the image that `make setup` builds")
