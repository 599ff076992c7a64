"""Dataset versions: training rows and a manifest, in one immutable directory named by what is in them.

The id is the digest of rows and manifest, so writing the same again gives the same id and changes nothing.
A manifest that says when it was made would defeat that: time belongs to the run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import batched
from pathlib import Path
from typing import Any

from storage.atomic import canonical_json, digest_file, replace_dir, temporary_beside, write_json
from storage.errors import NotFound, StorageError
from storage.home import Home

Row = dict[str, Any]

_KEYS = {"conversation_id", "split", "messages", "tools", "token_ids", "mask", "weight"}
_ROWS, _MANIFEST = "rows.parquet", "manifest.json"
_CHUNK = 512  # rows


def write(home: Home, rows: Iterable[Row], manifest: dict[str, Any]) -> str:
    """Store rows and manifest; returns the id, `ds-` and twelve hex digits.

    A row has exactly the keys conversation_id, split, messages, tools, token_ids (list of int), mask (list
    of 0 and 1, as long) and weight. The stored manifest gains id, rows, tokens, trained_tokens, splits and
    the file's digest. Raises StorageError for a row of another shape.
    """
    tmp = temporary_beside(home.datasets / "dataset")
    tmp.mkdir(parents=True)
    try:
        digest = hashlib.sha256(canonical_json(manifest))
        counts = _write_rows(tmp / _ROWS, rows, digest)
        id = f"ds-{digest.hexdigest()[:12]}"
        write_json(tmp / _MANIFEST, {**manifest, **counts, "id": id, "rows_sha256": digest_file(tmp / _ROWS)})
        replace_dir(tmp, home.datasets / id)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    return id


def load(home: Home, id: str) -> tuple[dict[str, Any], list[Row]]:
    """Manifest and rows of a version.

    Raises NotFound, or StorageError if its rows are not what was written.
    """
    import pyarrow.parquet as pq

    manifest = read_manifest(home, id)
    path = home.datasets / id / _ROWS
    if digest_file(path) != manifest["rows_sha256"]:
        raise StorageError(f"{path} is not what was written: its digest differs. Build the dataset again.")
    rows = pq.read_table(path).to_pylist()
    return manifest, [
        {**row, "messages": json.loads(row["messages"]), "tools": json.loads(row["tools"])} for row in rows
    ]


def read_manifest(home: Home, id: str) -> dict[str, Any]:
    """The manifest of a version. Raises NotFound."""
    path = home.datasets / id / _MANIFEST
    if id not in list_ids(home):
        raise NotFound(f"there is no dataset {id} in {home.datasets}. `nightschool dataset list` shows them.")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def list_ids(home: Home) -> list[str]:
    """All versions, oldest first."""
    found = [(path.stat().st_mtime_ns, path.parent.name) for path in home.datasets.glob(f"ds-*/{_MANIFEST}")]
    return [name for _, name in sorted(found)]


def _write_rows(path: Path, rows: Iterable[Row], digest: Any) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("conversation_id", pa.string()),
            ("split", pa.string()),
            ("messages", pa.string()),
            ("tools", pa.string()),
            ("token_ids", pa.list_(pa.int32())),
            ("mask", pa.list_(pa.int8())),
            ("weight", pa.float64()),
        ]
    )
    splits: Counter[str] = Counter()
    tokens = trained = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for chunk in batched(_checked(rows), _CHUNK):
            for row in chunk:
                digest.update(canonical_json(row))
                splits[row["split"]] += 1
                tokens += len(row["token_ids"])
                trained += sum(row["mask"])
            writer.write_table(pa.Table.from_pylist([_stored(row) for row in chunk], schema=schema))
    return {
        "rows": splits.total(),
        "tokens": tokens,
        "trained_tokens": trained,
        "splits": dict(sorted(splits.items())),
    }


def _checked(rows: Iterable[Row]) -> Iterator[Row]:
    for number, row in enumerate(rows):
        if set(row) != _KEYS:
            raise StorageError(f"row {number} has the keys {sorted(row)}; a row has exactly {sorted(_KEYS)}.")
        if len(row["token_ids"]) != len(row["mask"]) or not set(row["mask"]) <= {0, 1}:
            raise StorageError(
                f"row {number} has {len(row['token_ids'])} tokens and {len(row['mask'])} mask values; "
                "there must be one 0 or 1 a token."
            )
        yield row


def _stored(row: Row) -> Row:
    # JSON text: typed structs would pad every tool call with every other's arguments.
    return {**row, "messages": _json(row["messages"]), "tools": _json(row["tools"])}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
