"""Batched generation: many prompts at once on one adapter, each row with its own settings and random stream.

Keeps true: a row's tokens depend on its own seed, not on its neighbours' draws; the logprob returned is of the untempered
distribution (what the trainer computes); what prompts share at their beginning is read once. Rows that have ended
leave the batch when half of it has. Leaves to others: which adapter is on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from serving.engine.passes import common_prefix, read_prefix, split_head

TINY_TEMPERATURE = 1e-5  # at and below it, sampling is greedy


@dataclass(frozen=True)
class SampleSettings:
    """How one row is sampled. `stop_strings` end a row once its text holds one of them."""

    max_tokens: int
    temperature: float
    seed: int
    top_k: int = -1
    top_p: float = 1.0
    stop_tokens: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()


@dataclass
class Sampled:
    """One sampled row: ids, their untempered logprobs, and "stop" or "length"."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: str = "length"


@torch.inference_mode()
def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    settings: Sequence[SampleSettings],
    decode: Callable[[list[int]], str],
) -> list[Sampled]:
    """Samples one continuation a row.

    Args:
        model: a causal language model, its adapter already on.
        prompts: token ids, one list a row; equal prompts share their reading.
        settings: one per row.
        decode: text of ids, for stop strings only.
    """
    device = next(model.parameters()).device
    rows = [_Row(index, s, device) for index, s in enumerate(settings)]
    results = [row.sampled for row in rows]
    cache, mask, logits = _read_prompts(model, prompts, device)
    trunk, head = split_head(model)
    lengths = mask.sum(-1, keepdim=True)
    live = list(range(len(rows)))  # rows[live[k]] stands in line k of the tensors
    while True:
        tokens = _next_tokens(logits, [rows[i] for i in live])
        for row_number, token, logprob in zip(live, *tokens, strict=True):
            rows[row_number].take(token, logprob, decode)
        going = [k for k, i in enumerate(live) if not rows[i].done]
        if not going:
            return results
        if len(going) <= len(live) // 2:
            pick = torch.tensor(going, device=device)
            cache.batch_select_indices(pick)
            mask, lengths = mask[pick], lengths[pick]
            live = [live[k] for k in going]
        ids = torch.tensor([[rows[i].last] for i in live], device=device)
        mask = torch.cat([mask, mask.new_ones(len(live), 1)], 1)
        states = trunk(
            input_ids=ids, attention_mask=mask, position_ids=lengths, past_key_values=cache, use_cache=True
        ).last_hidden_state
        lengths = lengths + 1
        logits = head(states[:, -1]).float()


def _read_prompts(
    model: Any, prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[DynamicCache, Tensor, Tensor]:
    """(cache, attention mask, next-token logits), a line per row; each distinct prompt goes through the model once."""
    unique: dict[tuple[int, ...], int] = {}
    place = [unique.setdefault(tuple(prompt), len(unique)) for prompt in prompts]
    trunk, head = split_head(model)
    prefix = common_prefix(list(unique)) if len(unique) > 1 else 0
    shared = next(iter(unique))[:prefix]
    rests = [prompt[prefix:] for prompt in unique]
    width = max(map(len, rests))
    ids = torch.tensor([[0] * (width - len(r)) + list(r) for r in rests], device=device)
    mask = torch.tensor([[1] * prefix + [0] * (width - len(r)) + [1] * len(r) for r in rests], device=device)
    cache = read_prefix(trunk, shared, len(rests), device)[1] if prefix else DynamicCache()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, prefix:]
    states = trunk(
        input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
    ).last_hidden_state
    logits = head(states[:, -1]).float()
    pick = torch.tensor(place, device=device)
    if len(unique) < len(prompts) or place != sorted(place):
        cache.batch_select_indices(pick)
    return cache, mask[pick], logits[pick]


def _next_tokens(logits: Tensor, rows: "Sequence[_Row]") -> tuple[list[int], list[float]]:
    """A token and its untempered logprob per line of `logits` (rows, vocabulary)."""
    logprobs = logits.log_softmax(-1)
    temperatures = torch.tensor(
        [max(r.settings.temperature, TINY_TEMPERATURE) for r in rows], device=logits.device
    )
    weights = torch.softmax(logits / temperatures[:, None], -1)
    for k, row in enumerate(rows):
        if row.settings.top_k > 0 or row.settings.top_p < 1.0:
            weights[k] = _truncated(weights[k], row.settings)
    # Inverse of the distribution function, one uniform number a row: cheap, and each row keeps its own stream.
    cumulative = weights.double().cumsum(-1)
    uniform = torch.tensor([row.draw() for row in rows], dtype=torch.double, device=logits.device)[:, None]
    sampled = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)[:, 0].clamp(
        max=logits.shape[-1] - 1
    )
    greedy = torch.tensor(
        [row.settings.temperature <= TINY_TEMPERATURE for row in rows], device=logits.device
    )
    chosen = torch.where(greedy, logits.argmax(-1), sampled)
    return chosen.tolist(), logprobs.gather(-1, chosen[:, None])[:, 0].tolist()


def _truncated(weights: Tensor, settings: SampleSettings) -> Tensor:
    """One row's probabilities with those outside top-k and top-p at zero; the likeliest token always stays."""
    ordered, order = weights.sort(descending=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if settings.top_k > 0:
        keep[settings.top_k :] = False
    if settings.top_p < 1.0:
        keep &= ordered.cumsum(-1) - ordered < settings.top_p
    keep[0] = True
    return torch.zeros_like(weights).scatter(0, order, ordered * keep)


class _Row:
    """One row on its way."""

    def __init__(self, index: int, settings: SampleSettings, device: torch.device) -> None:
        self.index, self.settings, self.sampled, self.done = index, settings, Sampled(), False
        self._generator = torch.Generator().manual_seed(settings.seed)

    @property
    def last(self) -> int:
        return self.sampled.token_ids[-1]

    def draw(self) -> float:
        return float(torch.rand((), generator=self._generator, dtype=torch.double))

    def take(self, token: int, logprob: float, decode: Callable[[list[int]], str]) -> None:
        """Adds a token, unless the row has ended already."""
        if self.done:
            return
        self.sampled.token_ids.append(token)
        self.sampled.logprobs.append(logprob)
        if token in self.settings.stop_tokens or self._stopped_by_text(decode):
            self.sampled.stop_reason, self.done = "stop", True
        elif len(self.sampled.token_ids) >= self.settings.max_tokens:
            self.done = True

    def _stopped_by_text(self, decode: Callable[[list[int]], str]) -> bool:
        if not self.settings.stop_strings:
            return False
        tail = decode(self.sampled.token_ids[-(max(map(len, self.settings.stop_strings)) + 1) :])
        return any(text in tail for text in self.settings.stop_strings)
