"""Tars into and out of containers.

Keeps true: what is put in belongs to root and nobody else may write it; links are links, never followed; what
comes out is read forward, in pieces, so that its size is the reader's decision.
"""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast


def directory_tar(directory: Path, destination: str) -> bytes:
    """`directory` as a tar that puts it at the absolute path `destination`, readable for all."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        add_directory(tar, directory, destination, readable=True)
    return buffer.getvalue()


def add_directory(tar: tarfile.TarFile, directory: Path, destination: str, *, readable: bool) -> None:
    """Add `directory` as `destination` to a tar for unpacking at /.

    Scripts are executable, `readable` is for others.
    """

    def owned(info: tarfile.TarInfo) -> tarfile.TarInfo:
        runnable = info.isdir() or info.mode & 0o100 or info.name.endswith(".sh")
        return _roots(info, (0o755 if runnable else 0o644) if readable else (0o700 if runnable else 0o600))

    tar.add(directory, arcname=destination.lstrip("/"), filter=owned)


def add_empty_directory(tar: tarfile.TarFile, path: str, mode: int) -> None:
    """Add an empty directory with `mode` to a tar for unpacking at /."""
    info = tarfile.TarInfo(path.strip("/"))
    info.type = tarfile.DIRTYPE
    tar.addfile(_roots(info, mode))


def _roots(info: tarfile.TarInfo, mode: int) -> tarfile.TarInfo:
    info.mode = mode
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def read_tar(chunks: Iterator[bytes]) -> tarfile.TarFile:
    """The chunks of a download as a tar to be read forward."""
    return tarfile.open(fileobj=cast(IO[bytes], _ChunkFile(chunks)), mode="r|")


class _ChunkFile:
    """The chunks of a download as a file that can be read forward."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._buffer = bytearray()

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        while size < 0 or len(self._buffer) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._buffer += chunk
        taken = bytes(self._buffer[:size] if size >= 0 else self._buffer)
        del self._buffer[: len(taken)]
        return taken
