"""The real SkyRL server with our backend, on a tiny model: trains, samples, survives, and lets nobody in without a key."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from serving.catalog import register
from serving.config import EngineConfig
from serving.errors import ServerFailed
from serving.renderer import Renderer
from serving.server import TinkerServer

pytestmark = pytest.mark.server

ENGINE = EngineConfig(dtype="float32")


@pytest.fixture(scope="module")
def server(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    with TinkerServer(tiny_model_dir, tmp_path_factory.mktemp("state"), ENGINE) as running:
        yield running


@pytest.fixture(scope="module")
def service(server: TinkerServer) -> Any:
    return server.connect()


@pytest.fixture
def client(server: TinkerServer, service: Any) -> Any:
    return service.create_lora_training_client(base_model=server.base_model, rank=8, seed=3)


class Unanswered:
    """A request that nobody will answer any more."""

    def result(self, timeout: float | None = None) -> str:
        time.sleep(0.1)
        raise TimeoutError


def row(ids: list[int], weights: list[float], **columns: list[float]) -> Any:
    from tinker import types

    def tensor(values: list[Any], dtype: Any) -> Any:
        return types.TensorData(data=values, dtype=dtype, shape=[len(values)])

    inputs = {"target_tokens": tensor(ids[1:], "int64"), "weights": tensor(weights[1:], "float32")}
    inputs |= {name: tensor(values[1:], "float32") for name, values in columns.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(ids[:-1]), loss_fn_inputs=inputs)


def sample(server: TinkerServer, sampler: Any, prompt: list[int], n: int = 1, **params: Any) -> list[Any]:
    from tinker import types

    settings = types.SamplingParams(**{"max_tokens": 8, "temperature": 1.0, "seed": 7, "stop": [2], **params})
    request = types.ModelInput.from_ints(prompt)
    return list(
        server.result(sampler.sample(prompt=request, num_samples=n, sampling_params=settings)).sequences
    )


def logprobs(server: TinkerServer, sampler: Any) -> list[float]:
    from tinker import types

    return list(server.result(sampler.compute_logprobs(types.ModelInput.from_ints([1, 20, 30, 40, 50]))))[1:]


def learn(
    server: TinkerServer, client: Any, ids: list[int], steps: int = 8, rate: float = 1e-2
) -> list[float]:
    from tinker import types

    weights = [0.0] + [1.0 / (len(ids) - 1)] * (len(ids) - 1)
    losses = []
    for _ in range(steps):
        backward = client.forward_backward([row(ids, weights)], "cross_entropy")
        optim = client.optim_step(types.AdamParams(learning_rate=rate))
        losses.append(server.result(backward).metrics["loss:sum"])
        server.result(optim)
    return losses


def test_it_learns_a_row(server: TinkerServer, client: Any) -> None:
    losses = learn(server, client, [1, 60, 61, 62, 63, 2], steps=12)
    assert losses[-1] < losses[0] - 0.4  # its small fixed embeddings leave little more to win


def test_sampled_logprobs_are_the_trainers_to_rounding(server: TinkerServer, client: Any) -> None:
    learn(server, client, [1, 60, 61, 62, 63, 2], steps=2)
    sampler = client.save_weights_and_get_sampling_client()
    [sequence] = sample(server, sampler, [1, 60, 61])
    ids = [1, 60, 61, *sequence.tokens]
    weights = [0.0] * 3 + [1.0] * len(sequence.tokens)
    output = server.result(client.forward([row(ids, weights)], "cross_entropy"))
    trained = output.loss_fn_outputs[0]["logprobs"].data[2:]
    assert trained == pytest.approx(sequence.logprobs, abs=5e-5)


def test_a_fused_gspo_step_raises_what_was_rewarded(server: TinkerServer, client: Any) -> None:
    from tinker import types

    sampler = client.save_weights_and_get_sampling_client()
    good, bad = (sample(server, sampler, [1, 60, 61], seed=n)[0] for n in (1, 2))

    def rollout(sequence: Any, advantage: float) -> Any:
        n = len(sequence.tokens)
        zeros = [0.0] * 3
        return row(
            [1, 60, 61, *sequence.tokens],
            [*zeros, *[1.0] * n],
            logprobs=[*zeros, *sequence.logprobs],
            advantages=[*zeros, *[advantage / n] * n],
        )

    def chances() -> list[float]:
        data = [rollout(good, 1.0), rollout(bad, -1.0)]
        outputs = server.result(client.forward(data, "gspo")).loss_fn_outputs
        return [sum(output["logprobs"].data) for output in outputs]

    before = chances()
    backward = client.forward_backward([rollout(good, 1.0), rollout(bad, -1.0)], "gspo")
    optim = client.optim_step(types.AdamParams(learning_rate=1e-3))
    assert server.result(backward).metrics["loss:sum"] == pytest.approx(
        0.0, abs=1e-3
    )  # on policy: -A/n summed over n
    assert server.result(optim).metrics["grad_norm"] > 0
    after = chances()
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_sampling_an_older_checkpoint_leaves_the_weights_in_training_alone(
    server: TinkerServer, service: Any, client: Any
) -> None:
    old = server.result(client.save_weights_for_sampler("old")).path
    old_sampler = service.create_sampling_client(model_path=old)
    then = logprobs(server, old_sampler)
    learn(server, client, [1, 60, 61, 62, 63, 2])
    now = logprobs(server, client.save_weights_and_get_sampling_client())
    sample(server, old_sampler, [1, 5])
    assert logprobs(server, old_sampler) == pytest.approx(then, abs=1e-6)
    assert logprobs(server, client.save_weights_and_get_sampling_client()) == pytest.approx(now, abs=1e-6)
    assert now != pytest.approx(then, abs=1e-3)


def test_training_goes_on_from_a_saved_state_with_its_optimizer(
    server: TinkerServer, service: Any, client: Any
) -> None:
    ids = [1, 60, 61, 62, 63, 2]
    learn(server, client, ids, steps=4)
    state = server.result(client.save_state("half")).path
    straight = learn(server, client, ids, steps=3)
    again = service.create_lora_training_client(base_model=server.base_model, rank=8, seed=99)
    server.result(again.load_state_with_optimizer(state))
    assert learn(server, again, ids, steps=3) == pytest.approx(straight, abs=1e-4)


def test_an_unknown_loss_fails_its_request_and_names_those_there_are(
    server: TinkerServer, client: Any
) -> None:
    with pytest.raises(Exception, match=r"loss 'dppo' is not one of this backend's: .*gspo"):
        server.result(client.forward([row([1, 5, 6], [0.0, 1.0, 1.0])], "dppo"))


def test_a_checkpoint_from_a_file_answers_under_its_path(
    server: TinkerServer, service: Any, client: Any
) -> None:
    learn(server, client, [1, 60, 61, 62, 63, 2], steps=3)
    server.result(client.save_weights_for_sampler("kept"))
    model = client.get_info().model_id
    archive = server.state_dir / "checkpoints" / model / "sampler_weights" / "kept.tar.gz"
    path = register(server.state_dir, "ckpt-0123456789ab", server.base_model, 8, archive)
    assert path == "tinker://ckpt-0123456789ab/sampler_weights/final"
    expected = logprobs(server, client.save_weights_and_get_sampling_client())
    assert logprobs(server, service.create_sampling_client(model_path=path)) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "tml-wrong"}, {"Authorization": "Bearer tml-wrong"}])
def test_nobody_gets_in_without_the_key(server: TinkerServer, headers: dict[str, str]) -> None:
    request = urllib.request.Request(f"{server.url}/api/v1/get_server_capabilities", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    with refused.value as answer:
        assert answer.code == 401
        assert "X-API-Key" in json.loads(answer.read())["detail"]


def test_the_key_is_for_its_owners_eyes_only(server: TinkerServer) -> None:
    assert server.key_file.stat().st_mode & 0o077 == 0


def test_several_samples_of_one_prompt_differ_and_equal_seeds_agree(
    server: TinkerServer, service: Any
) -> None:
    base = service.create_sampling_client(base_model=server.base_model)
    first = sample(server, base, [1, 60], n=4)
    assert len({tuple(s.tokens) for s in first}) > 1
    assert [s.tokens for s in sample(server, base, [1, 60], n=4)] == [s.tokens for s in first]


def test_a_dead_server_is_an_error_and_not_a_wait_for_ever(tiny_model_dir: Path, tmp_path: Path) -> None:
    with TinkerServer(tiny_model_dir, tmp_path, ENGINE) as doomed:
        assert doomed.pid is not None
        for process in psutil.Process(doomed.pid).children(recursive=True):
            if "serving.engine_main" in " ".join(process.cmdline()):
                process.kill()
        with pytest.raises(ServerFailed, match="died"):
            doomed.result(Unanswered(), timeout_s=60)


def test_a_model_that_cannot_be_loaded_is_an_error_with_the_servers_own_words(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "model"
    broken.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (broken / name).write_bytes((tiny_model_dir / name).read_bytes())
    with (
        pytest.raises(ServerFailed, match=r"no file named|safetensors"),
        TinkerServer(broken, tmp_path / "state", ENGINE),
    ):
        pass


def test_the_server_goes_when_the_process_that_started_it_is_killed(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    program = (
        "import sys, time; from pathlib import Path; from serving.config import EngineConfig; "
        "from serving.server import TinkerServer\n"
        "server = TinkerServer(Path(sys.argv[1]), Path(sys.argv[2]), EngineConfig()); server.start()\n"
        "print(server.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tiny_model_dir), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        api = psutil.Process(int(parent.stdout.readline()))
        tree = [api, *api.children(recursive=True)]
        assert len(tree) >= 2
        parent.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(tree, timeout=30)
    assert alive == []


def test_the_renderer_and_the_model_agree_on_the_end_of_a_turn(
    server: TinkerServer, service: Any, tiny_model_dir: Path
) -> None:
    renderer = Renderer(tiny_model_dir)
    base = service.create_sampling_client(base_model=server.base_model)
    prompt = renderer.prompt([{"role": "user", "content": "hello"}], [])
    sequences = sample(server, base, prompt, n=8, max_tokens=48, stop=renderer.stop_token_ids)
    for sequence in sequences:
        if sequence.stop_reason == "stop":
            assert sequence.tokens[-1] in renderer.stop_token_ids
            assert renderer.stop_token_ids[0] not in sequence.tokens[:-1]
