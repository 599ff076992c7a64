"""A training session: a Tinker server of its own for one run, one adapter in training, and its way into the registry.

Keeps true: the server dies with the session; a session starts from a registered checkpoint or from nothing; what it leaves
is a registered checkpoint whose manifest names what made it. Leaves to others: what is trained.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from serving.catalog import register, training_path
from serving.config import EngineConfig
from serving.model import model_digest
from serving.renderer import Renderer
from serving.server import TinkerServer
from storage.home import Home
from storage.registry import Checkpoint, Registry
from storage.runs import Run
from tasks.errors import TaskError
from tasks.train.config import OptimizerConfig


class TrainResult(BaseModel):
    """What a training step reports; `metrics` are those of its end."""

    model_config = ConfigDict(frozen=True)

    run: str
    checkpoint: str
    steps: int
    tokens: int
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class TrainSession:
    """One adapter in training on one server."""

    home: Home
    run: Run
    model_dir: Path
    renderer: Renderer
    server: TinkerServer
    service: Any
    client: Any
    rank: int
    parent: str

    def step(
        self,
        data: Sequence[Any],
        loss: str,
        loss_config: dict[str, float] | None,
        rate: float,
        opt: OptimizerConfig,
    ) -> tuple[Any, dict[str, float]]:
        """One fused forward-backward over `data` and one optimizer step; returns its output and the optimizer's metrics."""
        from tinker import types

        adam = types.AdamParams(
            learning_rate=rate, beta1=opt.beta1, beta2=opt.beta2, eps=opt.eps, weight_decay=opt.weight_decay
        )
        backward = self.client.forward_backward(list(data), loss, loss_fn_config=loss_config)
        optim = self.client.optim_step(adam)
        return self.server.result(backward), dict(self.server.result(optim).metrics or {})

    def sampler(self) -> Any:
        """A sampling client on the weights as they are now."""
        return self.client.save_weights_and_get_sampling_client()

    def register(self, kind: str, made_from: dict[str, Any]) -> Checkpoint:
        """Saves the adapter and its optimizer, and enters them in the registry."""
        for pending in (self.client.save_weights_for_sampler("end"), self.client.save_state("end")):
            self.server.result(pending)
        folder = self.server.state_dir / "checkpoints" / str(self.client.get_info().model_id)
        manifest = {
            "kind": kind,
            "parents": [self.parent],
            "base_model": model_digest(self.model_dir),
            "base_model_name": self.model_dir.name,
            "rank": self.rank,
            "renderer": {"name": self.renderer.name, "digest": self.renderer.digest},
            "run": self.run.id,
            **made_from,
        }
        return Registry(self.home).add(
            folder / "sampler_weights" / "end.tar.gz", folder / "end.tar.gz", manifest
        )


@contextmanager
def train_session(
    home: Home,
    run: Run,
    model_dir: Path,
    engine: EngineConfig,
    *,
    name: str,
    rank: int,
    seed: int,
    start: str | None,
) -> Iterator[TrainSession]:
    """A session on a fresh adapter, or on the registered checkpoint `start` (weights only: its optimizer served another loss).

    Raises:
        TaskError: `start` is of another base model, renderer or rank.
        ServerFailed: the server did not come up, or died.
    """
    renderer = Renderer(model_dir)
    parent = Registry(home).get(start) if start else None
    if parent:
        check_fits(parent, model_dir, renderer, rank)
    with TinkerServer(model_dir, run.path / "engine" / name, engine) as server:
        service = server.connect()
        client = service.create_lora_training_client(base_model=server.base_model, rank=rank, seed=seed)
        if parent:
            register(
                server.state_dir, parent.id, server.base_model, rank, parent.sampler_tar, parent.training_tar
            )
            server.result(client.load_state(training_path(parent.id)))
        yield TrainSession(
            home, run, model_dir, renderer, server, service, client, rank, parent.id if parent else "base"
        )


def check_fits(checkpoint: Checkpoint, model_dir: Path, renderer: Renderer, rank: int | None = None) -> None:
    """Raises TaskError if a checkpoint cannot be used on this base model with this renderer."""
    made = checkpoint.manifest
    facts: dict[str, tuple[Any, Any]] = {
        "base model": (made.get("base_model"), model_digest(model_dir)),
        "renderer": ((made.get("renderer") or {}).get("digest"), renderer.digest),
    }
    if rank is not None:
        facts["adapter rank"] = (made.get("rank"), rank)
    for what, (theirs, ours) in facts.items():
        if theirs != ours:
            raise TaskError(
                f"checkpoint {checkpoint.id} was made with another {what} ({str(theirs)[:12]}, not {str(ours)[:12]}); "
                f"train from the base model, or set the {what} it was made with"
            )


def datum(token_ids: Sequence[int], weights: Sequence[float], **columns: Sequence[float]) -> Any:
    """One row as the Tinker API wants it: inputs and targets shifted by one, each column along the targets.

    Args:
        token_ids: the whole row, n ids.
        weights: per token of the row; that of the first is not used.
        columns: e.g. `logprobs`, `advantages`, per token of the row.
    """
    from tinker import types

    def tensor(values: Sequence[float], dtype: Any) -> Any:
        return types.TensorData(data=list(values), dtype=dtype, shape=[len(values)])

    inputs = {
        "target_tokens": tensor(list(token_ids[1:]), "int64"),
        "weights": tensor(list(weights[1:]), "float32"),
    }
    inputs |= {name: tensor(list(values[1:]), "float32") for name, values in columns.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(list(token_ids[:-1])), loss_fn_inputs=inputs)
