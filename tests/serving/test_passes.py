"""Shared beginnings are computed once, and nothing else changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from serving.engine.adapters import Adapters
from serving.engine.passes import common_prefix, hidden_states, micro_batches, pad, token_logprobs

CPU = torch.device("cpu")
ROWS = st.lists(st.lists(st.integers(3, 5), min_size=1, max_size=9), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def adapters(tiny_model_dir: Path) -> Adapters:
    from transformers import AutoModelForCausalLM

    base: Any = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    made = Adapters(base.eval(), max_snapshots=2)
    made.create("policy", rank=4, alpha=32, seed=0)
    torch.manual_seed(0)
    for parameter in made.parameters("policy"):
        torch.nn.init.normal_(parameter, std=0.1)  # LoRA's B begins at zero, where half the gradient is zero
    return made


@given(ROWS, st.integers(4, 40))
def test_every_row_is_in_exactly_one_micro_batch_and_none_costs_too_much(
    rows: list[list[int]], limit: int
) -> None:
    groups = micro_batches(rows, limit)
    assert sorted(i for group in groups for i in group) == list(range(len(rows)))
    for group in groups:
        members = [rows[i] for i in group]
        prefix = common_prefix(members)
        assert len(group) == 1 or prefix + len(group) * (max(map(len, members)) - prefix) <= limit


@given(ROWS)
def test_the_common_prefix_is_common_and_leaves_each_row_a_token(rows: list[list[int]]) -> None:
    prefix = common_prefix(rows)
    assert all(row[:prefix] == rows[0][:prefix] and len(row) > prefix for row in rows)


def loss_and_gradient(adapters: Adapters, groups: list[list[list[int]]]) -> tuple[Tensor, Tensor]:
    model = adapters.activate("policy")
    parameters = adapters.parameters("policy")
    for parameter in parameters:
        parameter.grad = None
    total = torch.zeros(())
    for rows in groups:
        targets = pad([[*row[1:], 3] for row in rows], torch.long, CPU)
        wanted = pad([[1] * len(row) for row in rows], torch.long, CPU) != 0
        loss = -token_logprobs(model, hidden_states(model, rows, CPU), targets, wanted).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        total = total + loss.detach()
    return total, torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])


def test_rows_upon_a_shared_beginning_have_the_gradient_of_rows_by_themselves(adapters: Adapters) -> None:
    torch.manual_seed(1)
    shared = torch.randint(3, 200, (20,)).tolist()
    rows = [shared + torch.randint(3, 200, (n,)).tolist() for n in (4, 7, 1, 12)]
    assert common_prefix(rows) >= 20
    together, apart = (
        loss_and_gradient(adapters, [rows]),
        loss_and_gradient(adapters, [[row] for row in rows]),
    )
    torch.testing.assert_close(together[0], apart[0], rtol=1e-5, atol=1e-5)
    assert (together[1] - apart[1]).norm() / apart[1].norm() < 1e-5


def test_positions_that_are_not_wanted_are_not_computed(adapters: Adapters) -> None:
    model = adapters.activate("policy")
    hidden = hidden_states(model, [[5, 6, 7]], CPU)
    wanted = torch.tensor([[False, True, False]])
    found = token_logprobs(model, hidden, torch.tensor([[6, 7, 8]]), wanted)
    assert found[0, 0] == 0.0
    assert found[0, 2] == 0.0
    assert found[0, 1] < 0.0


def test_a_snapshot_is_the_adapter_as_it_was_and_leaves_the_one_in_training_alone(
    adapters: Adapters, tmp_path: Path
) -> None:
    rows = [[5, 6, 7, 8]]
    with torch.no_grad():
        then = hidden_states(adapters.activate("policy"), rows, CPU)
        adapters.write_sampler_archive("policy", tmp_path / "then.tar.gz")
        before = [p.clone() for p in adapters.parameters("policy")]
        for parameter in adapters.parameters("policy"):
            parameter.add_(0.05)
        moved = [p.clone() for p in adapters.parameters("policy")]
        snapshot = hidden_states(adapters.activate(adapters.snapshot(tmp_path / "then.tar.gz")), rows, CPU)
        live = hidden_states(adapters.activate("policy"), rows, CPU)
    torch.testing.assert_close(snapshot, then)
    assert not torch.allclose(live, then)
    for parameter, value in zip(adapters.parameters("policy"), moved, strict=True):
        torch.testing.assert_close(parameter.detach(), value, rtol=0, atol=0)
    with torch.no_grad():
        for parameter, value in zip(adapters.parameters("policy"), before, strict=True):
            parameter.copy_(value)


def test_the_least_recently_used_snapshot_leaves(adapters: Adapters, tmp_path: Path) -> None:
    names = []
    for n in range(3):
        adapters.write_sampler_archive("policy", tmp_path / f"{n}.tar.gz")
        names.append(adapters.snapshot(tmp_path / f"{n}.tar.gz"))
    assert adapters.model is not None
    assert names[0] not in adapters.model.peft_config
    assert names[2] in adapters.model.peft_config
