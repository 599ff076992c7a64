"""Records of a JSON array, or of JSON documents one after another, each with its place in bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tasks.ingest.json_text import Record, broken, parsed

_SPACE = re.compile(r"[ \t\r\n]*")


def documents(data: bytes, offset: int) -> Iterator[Record]:
    """Cut up `data`, which stands at `offset` in its file. A broken part ends it, as one record saying so."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        yield broken(offset, data, "bad_utf8", "not valid UTF-8")
        return
    start = skip_space(text, 0)
    if text[start] == "[" and not _is_message_list(text):
        yield from _Pieces(text, offset).array(start + 1)
    else:
        yield from _Pieces(text, offset).sequence(start)


def _is_message_list(text: str) -> bool:
    """Whether the array as a whole is one conversation: its first element is a message."""
    try:
        first, _ = json.JSONDecoder(strict=False).raw_decode(text, skip_space(text, skip_space(text, 0) + 1))
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "role" in first and "messages" not in first


class _Pieces:
    """Values cut out of one text, with their offsets in bytes."""

    def __init__(self, text: str, offset: int) -> None:
        self.text = text
        self.decoder = json.JSONDecoder(strict=False)
        self._seen = 0
        self._bytes = offset

    def array(self, position: int) -> Iterator[Record]:
        """The elements of the array whose bracket was just passed, and then what follows it."""
        position = skip_space(self.text, position)
        while self.text[position : position + 1] not in ("", "]"):
            end = self._end(position)
            if end is None:
                yield self._rest(position)
                return
            yield self._record(position, end)
            position = skip_space(self.text, end)
            if self.text[position : position + 1] == ",":
                position = skip_space(self.text, position + 1)
            elif self.text[position : position + 1] != "]":
                break
        if self.text[position : position + 1] != "]":
            yield self._rest(position)
            return
        position = skip_space(self.text, position + 1)
        if position < len(self.text):
            yield self._rest(position)

    def sequence(self, position: int) -> Iterator[Record]:
        """Documents one after another."""
        while position < len(self.text):
            end = self._end(position)
            if end is None:
                yield self._rest(position)
                return
            yield self._record(position, end)
            position = skip_space(self.text, end)

    def _end(self, position: int) -> int | None:
        try:
            return self.decoder.raw_decode(self.text, position)[1]
        except (ValueError, RecursionError):
            return None

    def _record(self, start: int, end: int) -> Record:
        return parsed(self._offset(start), self.text[start:end].encode())

    def _rest(self, position: int) -> Record:
        rest = self.text[position:].encode()
        return broken(self._offset(position), rest, "truncated_tail", "the document is broken from here on")

    def _offset(self, position: int) -> int:
        self._bytes += len(self.text[self._seen : position].encode())
        self._seen = position
        return self._bytes


def skip_space(text: str, position: int) -> int:
    """The first position from here on that is not JSON white space."""
    found = _SPACE.match(text, position)
    return found.end() if found else position
