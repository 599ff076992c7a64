"""`sample` and `chat`: talk to a checkpoint."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.call import Call, command
from flows.exits import USAGE, Stop

MaxTokens = Annotated[int, typer.Option(min=1, help="Tokens of one answer at most.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Of the draw (default: the configuration's).")]
System = Annotated[str | None, typer.Option(metavar="TEXT", help="The system prompt.")]
Tools = Annotated[Path | None, typer.Option(metavar="FILE", help="A JSON list of tools the model may call.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    command(app, "sample")(sample)
    command(app, "chat")(chat)


def sample(
    call: Call,
    words: Annotated[
        list[str],
        typer.Argument(metavar="[REF] PROMPT…", help="What to ask; first, perhaps, whom (default: prod)."),
    ],
    model: Annotated[
        str | None, typer.Option("--model", metavar="REF", help="Whom to ask; all words are the prompt.")
    ] = None,
    system: System = None,
    tools: Tools = None,
    max_tokens: MaxTokens = 256,
    temperature: Temperature = 1.0,
    seed: Seed = None,
) -> None:
    """Ask a checkpoint one thing. - as the prompt reads it from stdin.

    Example: nightschool sample base "How many files are in /app?" --temperature 0
    """
    from flows.sampling import sampler

    ref, prompt = (model, words) if model else _split(call, words)
    text = sys.stdin.read() if prompt == ["-"] else " ".join(prompt)
    messages = [*_system(system), {"role": "user", "content": text}]
    offered = _tools(tools)
    with (
        call.output.progress() as progress,
        sampler(call.home, call.model_dir(progress), ref, call.config.engine, progress) as asked,
    ):
        answer = asked.ask(
            messages, offered, max_tokens=max_tokens, temperature=temperature, seed=_seed(call, seed)
        )
    document = {
        "checkpoint": asked.checkpoint,
        "text": answer.text,
        "token_ids": answer.token_ids,
        "logprobs": answer.logprobs,
        "stop_reason": answer.stop_reason,
        "message": answer.message,
    }
    call.output.emit(document, lambda console: console.print(answer.text, markup=False, highlight=False))


def chat(
    call: Call,
    ref: Annotated[
        str | None, typer.Argument(metavar="[REF]", help="Whom to talk to (default: prod).")
    ] = None,
    system: System = None,
    tools: Tools = None,
    max_tokens: MaxTokens = 256,
    temperature: Temperature = 1.0,
    seed: Seed = None,
) -> None:
    """Talk to a checkpoint, line by line, until end of input. It has no hands here: calls of tools are shown,
    not run."""
    from flows.sampling import sampler

    messages: list[dict[str, Any]] = _system(system)
    offered = _tools(tools)
    with call.output.progress() as progress:
        model_dir = call.model_dir(progress)
    with sampler(
        call.home, model_dir, ref, call.config.engine, lambda event: call.output.say(event.note)
    ) as asked:
        call.output.say(f"{asked.checkpoint}. Ctrl-D ends the conversation.")
        while (line := _line()) is not None:
            messages.append({"role": "user", "content": line})
            answer = asked.ask(
                messages,
                offered,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=_seed(call, seed) + len(messages),
            )
            messages.append(answer.message)
            if not call.output.as_json:
                sys.stdout.write(answer.text + "\n")
                sys.stdout.flush()
    if call.output.as_json:
        call.output.emit({"checkpoint": asked.checkpoint, "messages": messages}, lambda console: None)


def _line() -> str | None:
    """What the person says next; None at the end of input."""
    if sys.stdin.isatty():
        sys.stderr.write("> ")
        sys.stderr.flush()
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _split(call: Call, words: list[str]) -> tuple[str | None, list[str]]:
    """The first word is a reference if it can be one and something follows."""
    from storage.errors import StorageError
    from storage.registry import Registry

    if len(words) < 2:
        return None, words
    first = words[0]
    if first == "base" or first.startswith(("tinker://", "ckpt-")) or first in ("prod", "canary", "previous"):
        return first, words[1:]
    try:
        Registry(call.home).resolve(first)
    except StorageError:
        return None, words
    return first, words[1:]


def _system(text: str | None) -> list[dict[str, Any]]:
    return [{"role": "system", "content": text}] if text else []


def _seed(call: Call, seed: int | None) -> int:
    return call.config.seed if seed is None else seed


def _tools(path: Path | None) -> list[dict[str, Any]]:
    if path is None:
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Stop(USAGE, f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Stop(
            USAGE, f'{path}: should be a JSON list of tools, [{{"type": "function", "function": {{…}}}}]'
        )
    return found
