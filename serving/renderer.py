"""The one text form of conversations with tools, for ChatML models whose template knows no tools (SmolLM2's does not).

Keeps true: training rows, the agent and the endpoint all render here, so a token has one meaning everywhere; a sampled
token is never re-tokenised; what a user, a file or a tool says can never become a control token. The form (Hermes', which
Qwen's own templates use too) is documented in docs/text-form.md. Leaves to others: which messages are worth training on,
and any template that knows tools of its own.

    <|im_start|>system\\n{system}\\n\\n{tools}<|im_end|>\\n
    <|im_start|>user\\n{text}<|im_end|>\\n
    <|im_start|>assistant\\n{text}\\n<tool_call>\\n{"name": …, "arguments": …}\\n</tool_call><|im_end|>\\n
    <|im_start|>user\\n<tool_response>\\n{result}\\n</tool_response><|im_end|>\\n

Where a text itself contains one of the four tags, a backslash is put after its `<`, and taken away when it is read back.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.errors import RendererError

Message = dict[str, Any]
Tool = dict[str, Any]

IM_START, IM_END = "<|im_start|>", "<|im_end|>"
TOOLS_HEADER = '# Tools\nCall one with <tool_call>\n{"name": …, "arguments": …}\n</tool_call>\n<tools>\n'
TOOLS_FOOTER = "\n</tools>"

_TAG = re.compile(r"<(\\*)(/?(?:tool_call|tool_response|tools))>")
_ESCAPED_TAG = re.compile(r"<\\(\\*/?(?:tool_call|tool_response|tools))>")
_CALL = re.compile(r"\n?<tool_call>\n?(.*?)(?:\n?</tool_call>|\Z)", re.DOTALL)


def escape(text: str) -> str:
    """`text` with one backslash more in each of our tags, so that it cannot be read as one of them."""
    return _TAG.sub(r"<\\\1\2>", text)


def unescape(text: str) -> str:
    """The inverse of `escape`: one backslash fewer in each escaped tag."""
    return _ESCAPED_TAG.sub(r"<\1>", text)


@dataclass(frozen=True)
class TokenRow:
    """One training row: `token_ids` and `mask` of the same length; mask 1 where the model is to learn the token."""

    token_ids: list[int]
    mask: list[int]


class Renderer:
    """Renders messages to token ids and parses sampled ids back, for one model directory.

    Raises:
        RendererError: the directory has no tokenizer, or it lacks ChatML's two control tokens.
    """

    name = "chatml-tools-v1"

    def __init__(self, model_dir: Path) -> None:
        from tokenizers import Tokenizer

        file = Path(model_dir) / "tokenizer.json"
        if not file.is_file():
            raise RendererError(
                f"no tokenizer.json in {model_dir}; give the directory of a transformers model"
            )
        self._tokenizer = Tokenizer.from_file(str(file))
        # Control tokens spelled out in a message's text stay plain text: a tool's output cannot end a turn.
        self._tokenizer.encode_special_tokens = True
        start, end = (self._tokenizer.token_to_id(token) for token in (IM_START, IM_END))
        if start is None or end is None:
            raise RendererError(
                f"the tokenizer in {model_dir} has no {IM_START} / {IM_END}: renderer {self.name} renders ChatML models"
            )
        self._start: int = start
        self._end: int = end
        self._newline = self._encode("\n")
        self._header = [self._start, *self._encode("assistant\n")]

    @property
    def stop_token_ids(self) -> list[int]:
        """The token that ends an assistant turn."""
        return [self._end]

    @property
    def digest(self) -> str:
        """Hex sha256 over everything that decides the tokens: the form's name and texts, and the tokenizer."""
        parts = [self.name, TOOLS_HEADER, TOOLS_FOOTER, self._tokenizer.to_str()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """Token ids of the whole conversation, ending where the assistant's next tokens begin."""
        return [token for ids, _ in self._turns(messages, tools) for token in ids] + self._header

    def continuation(self, completion: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Tokens between a sampled turn and the next one: closes the turn if the sample did not, then `messages`."""
        closing = [] if completion and completion[-1] == self._end else [self._end]
        rest = [token for ids, _ in self._turns(messages, []) for token in ids]
        return [*closing, *self._newline, *rest, *self._header]

    def training_row(self, messages: Sequence[Message], tools: Sequence[Tool]) -> TokenRow:
        """The conversation as one row; mask 1 on the tokens of assistant messages with `train` true, stop token included."""
        ids: list[int] = []
        mask: list[int] = []
        for turn, trained in self._turns(messages, tools):
            ids += turn
            if trained:
                head, tail = len(self._header), len(self._newline)
                mask += [0] * head + [1] * (len(turn) - head - tail) + [0] * tail
            else:
                mask += [0] * len(turn)
        return TokenRow(ids, mask)

    def parse(self, token_ids: Sequence[int]) -> Message:
        """The assistant message that sampled ids say; never fails: a call that is not JSON is kept as it is, flagged."""
        body = list(token_ids)
        if body and body[-1] == self._end:
            body.pop()
        text = self.decode(body)
        calls = [_parse_call(unescape(raw), index) for index, raw in enumerate(_CALL.findall(text))]
        content = unescape(_CALL.sub("", text))
        return {
            "role": "assistant",
            "content": content or (None if calls else ""),
            "reasoning": None,
            "refusal": None,
            "tool_calls": calls,
            "tool_call_id": None,
            "is_error": False,
            "flags": [],
            "train": True,
        }

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids, control tokens spelled out."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _turns(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Iterator[tuple[list[int], bool]]:
        """Each turn's ids, and whether it is trained on."""
        for role, text, trained in _as_turns(messages, tools):
            head = self._header if role == "assistant" else [self._start, *self._encode(f"{role}\n")]
            # The head is encoded apart, as it is when the model samples: no merge may reach across that border.
            yield [*head, *self._encode(text), self._end, *self._newline], trained


def render_tools(tools: Sequence[Tool]) -> str:
    """The block that tells the model its tools, one JSON object a line."""
    return TOOLS_HEADER + "\n".join(_json(tool.get("function", tool)) for tool in tools) + TOOLS_FOOTER


def render_assistant(message: Message) -> str:
    """An assistant message's text and calls, as the model is to say them."""
    calls = [
        "<tool_call>\n"
        + escape(_json({"name": call["name"], "arguments": _arguments(call)}))
        + "\n</tool_call>"
        for call in message.get("tool_calls") or []
    ]
    content = escape(_text(message))
    return "\n".join([content, *calls] if content else calls)


def render_result(message: Message) -> str:
    """A tool result as the model sees it. The form has no field for `is_error`: a failed result says so in its text."""
    return f"<tool_response>\n{escape(_text(message))}\n</tool_response>"


def _as_turns(messages: Sequence[Message], tools: Sequence[Tool]) -> Iterator[tuple[str, str, bool]]:
    """(role, text, trained) per turn: tools join the system turn, neighbouring tool results share one user turn."""
    rest = list(messages)
    system = _text(rest.pop(0)) if rest and rest[0].get("role") in ("system", "developer") else ""
    opening = [part for part in (escape(system), render_tools(tools) if tools else "") if part]
    if opening:
        yield "system", "\n\n".join(opening), False
    results: list[str] = []
    for message in rest:
        role = message.get("role")
        if role == "tool":
            results.append(render_result(message))
            continue
        if results:
            yield "user", "\n".join(results), False
            results = []
        if role == "assistant":
            yield "assistant", render_assistant(message), bool(message.get("train", True))
        elif role in ("user", "system", "developer"):
            yield ("user" if role == "user" else "system"), escape(_text(message)), False
        else:
            raise RendererError(
                f"a message has the role {role!r}; system, user, assistant and tool can be rendered"
            )
    if results:
        yield "user", "\n".join(results), False


def _text(message: Message) -> str:
    content = message.get("content")
    if content is None:
        return str(message.get("refusal") or "")
    if isinstance(content, str):
        return content
    return "".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if part.get("type") in ("text", "input_text", "output_text"):
        return str(part.get("text", ""))
    raise RendererError(f"a message has a part of type {part.get('type')!r}; this model reads text only")


def _arguments(call: Message) -> Any:
    arguments = call.get("arguments")
    return call.get("arguments_raw", "") if arguments is None else arguments


def _parse_call(raw: str, index: int) -> Message:
    """One call from the text between its tags; `arguments_state` says how well it could be read."""
    call: Message = {
        "id": f"call_{index}",
        "name": "",
        "arguments": None,
        "arguments_raw": raw,
        "arguments_state": "invalid",
    }
    try:
        value = json.loads(raw)
    except ValueError:
        return call
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return call
    call["name"] = value["name"]
    arguments = value.get("arguments")
    if isinstance(arguments, dict):
        return call | {
            "arguments": arguments,
            "arguments_raw": _json(arguments),
            "arguments_state": "ok" if arguments else "empty",
        }
    return call | {"arguments_raw": arguments if isinstance(arguments, str) else _json(arguments)}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def verify_against_template(model_dir: Path) -> None:
    """Prove on a tool-less conversation that our ids are exactly those of the model's own chat template.

    Raises:
        RendererError: the template renders something else, so training here would not fit serving there.
    """
    from transformers import AutoTokenizer

    probe = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Count: 1, 2, 3."},
        {"role": "assistant", "content": "Three numbers."},
        {"role": "user", "content": "More?\n\n  No."},
    ]
    tokenizer: Any = AutoTokenizer.from_pretrained(str(model_dir))
    if not tokenizer.chat_template:
        raise RendererError(f"the tokenizer in {model_dir} has no chat template; use an instruct model")
    theirs = tokenizer.apply_chat_template(
        probe, add_generation_prompt=True, tokenize=True, return_dict=True
    )["input_ids"]
    ours = Renderer(model_dir).prompt(probe, [])
    if list(theirs) != ours:
        raise RendererError(
            f"the chat template in {model_dir} does not render as {Renderer.name}: {tokenizer.decode(theirs)!r} "
            f"against {tokenizer.decode(ours)!r}"
        )


def trained_text(renderer: Renderer, row: TokenRow) -> Iterable[str]:
    """The masked spans of a row, decoded: what the model will learn to say, span by span."""
    span: list[int] = []
    for token, wanted in zip(row.token_ids, row.mask, strict=True):
        if wanted:
            span.append(token)
        elif span:
            yield renderer.decode(span)
            span = []
    if span:
        yield renderer.decode(span)
