"""Finding and opening input: files, folders, globs and stdin; gzip, zstd and UTF-16 recognised by content.

A file that grows while it is read is read up to the size it had when it was opened, so its digest is of
exactly the bytes that were read.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from tasks.ingest.errors import IngestError

STDIN = "-"

_SUFFIXES = (".gz", ".zst", ".zstd", ".jsonl", ".ndjson", ".json")
_PIECE = 1 << 20
# A compressed file may grow this much, or this many times, before it is taken for a bomb.
_BOMB_BYTES = 256 << 20
_BOMB_RATIO = 1000


@dataclass(frozen=True)
class InputFile:
    """One file to read. `named` is True if the user gave this very path, so that it must be a trace."""

    path: str
    source: str
    named: bool


class DamagedInput(Exception):
    """The compressed stream ends early, is broken, or grows beyond all bounds.

    `reason` is the quarantine's code.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def find(paths: list[str], source: str | None) -> list[InputFile]:
    """All input files, in order, each once. Raises IngestError for a path that is not there."""
    found: dict[str, InputFile] = {}
    for path in paths:
        for each in _expand(path):
            name = source or each.source
            found.setdefault(
                os.path.abspath(each.path) if path != STDIN else STDIN, InputFile(each.path, name, each.named)
            )
    return list(found.values())


def _expand(path: str) -> list[InputFile]:
    if path == STDIN:
        return [InputFile(STDIN, "stdin", named=True)]
    if os.path.isdir(path):
        name = Path(path).resolve().name or "root"
        return [InputFile(each, name, named=False) for each in _walk(path)]
    if os.path.exists(path):
        return [InputFile(path, _stem(path), named=True)]
    matches = sorted(glob.glob(path, recursive=True))
    if not matches:
        raise IngestError(f"{path}: no such file or folder, and no file matches it as a pattern.")
    return [each for match in matches for each in _expand(match)]


def _walk(folder: str) -> Iterator[str]:
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(directory, name)
            if not name.startswith(".") and os.path.isfile(path):
                yield path


def _stem(path: str) -> str:
    name = Path(path).name
    while True:
        suffix = next(
            (each for each in _SUFFIXES if name.lower().endswith(each) and len(name) > len(each)), None
        )
        if suffix is None:
            return name
        name = name[: -len(suffix)]


@dataclass(frozen=True)
class OpenFile:
    """An open input: its plain bytes, the digest and size of the file as it lies on disk."""

    stream: io.BufferedReader
    digest: str
    size: int
    raw: IO[bytes]

    def position(self) -> int:
        """How many bytes of the file on disk have been read."""
        return min(self.raw.tell(), self.size)


@contextmanager
def opened(path: str) -> Iterator[OpenFile]:
    """Open one input, whatever it is packed in. Raises IngestError if it cannot be read."""
    try:
        with _spooled_stdin() if path == STDIN else Path(path).open("rb") as raw:
            size = os.fstat(raw.fileno()).st_size
            digest = _digest(raw, size)
            raw.seek(0)
            yield OpenFile(_unpacked(raw, size), digest, size, raw)
    except OSError as error:
        raise IngestError(f"{path}: cannot be read: {error.strerror or error}.") from error


def _spooled_stdin() -> IO[bytes]:
    spool = cast(IO[bytes], tempfile.TemporaryFile())  # noqa: SIM115  (the caller's `with` closes it)
    shutil.copyfileobj(sys.stdin.buffer, spool)
    spool.flush()
    spool.seek(0)
    return spool


def _digest(raw: IO[bytes], size: int) -> str:
    digest = hashlib.sha256()
    while size > 0 and (piece := raw.read(min(_PIECE, size))):
        digest.update(piece)
        size -= len(piece)
    return digest.hexdigest()


def _unpacked(raw: IO[bytes], size: int) -> io.BufferedReader:
    start = raw.read(4)
    raw.seek(0)
    plain: IO[bytes] = io.BufferedReader(_Bounded(raw, size), _PIECE)
    if start.startswith(b"\x1f\x8b"):
        plain = cast(IO[bytes], gzip.GzipFile(fileobj=plain))
    elif start == b"\x28\xb5\x2f\xfd":
        import zstandard

        plain = zstandard.ZstdDecompressor().stream_reader(plain, read_across_frames=True)
    elif not start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return cast(io.BufferedReader, plain)
    stream = io.BufferedReader(_Guarded(plain, max(_BOMB_BYTES, _BOMB_RATIO * size)), _PIECE)
    return _decoded(stream)


def _decoded(stream: Any) -> io.BufferedReader:
    """UTF-16 as UTF-8; anything else as it is. UTF-16 files are read whole."""
    try:
        start = stream.peek(2)[:2]
    except DamagedInput:
        return cast(io.BufferedReader, stream)
    if start not in (b"\xff\xfe", b"\xfe\xff"):
        return cast(io.BufferedReader, stream)
    text = stream.read().decode("utf-16", errors="replace")
    return cast(io.BufferedReader, io.BytesIO(text.encode("utf-8", errors="replace")))


class _Bounded(io.RawIOBase):
    """The first `size` bytes of a file."""

    def __init__(self, raw: IO[bytes], size: int) -> None:
        self._raw = raw
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        data = self._raw.read(min(len(view), self._left))
        view[: len(data)] = data
        self._left -= len(data)
        return len(data)


class _Guarded(io.RawIOBase):
    """A decompressed stream; damage and unbounded growth become DamagedInput."""

    def __init__(self, plain: IO[bytes], limit: int) -> None:
        self._plain = plain
        self._limit = limit
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        import zstandard

        view = memoryview(cast(bytearray, buffer))
        try:
            data = self._plain.read(min(len(view), 1 << 16))
        except EOFError as error:
            raise DamagedInput("truncated_file", "the compressed file ends early") from error
        except (zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
            raise DamagedInput("damaged_file", f"the compressed file is damaged: {error}") from error
        self._read += len(data)
        if self._read > self._limit:
            raise DamagedInput("decompression_bomb", f"the file unpacks to more than {self._limit} bytes")
        view[: len(data)] = data
        return len(data)
