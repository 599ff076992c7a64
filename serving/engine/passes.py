"""Log-probabilities of given tokens: the forward pass that training and prompt scoring share.

Keeps true: a micro-batch costs at most `tokens_per_pass` tokens; what its rows share at their beginning (a system prompt, a
task's instruction) is computed once; the vocabulary product is made only where a token counts, a chunk at a time. Shapes: (rows, tokens).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

HEAD_CHUNK_TOKENS = 512  # tokens x vocabulary in float32 at once: 100 MB at a vocabulary of 49,152


def micro_batches(rows: Sequence[Sequence[int]], tokens_per_pass: int) -> list[list[int]]:
    """Row numbers in groups that cost at most `tokens_per_pass` tokens each (one long row is a group of its own).

    Rows are taken in the order of their tokens, so those that share a beginning meet in a group, and the shared beginning
    is counted once.
    """
    groups: list[list[int]] = []
    for row in sorted(range(len(rows)), key=lambda i: list(rows[i])):
        wider = [*groups[-1], row] if groups else []
        if wider and _cost([rows[i] for i in wider]) <= tokens_per_pass:
            groups[-1] = wider
        else:
            groups.append([row])
    return groups


def common_prefix(rows: Sequence[Sequence[int]]) -> int:
    """How many leading tokens all rows share; at least one token of every row stays outside."""
    first, last = (
        min(map(list, rows)),
        max(map(list, rows)),
    )  # in the order of tokens, these two differ earliest
    shortest = min(map(len, rows))
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return max(0, min(same, shortest - 1))


def _cost(rows: Sequence[Sequence[int]]) -> int:
    prefix = common_prefix(rows)
    return prefix + len(rows) * (max(map(len, rows)) - prefix)


def pad(rows: Sequence[Sequence[float]], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Rows of unequal length as one tensor, zeros on the right."""
    tensors = [torch.tensor(list(row), dtype=dtype) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True).to(device)


def hidden_states(model: Any, rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Last hidden states, shape (rows, longest row, width); the rows' shared beginning goes through the model once.

    Exact: keys and values of the shared tokens stay in the graph, so their gradient is the sum over the rows.
    """
    trunk, _ = split_head(model)
    prefix = common_prefix(rows) if len(rows) > 1 else 0
    rests = [row[prefix:] for row in rows]
    ids = pad(rests, torch.long, device)
    lengths = torch.tensor([len(rest) for rest in rests], device=device)
    attention = (torch.arange(ids.shape[1], device=device)[None] < lengths[:, None]).long()
    if not prefix:
        states: Tensor = trunk(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state
        return states
    top, cache = read_prefix(trunk, rows[0][:prefix], len(rows), device)
    attention = torch.cat([attention.new_ones(len(rows), prefix), attention], 1)
    positions = torch.arange(prefix, prefix + ids.shape[1], device=device)[None].expand_as(ids)
    rest_states = trunk(
        input_ids=ids, attention_mask=attention, position_ids=positions, past_key_values=cache, use_cache=True
    ).last_hidden_state
    return torch.cat([top.expand(len(rows), -1, -1), rest_states], 1)


def read_prefix(
    trunk: Any, prefix: Sequence[int], rows: int, device: torch.device
) -> tuple[Tensor, DynamicCache]:
    """(hidden states of `prefix`, shape (1, tokens, width); its keys and values, ready for `rows` rows)."""
    cache: Any = DynamicCache()
    ids = torch.tensor([list(prefix)], device=device)
    states: Tensor = trunk(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state
    for layer in cache.layers:
        layer.keys, layer.values = (t.expand(rows, -1, -1, -1) for t in (layer.keys, layer.values))
    return states, cache


def split_head(model: Any) -> tuple[Any, Any]:
    """(trunk, head) of a causal language model, with or without adapters on it."""
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    return causal.get_decoder(), causal.get_output_embeddings()


def token_logprobs(model: Any, hidden: Tensor, targets: Tensor, wanted: Tensor) -> Tensor:
    """Log-probability of each target where `wanted`, 0 elsewhere; float32, shape (rows, tokens)."""
    _, head = split_head(model)
    flat_hidden, flat_targets = hidden[wanted], targets[wanted]
    parts = [
        torch.log_softmax(head(h).float(), -1).gather(-1, t[:, None])[:, 0]
        for h, t in zip(
            flat_hidden.split(HEAD_CHUNK_TOKENS), flat_targets.split(HEAD_CHUNK_TOKENS), strict=True
        )
    ]
    out = torch.zeros(targets.shape, dtype=torch.float32, device=targets.device)
    return out.masked_scatter(wanted, torch.cat(parts)) if parts else out
