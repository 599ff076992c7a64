"""The lake's tables: their columns, and writing rows of them as immutable files named by their own digest.

`raw`: every record exactly as it came. `nodes`: the message tree; one node may have several rows, when it
was seen with and without its reasoning, say. `outcomes`: verdicts on the node that ends a path.
`quarantine`: what could not be used, and why. Messages are JSON text, because typed structs would pad every
object with every other's keys.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from storage.atomic import digest_bytes, write_bytes
from storage.home import Home
from storage.manifests import LakeFile

Row = dict[str, Any]

COLUMNS: dict[str, dict[str, str]] = {
    "raw": {
        "digest": "VARCHAR",
        "source": "VARCHAR",
        "file": "VARCHAR",
        "file_digest": "VARCHAR",
        "byte_offset": "BIGINT",
        "format": "VARCHAR",
        "session": "VARCHAR",
        "model": "VARCHAR",
        "node_ids": "VARCHAR[]",
        "record": "BLOB",
    },
    "nodes": {
        "node_id": "VARCHAR",
        "parent_id": "VARCHAR",
        "variant": "VARCHAR",
        "source": "VARCHAR",
        "format": "VARCHAR",
        "segment": "BIGINT",
        "role": "VARCHAR",
        "depth": "BIGINT",
        "calls": "BIGINT",
        "flags": "VARCHAR[]",
        "payload": "VARCHAR",
    },
    "outcomes": {
        "digest": "VARCHAR",
        "node_id": "VARCHAR",
        "source": "VARCHAR",
        "kind": "VARCHAR",
        "reward": "DOUBLE",
        "passed": "BOOLEAN",
    },
    "quarantine": {
        "digest": "VARCHAR",
        "source": "VARCHAR",
        "file": "VARCHAR",
        "file_digest": "VARCHAR",
        "byte_offset": "BIGINT",
        "length": "BIGINT",
        "reason": "VARCHAR",
        "detail": "VARCHAR",
        "record": "BLOB",
    },
}

# What makes two rows of a table the same row.
KEYS = {
    "raw": ("digest",),
    "nodes": ("node_id", "variant"),
    "outcomes": ("digest",),
    "quarantine": ("digest", "reason"),
}


@dataclass(frozen=True)
class RawRecord:
    """One record as it came.

    `byte_offset` counts in the decompressed file; `node_ids` are the paths' last nodes.
    """

    source: str
    file: str
    file_digest: str
    byte_offset: int
    record: bytes = field(repr=False)
    format: str
    session: str | None = None
    model: str | None = None
    node_ids: tuple[str, ...] = ()

    def row(self) -> Row:
        """The record as a row of `raw`."""
        return {**vars(self), "node_ids": list(self.node_ids), "digest": digest_bytes(self.record)}


@dataclass(frozen=True)
class Quarantined:
    """One record, or a part of one, that could not be used.

    `digest` is of its bytes; `record` may be cut or empty.
    """

    source: str
    file: str
    file_digest: str
    byte_offset: int
    length: int
    reason: str
    detail: str
    digest: str
    record: bytes = field(default=b"", repr=False)

    def row(self) -> Row:
        """The entry as a row of `quarantine`."""
        return dict(vars(self))


def write_rows(home: Home, table: str, source: str, rows: Sequence[Row]) -> LakeFile:
    """Write rows of one source as one file; the same rows always make the same file. Returns its entry."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, _arrow_type(kind)) for name, kind in COLUMNS[table].items()])
    buffer = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(list(rows), schema=schema), buffer, compression="zstd", row_group_size=65536
    )
    data = buffer.getvalue()
    digest = digest_bytes(data)
    day = datetime.now(UTC).date().isoformat()
    path = f"{table}/source={quote(source, safe='')[:200]}/day={day}/{digest}.parquet"
    final = home.lake / path
    if not final.exists():
        write_bytes(final, data)
    return LakeFile(path=path, sha256=digest, rows=len(rows), bytes=len(data))


def _arrow_type(kind: str) -> Any:
    import pyarrow as pa

    types = {
        "VARCHAR": pa.string(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "BLOB": pa.binary(),
        "VARCHAR[]": pa.list_(pa.string()),
    }
    return types[kind]
