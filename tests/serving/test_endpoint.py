"""The standing endpoint: started once, answering after a stop and a start, and back after a crash."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from serving import endpoint
from serving.catalog import register
from serving.config import EndpointConfig, EngineConfig
from serving.errors import ServingError
from serving.server import TinkerServer, answers, free_port

pytestmark = pytest.mark.server

ENGINE = EngineConfig(dtype="float32")


@pytest.fixture(scope="module")
def archive(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sampler archive that some training left."""
    state = tmp_path_factory.mktemp("training")
    with TinkerServer(tiny_model_dir, state, ENGINE) as server:
        client = server.connect().create_lora_training_client(base_model=server.base_model, rank=4, seed=1)
        server.result(client.save_weights_for_sampler("end"))
        model = client.get_info().model_id
    return state / "checkpoints" / model / "sampler_weights" / "end.tar.gz"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "serving"
    endpoint.stop(tmp_path / "serving")


def ask(state: Path, path: str) -> list[int]:
    from tinker import types

    service = endpoint.client(state)
    sampler = service.create_sampling_client(model_path=path)
    params = types.SamplingParams(max_tokens=4, temperature=0.0)
    answer: Any = sampler.sample(
        prompt=types.ModelInput.from_ints([1, 20]), num_samples=1, sampling_params=params
    )
    tokens = list(answer.result(timeout=120).sequences[0].tokens)
    service.holder.close()
    return tokens


def test_a_checkpoint_answers_by_its_path_also_after_a_stop_and_a_start(
    tiny_model_dir: Path, state: Path, archive: Path
) -> None:
    settings = EndpointConfig(port=free_port())
    first = endpoint.start(state, tiny_model_dir, ENGINE, settings)
    assert first.running
    assert first.url == f"http://127.0.0.1:{settings.port}"
    path = register(state, "ckpt-abc", str(tiny_model_dir.resolve()), 4, archive)
    said = ask(state, path)
    assert endpoint.start(state, tiny_model_dir, ENGINE, settings) == first  # a second start changes nothing
    assert endpoint.stop(state)
    assert not endpoint.status(state).running
    assert not answers(first.url)
    endpoint.start(state, tiny_model_dir, ENGINE, settings)
    assert ask(state, path) == said


def test_a_server_that_crashed_is_brought_back(tiny_model_dir: Path, state: Path) -> None:
    running = endpoint.start(state, tiny_model_dir, ENGINE, EndpointConfig(port=free_port()))
    assert running.pid
    assert running.url
    [api] = psutil.Process(running.pid).children()
    api.kill()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        children = psutil.Process(running.pid).children()
        if children and children[0].pid != api.pid and answers(running.url):
            return
        time.sleep(0.5)
    pytest.fail(endpoint.logs(state))


def test_a_port_that_is_taken_is_named_before_anything_starts(tiny_model_dir: Path, state: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ServingError, match=f"port {port} .* is taken"):
            endpoint.start(state, tiny_model_dir, ENGINE, EndpointConfig(port=port))


def test_what_is_not_running_says_how_to_start_it(state: Path) -> None:
    assert not endpoint.status(state).running
    assert not endpoint.stop(state)
    with pytest.raises(ServingError, match="nightschool serve start"):
        endpoint.client(state)
