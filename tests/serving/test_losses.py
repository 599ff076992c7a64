"""The losses against their papers' formulas, written out in float64 and differentiated by autograd."""

import pytest
import torch
from torch import Tensor

from serving.engine.losses import LOSSES, cispo, cross_entropy, gspo, importance_sampling, ppo

ROWS, TOKENS, PROMPT = 6, 9, 3
CLIP = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}


def batch(spread: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(logprobs, old, advantages, mask): rows of different lengths, prompts in front, float64."""
    torch.manual_seed(3)
    logprobs = -torch.rand(ROWS, TOKENS, dtype=torch.float64) * 2
    old = logprobs + spread * torch.randn(ROWS, TOKENS, dtype=torch.float64)
    lengths = torch.tensor([6, 5, 4, 3, 2, 1])
    place = torch.arange(TOKENS)[None]
    mask = ((place >= PROMPT) & (place < PROMPT + lengths[:, None])).double()
    old = torch.where(mask > 0, old, 0.0)  # what clients send for a prompt: zeros
    advantages = torch.randn(ROWS, 1, dtype=torch.float64).expand(ROWS, TOKENS) * mask
    return logprobs, old, advantages, mask


def gradient(loss: Tensor, logprobs: Tensor) -> Tensor:
    return torch.autograd.grad(loss, logprobs)[0]


def gspo_objective(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Equation 5 of arXiv 2507.18071, row by row, with the length normalisation left to the advantage."""
    total = logprobs.new_zeros(())
    for row in range(ROWS):
        own = mask[row] > 0
        ratio = torch.exp((logprobs[row, own] - old[row, own]).mean())
        advantage = advantages[row, own][0]
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.1) * advantage)
        total = total - surrogate * own.sum()
    return total


@pytest.mark.parametrize("spread", [0.01, 0.5], ids=["unclipped", "clipped"])
def test_gspos_gradient_is_that_of_the_papers_sequence_objective(spread: float) -> None:
    logprobs, old, advantages, mask = batch(spread)
    logprobs.requires_grad_()
    ours = gradient(gspo(logprobs, old, advantages, mask, CLIP).sum(), logprobs)
    theirs = gradient(gspo_objective(logprobs, old, advantages, mask), logprobs)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    clipped_rows = int((theirs.abs().sum(-1) == 0).sum())
    assert (clipped_rows > 0) == (spread > 0.1)


def test_gspo_equals_the_exact_two_pass_way() -> None:
    logprobs, old, advantages, mask = batch(0.5)
    length = mask.sum(-1, keepdim=True)
    ratio = torch.exp(((logprobs - old) * mask).sum(-1, keepdim=True) / length)
    clipped = ((advantages > 0) & (ratio > 1.1)) | ((advantages < 0) & (ratio < 0.9))
    logprobs.requires_grad_()
    fused = gradient(gspo(logprobs, old, advantages, mask, CLIP).sum(), logprobs)
    gated = torch.where(clipped, 0.0, ratio * advantages)
    two_pass = gradient(importance_sampling(logprobs, logprobs.detach(), gated, mask, {}).sum(), logprobs)
    torch.testing.assert_close(fused, two_pass, rtol=1e-9, atol=1e-12)


def test_a_prompts_zero_logprobs_do_not_move_gspos_ratio() -> None:
    logprobs, _, advantages, mask = batch(0.0)
    old = torch.where(mask > 0, logprobs, 0.0)
    losses = gspo(logprobs, old, advantages, mask, CLIP)
    torch.testing.assert_close(losses, -advantages * mask)  # on policy, every ratio is exactly 1


def test_ppos_gradient_is_zero_where_its_ratio_left_the_clip_in_the_advantages_direction() -> None:
    logprobs, old, advantages, mask = batch(0.5)
    logprobs.requires_grad_()
    found = gradient(ppo(logprobs, old, advantages, mask, CLIP).sum(), logprobs)
    ratio = torch.exp(logprobs - old).detach()
    out = ((advantages > 0) & (ratio > 1.1)) | ((advantages < 0) & (ratio < 0.9)) | (mask == 0)
    torch.testing.assert_close(found, torch.where(out, 0.0, -ratio * advantages))


def test_cispo_keeps_a_gradient_where_it_clips() -> None:
    logprobs, old, advantages, mask = batch(0.5)
    logprobs.requires_grad_()
    found = gradient(cispo(logprobs, old, advantages, mask, CLIP).sum(), logprobs)
    torch.testing.assert_close(found, -torch.exp(logprobs - old).detach().clamp(0.9, 1.1) * advantages * mask)


def test_cross_entropy_scales_by_fractional_weights() -> None:
    logprobs, old, advantages, mask = batch(0.0)
    torch.testing.assert_close(
        cross_entropy(logprobs, old, advantages, mask / 4, {}).sum(), -(logprobs * mask).sum() / 4
    )


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_is_finite_however_far_the_policies_are_apart(name: str) -> None:
    logprobs, _, advantages, mask = batch(0.0)
    logprobs.requires_grad_()
    losses = LOSSES[name](logprobs, torch.full_like(logprobs, -200.0), advantages, mask, {})
    assert torch.isfinite(losses).all()
    assert torch.isfinite(gradient(losses.sum(), logprobs)).all()
