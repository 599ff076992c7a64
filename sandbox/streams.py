"""A command's output, read bounded: the head and the tail are kept, what is between is counted.

Keeps true: memory is bounded by what is kept; reading ends at the deadline, when the command has ended though
a child of it holds the stream, and when the output is absurdly large. Leaves to others: killing what was cut
off.
"""

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

FLOOD_FACTOR = 64
_POLL_S = 0.25


@dataclass
class Output:
    """`cut` says why reading stopped before the command did."""

    text: str
    truncated: bool
    cut: Literal["time", "size"] | None


def read_output(stream: Any, deadline: float, kept: int, running: Callable[[], bool]) -> Output:
    """Read Docker's framed `stream` to its end, `deadline` (monotonic seconds) or far beyond `kept` bytes."""
    raw = getattr(stream, "_sock", stream)
    window = HeadTail(kept)
    cut: Literal["time", "size"] | None = None
    quiet = 0
    frames = _Frames()
    try:
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                cut = "time"
                break
            raw.settimeout(min(_POLL_S, left))
            try:
                chunk = raw.recv(65536)
            except TimeoutError:
                # A background child may hold the stream open; twice quiet, so that the last
                # bytes have arrived.
                quiet = 0 if running() else quiet + 1
                if quiet >= 2:
                    break
                continue
            if not chunk:
                break
            window.add(frames.feed(chunk))
            if window.total > kept * FLOOD_FACTOR:
                cut = "size"
                break
    finally:
        hang_up(stream)
    return Output(window.text(), window.total > kept, cut)


def hang_up(stream: Any) -> None:
    """Really end the connection: closing docker-py's object alone leaves the engine stuck on a full pipe."""
    with contextlib.suppress(OSError):
        getattr(stream, "_sock", stream).shutdown(socket.SHUT_RDWR)
    stream.close()


class _Frames:
    """Docker's multiplexed stream: 8 bytes of header (the last 4 the length), then the payload."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0

    def feed(self, chunk: bytes) -> bytes:
        """The payload bytes of `chunk`."""
        payload = bytearray()
        position = 0
        while position < len(chunk):
            if self._left == 0:
                take = 8 - len(self._header)
                self._header += chunk[position : position + take]
                position += take
                if len(self._header) == 8:
                    self._left, self._header = int.from_bytes(self._header[4:], "big"), b""
                continue
            piece = chunk[position : position + self._left]
            payload += piece
            position += len(piece)
            self._left -= len(piece)
        return bytes(payload)


class HeadTail:
    """The first half and the last half of `kept` bytes."""

    def __init__(self, kept: int) -> None:
        self._half = max(1, kept // 2)
        self._kept = kept
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take `data` in."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > self._half:
            del self._tail[: len(self._tail) - self._half]

    def text(self) -> str:
        """What is kept, with a line in between that says how much is not."""
        left_out = self.total - len(self._head) - len(self._tail)
        if left_out == 0:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = (bytes(part).decode("utf-8", "replace") for part in (self._head, self._tail))
        return f"{head}\n[… {left_out} bytes left out …]\n{tail}"


def shorten(text: str, limit: int) -> str:
    """At most about `limit` characters of `text`.

    Its head and tail, with a line between that says what is missing.
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
