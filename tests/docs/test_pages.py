"""What the documents show is what the code does."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from flows.config import NightConfig
from sandbox.agents import BASH_TOOL
from serving.renderer import Renderer, escape

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You do small file chores with bash."},
    {"role": "user", "content": "How many lines of notes.txt contain amber?"},
    {
        "role": "assistant",
        "content": "Let me count.",
        "tool_calls": [{"id": "a", "name": "bash", "arguments": {"command": "grep -c amber notes.txt"}}],
    },
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "Four lines contain amber.", "tool_calls": []},
]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)


def test_the_tool_to_try_a_checkpoint_with_is_the_agents_own() -> None:
    assert json.loads((DOCS / "bash-tool.json").read_text(encoding="utf-8")) == [BASH_TOOL]


def test_the_example_of_the_text_form_is_what_the_renderer_writes(tiny_model_dir: Path) -> None:
    renderer = Renderer(tiny_model_dir)

    text = renderer.decode(renderer.training_row(MESSAGES, [BASH_TOOL]).token_ids)

    assert text in blocks("text-form.md", "text")


@pytest.mark.parametrize("text", ["<tool_call>", "<\\tool_call>", "</tools>"])
def test_the_table_of_escapes_is_true(text: str) -> None:
    assert f"| `{text}` | `{escape(text)}` |" in (DOCS / "text-form.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["your-own-traces.md", "your-own-gpu.md"])
def test_a_configuration_shown_on_a_page_loads(page: str) -> None:
    found = blocks(page, "toml")

    assert found
    for text in found:
        NightConfig.model_validate(tomllib.loads(text))


@pytest.mark.parametrize("page", [*sorted(p.name for p in DOCS.glob("*.md")), "../README.md"])
def test_a_link_leads_somewhere(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    targets = [t.partition("#")[0] for t in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in t]

    missing = [t for t in targets if t and not (DOCS / page).parent.joinpath(t).exists()]

    assert [t for t in missing if not t.endswith("report.png")] == []
