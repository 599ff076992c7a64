"""From the lake to rows: what is trained is exactly what the agent said and should say again."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from serving.renderer import IM_END, Renderer, TokenRow, render_assistant, trained_text
from storage import datasets
from storage.conversation import Conversation, conversation_id, message, path_ids
from storage.home import Home
from storage.lake import Lake
from tasks.convert.config import ConvertConfig
from tasks.convert.sft import build_sft
from tasks.errors import TaskError

TOOLS = ({"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}},)


def call(command: str) -> dict[str, Any]:
    return {
        "id": "c1",
        "name": "bash",
        "arguments": {"command": command},
        "arguments_raw": f'{{"command": "{command}"}}',
        "arguments_state": "ok",
    }


def talk(
    question: str, command: str = "ls", answer: str = "Done.", reward: float | None = 1.0, **call_turn: Any
) -> Conversation:
    messages = (
        message("system", "Be brief."),
        message("user", question),
        message("assistant", None, tool_calls=[call(command)], **call_turn),
        message("tool", "a.txt", tool_call_id="c1"),
        message("assistant", answer),
    )
    outcome = None if reward is None else {"kind": "test", "reward": reward, "passed": reward >= 1}
    leaf = path_ids(TOOLS, messages)[-1]
    return Conversation(conversation_id(leaf), "logs", "openai_chat", 0, (), TOOLS, outcome, messages)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def build(
    home: Home, model: Path, conversations: list[Conversation], **config: Any
) -> tuple[Any, list[dict[str, Any]]]:
    Lake(home).add([], conversations, [])
    result = build_sft(home, model, ConvertConfig(**config))
    return result, list(datasets.load(home, result.id)[1])


def spoken(model: Path, row: dict[str, Any]) -> list[str]:
    return list(trained_text(Renderer(model), TokenRow(list(row["token_ids"]), list(row["mask"]))))


def test_a_successful_conversation_is_one_row_that_trains_its_assistant_turns(
    home: Home, tiny_model_dir: Path
) -> None:
    one = talk("What is here?")
    result, [row] = build(home, tiny_model_dir, [one])
    assert (result.rows, result.dropped) == (1, {})
    assert spoken(tiny_model_dir, row) == [render_assistant(one.messages[2]) + IM_END, "Done." + IM_END]
    assert result.trained_tokens == sum(row["mask"])
    assert result.parents == [Lake(home).head()]


def test_failures_and_what_has_no_verdict_are_left_out_and_counted(home: Home, tiny_model_dir: Path) -> None:
    conversations = [talk("a"), talk("b", reward=0.0), talk("c", reward=None)]
    result, rows = build(home, tiny_model_dir, conversations)
    assert len(rows) == 1
    assert result.dropped == {"not_successful": 1, "no_outcome": 1}


def test_without_require_outcome_a_conversation_without_a_verdict_is_a_row_and_a_failure_is_not(
    home: Home, tiny_model_dir: Path
) -> None:
    result, _ = build(
        home, tiny_model_dir, [talk("b", reward=0.0), talk("c", reward=None)], require_outcome=False
    )
    assert (result.rows, result.dropped) == (1, {"not_successful": 1})


@pytest.mark.parametrize(("passed", "dropped"), [(True, {}), (False, {"not_successful": 1})])
def test_a_verdict_without_a_number_counts(
    home: Home, tiny_model_dir: Path, passed: bool, dropped: dict[str, int]
) -> None:
    verdict = {"kind": "test", "reward": None, "passed": passed}
    conversations = [talk("a"), dataclasses.replace(talk("b"), outcome=verdict)]
    result, _ = build(home, tiny_model_dir, conversations)
    assert result.dropped == dropped


def test_a_turn_that_two_conversations_share_is_trained_once(home: Home, tiny_model_dir: Path) -> None:
    _, rows = build(home, tiny_model_dir, [talk("a", answer="Done."), talk("a", answer="That was all.")])
    turns = [text for row in rows for text in spoken(tiny_model_dir, row)]
    assert len(turns) == 3
    assert sum("<tool_call>" in text for text in turns) == 1


def test_a_turn_that_must_not_be_imitated_stays_context(home: Home, tiny_model_dir: Path) -> None:
    _, [row] = build(home, tiny_model_dir, [talk("a", train=False, flags=["failed_call"])])
    assert spoken(tiny_model_dir, row) == ["Done." + IM_END]


def test_a_conversation_that_is_too_long_is_left_out_whole(home: Home, tiny_model_dir: Path) -> None:
    result, _ = build(home, tiny_model_dir, [talk("a"), talk("b " * 2000)], max_tokens=600)
    assert result.dropped == {"too_long": 1}


def test_where_narrows_the_selection(home: Home, tiny_model_dir: Path) -> None:
    Lake(home).add([], [talk("a"), talk("b")], [])
    with pytest.raises(TaskError, match="no conversation matched"):
        build_sft(home, tiny_model_dir, ConvertConfig(where="message_count > 5"))


def test_nothing_to_train_says_what_was_dropped_and_why(home: Home, tiny_model_dir: Path) -> None:
    with pytest.raises(TaskError, match="1 not_successful"):
        build(home, tiny_model_dir, [talk("a", reward=0.0)])


def test_an_empty_lake_says_how_to_fill_it(home: Home, tiny_model_dir: Path) -> None:
    with pytest.raises(TaskError, match="nightschool ingest"):
        build_sft(home, tiny_model_dir, ConvertConfig())


def test_the_same_lake_makes_the_same_dataset(home: Home, tiny_model_dir: Path) -> None:
    first, _ = build(home, tiny_model_dir, [talk("a"), talk("b")])
    assert build_sft(home, tiny_model_dir, ConvertConfig()) == first
