"""Asking a checkpoint something: at the standing endpoint if it runs, else on a server for as long as it
takes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving import endpoint
from serving.catalog import register
from serving.config import EngineConfig
from serving.renderer import Renderer
from storage.home import Home
from storage.registry import Registry
from tasks.publish import publish
from tasks.train.session import check_fits

if TYPE_CHECKING:
    from tasks.progress import Progress

ANSWER_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Answer:
    """What was sampled, as tokens and as a message."""

    token_ids: list[int]
    logprobs: list[float]
    stop_reason: str
    text: str
    message: dict[str, Any]


@dataclass(frozen=True)
class Sampler:
    """One checkpoint, ready to be asked; `checkpoint` is its id, or "base"."""

    checkpoint: str
    client: Any
    renderer: Renderer

    def ask(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
    ) -> Answer:
        """One assistant turn. Raises the SDK's error if the server does not answer."""
        from tinker import types

        params = types.SamplingParams(
            max_tokens=max_tokens, temperature=temperature, seed=seed, stop=self.renderer.stop_token_ids
        )
        prompt = types.ModelInput.from_ints(self.renderer.prompt(messages, tools))
        found = self.client.sample(prompt=prompt, num_samples=1, sampling_params=params).result(
            timeout=ANSWER_TIMEOUT_S
        )
        sequence = found.sequences[0]
        ids = list(sequence.tokens)
        spoken = ids[:-1] if ids and ids[-1] in self.renderer.stop_token_ids else ids
        return Answer(
            ids,
            list(sequence.logprobs or []),
            str(sequence.stop_reason),
            self.renderer.decode(spoken),
            self.renderer.parse(ids),
        )


@contextmanager
def sampler(
    home: Home, model_dir: Path, ref: str | None, engine: EngineConfig, progress: "Progress"
) -> Iterator[Sampler]:
    """A sampler of `ref`; None is prod, or the base model while there is none.

    Raises:
        NotFound: no such checkpoint.
        ServerFailed: no server came up.
    """
    from tasks.progress import ProgressEvent

    registry = Registry(home)
    ref = ref or registry.refs().prod or "base"
    checkpoint = None if ref == "base" else registry.get(ref)
    renderer = Renderer(model_dir)
    if checkpoint:
        check_fits(checkpoint, model_dir, renderer)
    name = checkpoint.id if checkpoint else "base"
    standing = endpoint.status(home.serving)
    if standing.running and standing.model == str(model_dir.resolve()):
        publish(home, model_dir)
        service = endpoint.client(home.serving)
        path = checkpoint.tinker_path if checkpoint else None
        yield Sampler(name, _client(service, standing.model, path), renderer)
        return
    progress(ProgressEvent("server", 0, 0, "starting one for this question; `serve start` keeps one running"))
    with _short_lived(model_dir, engine) as server:
        path = None
        if checkpoint:
            rank = int(checkpoint.manifest["rank"])
            path = register(server.state_dir, checkpoint.id, server.base_model, rank, checkpoint.sampler_tar)
        yield Sampler(name, _client(server.connect(), server.base_model, path), renderer)


def _client(service: Any, base_model: str | None, path: str | None) -> Any:
    return (
        service.create_sampling_client(model_path=path)
        if path
        else service.create_sampling_client(base_model=base_model)
    )


@contextmanager
def _short_lived(model_dir: Path, engine: EngineConfig) -> Iterator[Any]:
    from tempfile import TemporaryDirectory

    from serving.server import TinkerServer

    with (
        TemporaryDirectory(prefix="nightschool-") as folder,
        TinkerServer(model_dir, Path(folder), engine) as server,
    ):
        yield server
