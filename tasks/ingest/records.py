"""Cutting a stream of bytes into JSON records: JSON lines, JSON arrays, and documents over several lines.

Lines end at `\\n` and nowhere else: U+2028 and its like are ordinary characters inside strings. A record
that is not JSON costs only itself.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator
from typing import IO

from tasks.ingest.documents import documents, skip_space
from tasks.ingest.errors import IngestError
from tasks.ingest.json_text import Record, broken, parse_json, parsed
from tasks.ingest.reader import DamagedInput

MAX_RECORD_BYTES = 64 << 20
MAX_DOCUMENT_BYTES = 1 << 30

_BOM = b"\xef\xbb\xbf"
_GLUED = re.compile(rb'\{"(?:messages|request|session_id|traj|task_id|model|id|timestamp|ts|type)"')


def split(stream: IO[bytes]) -> Iterator[Record]:
    """All records of one file, in order. Damage in the packing ends them with one record that says so."""
    cursor = _Cursor(stream)
    try:
        yield from _split(cursor)
    except DamagedInput as damage:
        yield broken(cursor.offset, b"", damage.reason, damage.detail)


class _Cursor:
    """Lines of a stream, and how many bytes of it have been read."""

    def __init__(self, stream: IO[bytes], offset: int = 0) -> None:
        self.stream = stream
        self.offset = offset

    def line(self) -> bytes:
        """The next line with its end, at most one byte longer than a record may be; b"" at the end."""
        line = self.stream.readline(MAX_RECORD_BYTES + 1)
        self.offset += len(line)
        return line

    def rest(self) -> bytes:
        """Everything that is left. Raises IngestError if that is too much for one document."""
        rest = self.stream.read(MAX_DOCUMENT_BYTES + 1)
        if len(rest) > MAX_DOCUMENT_BYTES:
            raise IngestError(
                f"one JSON document of more than {MAX_DOCUMENT_BYTES} bytes. Write it as JSON lines."
            )
        self.offset += len(rest)
        return rest


def _split(cursor: _Cursor) -> Iterator[Record]:
    offset, line = 0, cursor.line()
    if line.startswith(_BOM):
        offset, line = len(_BOM), line[len(_BOM) :]
    while line and not line.strip():
        offset, line = cursor.offset, cursor.line()
    if not line:
        return
    start = line.lstrip()[:1]
    if start == b"[" or (start == b"{" and not _is_whole(line)):
        following = cursor.line()
        if _goes_on(line, following):
            data = line + following + cursor.rest()
            if _is_lines_after_all(data):
                yield from _remaining_lines(_Cursor(io.BytesIO(data), offset))
            else:
                yield from documents(data, offset)
            return
        yield from _lines(cursor, offset, line)
        offset, line = offset + len(line), following
    yield from _lines(cursor, offset, line)
    yield from _remaining_lines(cursor)


def _is_whole(line: bytes) -> bool:
    try:
        parse_json(line.decode())
    except ValueError:
        return False
    return True


def _goes_on(line: bytes, following: bytes) -> bool:
    """Whether the first line begins a document that is more than a line, or is an array of records."""
    if not following.strip():
        return line.lstrip().startswith(b"[")
    if len(line) > MAX_RECORD_BYTES or _is_whole(line):
        return False
    text, end = (line + following).decode(errors="replace"), len(line.decode(errors="replace"))
    try:
        json.JSONDecoder().raw_decode(text, skip_space(text, 0))
    except json.JSONDecodeError as error:
        # Two lines of JSON lines break where the second begins, a document later, where it is cut.
        is_open_string = error.msg.startswith("Unterminated string")
        return error.pos > (end if is_open_string else skip_space(text, end))
    except RecursionError:
        return False
    return True


def _is_lines_after_all(data: bytes) -> bool:
    """Whether a first object is broken and whole records stand on later lines."""
    text = data.decode(errors="replace")
    start = skip_space(text, 0)
    try:
        json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        later = data.split(b"\n")[1:]
        return text[start] == "{" and any(line.startswith(b"{") and _is_whole(line) for line in later)
    return False


def _remaining_lines(cursor: _Cursor) -> Iterator[Record]:
    while True:
        offset = cursor.offset
        line = cursor.line()
        if not line:
            return
        yield from _lines(cursor, offset, line)


def _lines(cursor: _Cursor, offset: int, line: bytes) -> Iterator[Record]:
    """The records in one line: usually one, none if it is blank, two if a broken one is glued to the next."""
    if len(line) > MAX_RECORD_BYTES and not line.endswith(b"\n"):
        yield _oversize(cursor, offset, line)
        return
    raw = line.strip()
    offset += len(line) - len(line.lstrip())
    if not raw:
        return
    record = parsed(offset, raw)
    if record.reason == "bad_json" and (glued := _second_of_glued(offset, raw)):
        yield broken(
            offset, raw[: glued.byte_offset - offset], "bad_json", "cut off by the record glued to it"
        )
        yield glued
    elif record.reason == "bad_json" and not line.endswith(b"\n"):
        yield broken(offset, raw, "truncated_tail", "the file ends within this record")
    else:
        yield record


def _oversize(cursor: _Cursor, offset: int, line: bytes) -> Record:
    digest, length = hashlib.sha256(), 0
    while line:
        digest.update(line.rstrip(b"\n"))
        length += len(line)
        if line.endswith(b"\n"):
            break
        line = cursor.line()
    detail = f"longer than {MAX_RECORD_BYTES} bytes; not copied"
    return Record(offset, length, digest.hexdigest(), b"", reason="oversize", detail=detail)


def _second_of_glued(offset: int, raw: bytes) -> Record | None:
    starts = [match.start() for match in _GLUED.finditer(raw, 1)][-8:]
    for start in starts:
        record = parsed(offset + start, raw[start:])
        if record.reason is None:
            return record
    return None
