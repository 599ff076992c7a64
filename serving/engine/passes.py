"""Log-probabilities of given tokens: the forward pass that training and prompt scoring share.

Keeps true: a micro-batch holds at most `tokens_per_pass` padded tokens, rows are grouped by length, and the vocabulary
product is made only where a token counts, a chunk at a time. Shapes: (rows, tokens).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

HEAD_CHUNK_TOKENS = 512  # tokens x vocabulary in float32 at once: 100 MB at a vocabulary of 49,152


def micro_batches(lengths: Sequence[int], tokens_per_pass: int) -> list[list[int]]:
    """Row numbers in groups whose padded size stays within `tokens_per_pass` (one long row is a group of its own)."""
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True):
        widest = lengths[groups[-1][0]] if groups else 0
        if groups and (len(groups[-1]) + 1) * widest <= tokens_per_pass:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def pad(rows: Sequence[Sequence[float]], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Rows of unequal length as one tensor, zeros on the right."""
    tensors = [torch.tensor(list(row), dtype=dtype) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True).to(device)


def hidden_states(model: Any, ids: Tensor, lengths: Tensor) -> Tensor:
    """Last hidden states, shape (rows, tokens, width), of right-padded rows."""
    attention = (torch.arange(ids.shape[1], device=ids.device)[None] < lengths[:, None]).long()
    trunk, _ = split_head(model)
    states: Tensor = trunk(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state
    return states


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
        for h, t in zip(flat_hidden.split(HEAD_CHUNK_TOKENS), flat_targets.split(HEAD_CHUNK_TOKENS), strict=True)
    ]
    out = torch.zeros(targets.shape, dtype=torch.float32, device=targets.device)
    return out.masked_scatter(wanted, torch.cat(parts)) if parts else out
