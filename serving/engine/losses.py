"""Policy and supervised losses, token by token, as the Tinker API names them.

Keeps true: every loss is a plain sum over tokens of `weight-masked` terms, with no division by lengths or rows: the client
decides the normalisation (SkyRL's torch backends do the same; its JAX backend divides by the mask sum). Shapes are
(rows, tokens); `mask` is the response mask. Leaves to others: advantages, KL terms, truncation.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

LossFn = Callable[[Tensor, Tensor, Tensor, Tensor, Mapping[str, float]], Tensor]

MAX_LOG_RATIO = 10.0  # exp(10) is already absurd as an importance ratio; beyond it bf16 overflows
DEFAULT_CLIP = (0.8, 1.2)  # absolute bounds of the ratio, the API's convention


def cross_entropy(
    logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, config: Mapping[str, float]
) -> Tensor:
    """Negative log-likelihood; fractional weights scale their token."""
    return -logprobs * mask


def importance_sampling(
    logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, config: Mapping[str, float]
) -> Tensor:
    """Policy gradient with a per-token importance ratio and no clipping."""
    return -torch.exp((logprobs - old).clamp(max=MAX_LOG_RATIO)) * advantages * mask


def ppo(
    logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, config: Mapping[str, float]
) -> Tensor:
    """PPO's clipped surrogate (arXiv 1707.06347), per-token ratio."""
    return _clipped(torch.exp((logprobs - old).clamp(max=MAX_LOG_RATIO)), advantages, config) * mask


def gspo(
    logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, config: Mapping[str, float]
) -> Tensor:
    """GSPO in its token form (arXiv 2507.18071, section 4.3): the ratio is the geometric mean over the response.

    s_i = exp(1/|y_i| * sum_t (logp_t - old_t)); the token weight is sg[s_i] * p_t / sg[p_t], whose value is s_i and whose
    gradient is s_i * grad logp_t. Only tokens of the response mask count in |y_i|: a prompt token in it would pull every
    ratio off 1.
    """
    response = (mask != 0).to(logprobs.dtype)
    length = response.sum(-1, keepdim=True).clamp(min=1)
    log_ratio = ((logprobs - old) * response).sum(-1, keepdim=True) / length
    ratio = torch.exp((logprobs - logprobs.detach() + log_ratio.detach()).clamp(max=MAX_LOG_RATIO))
    return _clipped(ratio, advantages, config) * mask


def cispo(
    logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, config: Mapping[str, float]
) -> Tensor:
    """CISPO (arXiv 2506.13585): the clipped ratio is a constant weight on the policy gradient."""
    low, high = _bounds(config)
    ratio = torch.exp((logprobs - old).clamp(max=MAX_LOG_RATIO)).clamp(low, high).detach()
    return -ratio * advantages * logprobs * mask


LOSSES: dict[str, LossFn] = {
    "cross_entropy": cross_entropy,
    "importance_sampling": importance_sampling,
    "ppo": ppo,
    "gspo": gspo,
    "cispo": cispo,
}


def _bounds(config: Mapping[str, float]) -> tuple[float, float]:
    return config.get("clip_low_threshold", DEFAULT_CLIP[0]), config.get(
        "clip_high_threshold", DEFAULT_CLIP[1]
    )


def _clipped(ratio: Tensor, advantages: Tensor, config: Mapping[str, float]) -> Tensor:
    low, high = _bounds(config)
    return -torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
