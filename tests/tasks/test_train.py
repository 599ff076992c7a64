"""The client's side of training: advantages, rows, plans, and both kinds of training through the real server."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.agents import AgentRun, Completion
from sandbox.config import SandboxConfig
from sandbox.errors import SandboxError
from serving.config import EngineConfig
from serving.renderer import Renderer
from storage import datasets
from storage.home import Home
from storage.registry import Registry
from storage.runs import Run
from tasks.agent import AgentConfig
from tasks.errors import TaskError
from tasks.train.advantages import group_advantages
from tasks.train.config import RlConfig, SftConfig
from tasks.train.rl import Rollout, mismatch, rollout_datum, rollout_seed, train_rl
from tasks.train.sft import batch_plan, train_sft

ENGINE = EngineConfig(dtype="float32")


def test_a_rollout_without_a_verdict_leaves_its_group_and_the_group_lives_on() -> None:
    assert group_advantages([1.0, None, 0.0]) == [1.0, None, -1.0]


def test_a_group_whose_rewards_are_equal_carries_no_signal() -> None:
    assert group_advantages([1.0, 1.0, None]) == [None, None, None]


def test_one_verdict_is_no_group() -> None:
    assert group_advantages([1.0, None]) == [None, None]


@given(st.lists(st.none() | st.integers(0, 4).map(lambda n: n / 4), max_size=9))
def test_advantages_are_centred_and_of_unit_variance(rewards: list[float | None]) -> None:
    known = [a for a in group_advantages(rewards) if a is not None]
    if known:
        assert math.fsum(known) == pytest.approx(0, abs=1e-6)
        assert math.fsum(a * a for a in known) / len(known) == pytest.approx(1, abs=1e-6)


def agent_run() -> AgentRun:
    run = AgentRun()
    run.given([1, 2, 3])
    run.sampled(Completion([10, 11], [-0.5, -0.25], "stop"))
    run.given([4])
    run.sampled(Completion([12], [-1.0], "stop"))
    return run


def test_a_rollouts_row_has_the_sampled_tokens_their_logprobs_and_the_response_mask() -> None:
    made = rollout_datum(Rollout(agent_run(), advantage=2.0), rollouts=4)
    columns = {name: list(tensor.data) for name, tensor in made.loss_fn_inputs.items()}
    assert columns["target_tokens"] == [2, 3, 10, 11, 4, 12]
    assert columns["weights"] == [0, 0, 1, 1, 0, 1]
    assert columns["logprobs"] == [0, 0, -0.5, -0.25, 0, -1.0]
    scaled = 2.0 / (3 * 4)  # by the rollout's own length, and by the number of rollouts
    assert columns["advantages"] == pytest.approx([0, 0, scaled, scaled, 0, scaled])


def test_the_mismatch_looks_at_sampled_tokens_only() -> None:
    class Tensor:
        data = (9.0, 9.0, -0.4, -0.25, 9.0, -1.0)

    found = mismatch([Rollout(agent_run(), 1.0)], [{"logprobs": Tensor}])
    assert found["mismatch_max"] == pytest.approx(0.1)
    assert found["mismatch_mean"] == pytest.approx(0.1 / 3)


def test_every_row_stands_once_in_an_epoch_and_the_order_is_the_seeds() -> None:
    plan = batch_plan(10, SftConfig(batch_rows=4, epochs=2), seed=5)
    assert [len(batch) for batch in plan] == [4, 4, 2, 4, 4, 2]
    for epoch in (plan[:3], plan[3:]):
        assert sorted(row for batch in epoch for row in batch) == list(range(10))
    assert plan == batch_plan(10, SftConfig(batch_rows=4, epochs=2), seed=5)
    assert plan != batch_plan(10, SftConfig(batch_rows=4, epochs=2), seed=6)


def test_a_fraction_of_an_epoch_and_a_step_limit_both_end_it() -> None:
    assert [len(b) for b in batch_plan(10, SftConfig(batch_rows=4, epochs=0.5), seed=0)] == [4, 1]
    assert len(batch_plan(100, SftConfig(batch_rows=4, epochs=3, max_steps=2), seed=0)) == 2


def test_the_learning_rate_rises_then_falls_to_its_final_fraction() -> None:
    config = SftConfig(learning_rate=1.0, warmup_steps=2, final_fraction=0.2)
    rates = [config.rate(step, 11) for step in range(11)]
    assert rates[0] == pytest.approx(1 / 3)
    assert max(rates) == rates[2]
    assert rates[-1] == pytest.approx(0.2)


def test_no_two_rollouts_share_a_seed() -> None:
    seeds = {
        rollout_seed(1, step, task, sample) for step in range(5) for task in "abc" for sample in range(8)
    }
    assert len(seeds) == 5 * 3 * 8


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def dataset(home: Home, model: Path, renderer_digest: str | None = None) -> str:
    renderer = Renderer(model)
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello there", "train": True},
    ]
    row = renderer.training_row(messages, [])
    rows = [
        {
            "conversation_id": f"c{n}",
            "split": "train",
            "messages": messages,
            "tools": [],
            "token_ids": row.token_ids,
            "mask": row.mask,
            "weight": 1.0,
        }
        for n in range(6)
    ]
    made_with = {"name": renderer.name, "digest": renderer_digest or renderer.digest}
    return datasets.write(home, rows, {"kind": "sft", "renderer": made_with})


@pytest.mark.server
def test_sft_lowers_the_loss_and_leaves_a_registered_checkpoint(home: Home, tiny_model_dir: Path) -> None:
    run = Run.create(home, "train", {})
    config = SftConfig(learning_rate=2e-2, epochs=4, batch_rows=2, rank=4)
    result = train_sft(home, run, tiny_model_dir, dataset(home, tiny_model_dir), config, ENGINE, seed=1)
    losses = [record["loss"] for record in run.metrics("sft")]
    assert len(losses) == result.steps == 12
    assert losses[-1] < losses[0] - 0.2  # a random model's small fixed embeddings leave little more to win
    checkpoint = Registry(home).get(result.checkpoint)
    assert checkpoint.manifest["kind"] == "sft"
    assert checkpoint.manifest["parents"] == ["base"]
    assert checkpoint.training_tar is not None


@pytest.mark.server
def test_a_dataset_of_another_renderer_is_refused(home: Home, tiny_model_dir: Path) -> None:
    made = dataset(home, tiny_model_dir, renderer_digest="0" * 64)
    with pytest.raises(TaskError, match="another tokenizer or text form"):
        train_sft(home, Run.create(home, "train", {}), tiny_model_dir, made, SftConfig(), ENGINE, seed=1)


TASK_TOML = 'schema_version = "1.4"\n[task]\nname = "test/coin"\n[environment]\nnetwork_mode = "no-network"\n'
COIN = "#!/bin/bash\n[ $((RANDOM % 2)) = 0 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"


def coin_task(folder: Path) -> Path:
    """A task whose verdict is a coin's, so that a random model meets groups with a signal."""
    for name, text in {
        "task.toml": TASK_TOML,
        "instruction.md": "Do what you like.",
        "environment/Dockerfile": "FROM nightschool-base:bookworm\nWORKDIR /app\n",
        "tests/test.sh": COIN,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.server
@pytest.mark.docker
def test_rl_learns_from_verdicts_of_real_sandboxes_and_starts_from_a_checkpoint(
    home: Home, tiny_model_dir: Path, tmp_path: Path
) -> None:
    coin_task(tmp_path / "tasks" / "coin")
    run = Run.create(home, "train", {})
    sft = SftConfig(epochs=1, batch_rows=6, rank=4)
    start = train_sft(
        home, run, tiny_model_dir, dataset(home, tiny_model_dir), sft, ENGINE, seed=1
    ).checkpoint
    config = RlConfig(steps=2, groups_per_step=1, group_size=6, rank=4)
    agent = AgentConfig(max_turns=1, max_tokens_per_turn=6)
    result = train_rl(
        home, run, tiny_model_dir, tmp_path / "tasks", start, config, agent, SandboxConfig(concurrency=3), ENGINE, seed=4
    )  # fmt: skip
    steps: list[dict[str, Any]] = run.metrics("rl")
    assert [step["rollouts"] for step in steps] == [6, 6]
    assert all(step["without_verdict"] == 0 for step in steps)
    learned = [step for step in steps if step["groups_with_signal"]]
    assert learned, "twelve tosses of a coin came out alike"
    for step in learned:
        assert step["grad_norm"] > 0
        assert step["mismatch_max"] < 1e-3
    checkpoint = Registry(home).get(result.checkpoint)
    assert checkpoint.manifest["parents"] == [start]
    assert checkpoint.manifest["kind"] == "rl"


@pytest.mark.server
def test_a_start_of_another_rank_is_refused_by_name(home: Home, tiny_model_dir: Path, tmp_path: Path) -> None:
    run = Run.create(home, "train", {})
    sft = SftConfig(epochs=1, batch_rows=6, rank=4)
    start = train_sft(
        home, run, tiny_model_dir, dataset(home, tiny_model_dir), sft, ENGINE, seed=1
    ).checkpoint
    coin_task(tmp_path / "tasks" / "coin")
    with pytest.raises(TaskError, match="another adapter rank"):
        train_rl(
            home,
            run,
            tiny_model_dir,
            tmp_path / "tasks",
            start,
            RlConfig(rank=8),
            AgentConfig(),
            SandboxConfig(),
            ENGINE,
            seed=1,
        )


def test_no_tasks_is_said_before_a_server_starts(home: Home, tiny_model_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(SandboxError, match=r"task\.toml"):
        train_rl(
            home, Run.create(home, "train", {}), tiny_model_dir, tmp_path / "none", None, RlConfig(), AgentConfig(),
            SandboxConfig(), ENGINE, seed=1,
        )  # fmt: skip
