"""Generation: each row is its own, whatever stands beside it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from serving.engine.passes import hidden_states, token_logprobs
from serving.engine.sampling import SampleSettings, generate


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> Any:
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    return loaded.eval()


def settings(seed: int = 1, max_tokens: int = 8, temperature: float = 1.0, **more: Any) -> SampleSettings:
    return SampleSettings(max_tokens=max_tokens, temperature=temperature, seed=seed, **more)


def decode(ids: list[int]) -> str:
    return "".join(chr(65 + i % 26) for i in ids)


PROMPTS = [[5, 6, 7], [5, 6, 7, 8, 9, 10], [5, 6, 7], [40, 41]]


def test_a_rows_tokens_do_not_depend_on_its_neighbours(model: Any) -> None:
    rows = [settings(seed=n, max_tokens=3 + n) for n in range(len(PROMPTS))]
    together = generate(model, PROMPTS, rows, decode)
    for prompt, row, sampled in zip(PROMPTS, rows, together, strict=True):
        [alone] = generate(model, [prompt], [row], decode)
        assert alone.token_ids == sampled.token_ids
        assert len(sampled.token_ids) == row.max_tokens


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_are_what_the_trainer_computes_whatever_the_temperature(
    model: Any, temperature: float
) -> None:
    sampled = generate(model, PROMPTS, [settings(seed=n, temperature=temperature) for n in range(4)], decode)
    for prompt, one in zip(PROMPTS, sampled, strict=True):
        row = prompt + one.token_ids
        targets = torch.tensor([[*row[1:], 0]])
        wanted = torch.zeros_like(targets, dtype=torch.bool)
        wanted[0, len(prompt) - 1 : len(row) - 1] = True
        with torch.no_grad():
            trained = token_logprobs(
                model, hidden_states(model, [row], torch.device("cpu")), targets, wanted
            )[wanted]
        torch.testing.assert_close(torch.tensor(one.logprobs), trained, rtol=1e-4, atol=1e-4)


def test_temperature_zero_takes_the_likeliest_token(model: Any) -> None:
    first, second = (
        generate(model, [[5, 6]], [settings(seed=n, temperature=0.0)], decode)[0] for n in (1, 2)
    )
    assert first.token_ids == second.token_ids
    with torch.no_grad():
        likeliest = int(model(input_ids=torch.tensor([[5, 6]])).logits[0, -1].argmax())
    assert first.token_ids[0] == likeliest


def test_top_k_of_one_is_greedy_at_any_temperature(model: Any) -> None:
    [greedy] = generate(model, [[5, 6]], [settings(temperature=0.0)], decode)
    [narrow] = generate(model, [[5, 6]], [settings(temperature=2.0, top_k=1)], decode)
    [nucleus] = generate(model, [[5, 6]], [settings(temperature=2.0, top_p=1e-9)], decode)
    assert greedy.token_ids == narrow.token_ids == nucleus.token_ids


def test_a_stop_token_ends_its_row_and_is_part_of_it(model: Any) -> None:
    [free] = generate(model, [[5, 6]], [settings(seed=4)], decode)
    stop = free.token_ids[2]
    [stopped] = generate(model, [[5, 6]], [settings(seed=4, stop_tokens=frozenset({stop}))], decode)
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert (stopped.stop_reason, free.stop_reason) == ("stop", "length")


def test_a_stop_string_ends_its_row(model: Any) -> None:
    [free] = generate(model, [[5, 6]], [settings(seed=4)], decode)
    text = decode(free.token_ids[1:3])
    [stopped] = generate(model, [[5, 6]], [settings(seed=4, stop_strings=(text,))], decode)
    assert stopped.token_ids == free.token_ids[:3]
    assert stopped.stop_reason == "stop"


def test_samples_follow_the_models_distribution(model: Any) -> None:
    with torch.no_grad():
        probabilities = model(input_ids=torch.tensor([[5, 6]])).logits[0, -1].softmax(-1)
    likely = int(probabilities.argmax())
    n = 400
    drawn = generate(model, [[5, 6]] * n, [settings(seed=s, max_tokens=1) for s in range(n)], decode)
    share = sum(one.token_ids[0] == likely for one in drawn) / n
    expected = float(probabilities[likely])
    assert abs(share - expected) < 4 * (expected * (1 - expected) / n) ** 0.5 + 1 / n
