"""The lake: everything agents did, as immutable Parquet files under a manifest, queried with DuckDB.

Keeps true: adding the same things again changes nothing; a version, once made, reads the same for ever; a
process killed at any point, or two adding at once, leave a whole lake (files are renamed into place, and
the head moves last, under a lock). Recognising formats is left to ingest, and what to train on to
conversion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from storage import manifests, query
from storage.atomic import digest_json
from storage.conversation import Conversation, path_ids
from storage.errors import NotFound
from storage.home import Home
from storage.locks import hold
from storage.paths import assemble, create_messages
from storage.tables import KEYS, Quarantined, RawRecord, Row, write_rows

if TYPE_CHECKING:
    import duckdb

_LOCK_WAIT_S = 600.0


@dataclass(frozen=True)
class AddResult:
    """How many of the raw records were new, how many were known, and the lake's version afterwards."""

    new: int
    duplicate: int
    version: str | None


class Lake:
    """The lake of one home."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def head(self) -> str | None:
        """The newest version, or None while the lake is empty."""
        return manifests.head(self.home)

    def add(
        self,
        raw_records: Sequence[RawRecord],
        conversations: Sequence[Conversation],
        quarantined: Sequence[Quarantined],
        *,
        dry_run: bool = False,
    ) -> AddResult:
        """Add what is not there yet, as one new version. With `dry_run`, only count."""
        tables: dict[str, list[Row]] = {
            "raw": [record.row() for record in raw_records],
            "nodes": [row for each in conversations for row in _node_rows(each)],
            "outcomes": [_outcome_row(each) for each in conversations if each.outcome is not None],
            "quarantine": [entry.row() for entry in quarantined],
        }
        if dry_run:
            return self._commit(tables, write=False)
        with hold(self.home.locks / "lake.lock", "adding to the lake", wait_s=_LOCK_WAIT_S):
            return self._commit(tables, write=True)

    def conversations(
        self, where: str | None = None, source: Sequence[str] | None = None, version: str | None = None
    ) -> Iterator[Conversation]:
        """Every path, in the order of ids; `where` is SQL over the columns of the view `conversations`."""
        files = manifests.files(self.home, version or self.head())
        connection = query.connect(self.home, files)
        try:
            query.lock_down(connection, self.home, files)
            yield from assemble(connection, _condition(where, source))
        finally:
            connection.close()

    def conversation(self, id: str) -> Conversation:
        """The one conversation whose id begins with `id`.

        Raises NotFound if there is none, or more than one.
        """
        prefix = "".join(letter for letter in id if letter in "0123456789abcdef")
        found = list(self.conversations(where=f"starts_with(id, '{prefix}')")) if id and prefix == id else []
        if len(found) != 1:
            raise NotFound(
                f"{len(found)} conversations have an id that begins with {id!r}. `lake show` lists the ids."
            )
        return found[0]

    def sql(self, text: str, version: str | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run one SELECT over the views; returns column names and rows. Raises QueryError."""
        files = manifests.files(self.home, version or self.head())
        connection = query.connect(self.home, files)
        try:
            # `messages` says what the path means for each message: it is assembled, and only when asked for.
            if re.search(r"\bmessages\b", text, re.IGNORECASE):
                create_messages(connection)
            query.lock_down(connection, self.home, files)
            return query.select(connection, text)
        finally:
            connection.close()

    def quarantine(self) -> list[dict[str, Any]]:
        """Every quarantined entry, without its bytes."""
        columns, rows = self.sql(
            "select * exclude (record) from quarantine order by file, byte_offset, reason"
        )
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def stats(self) -> dict[str, Any]:
        """What the lake holds, in counts; `bytes` is on disk."""
        version = self.head()
        files = [entry for entries in manifests.files(self.home, version).values() for entry in entries]
        columns, rows = self.sql(_COUNTS)
        _, sources = self.sql("select source, count(*) from conversations group by source order by source")
        _, reasons = self.sql("select reason, count(*) from quarantine group by reason order by reason")
        return {
            "version": version,
            **{name.removeprefix("path_"): count for name, count in zip(columns, rows[0], strict=True)},
            "sources": dict(sources),
            "quarantine_reasons": dict(reasons),
            "files": len(files),
            "bytes": sum(entry.bytes for entry in files),
        }

    def _sweep(self) -> None:
        """Remove what a killed writer left half written. Under the lock nobody else is writing."""
        for leftover in self.home.lake.rglob(".*.tmp"):
            leftover.unlink(missing_ok=True)

    def _commit(self, tables: dict[str, list[Row]], *, write: bool) -> AddResult:
        parent = self.head()
        files = manifests.files(self.home, parent)
        connection = query.connect(self.home, files)
        try:
            fresh = {table: _fresh(connection, table, rows) for table, rows in tables.items()}
        finally:
            connection.close()
        new = len(fresh["raw"])
        version = parent
        if write and any(fresh.values()):
            self._sweep()
            for table, rows in fresh.items():
                for name in sorted({row["source"] for row in rows}):
                    of_source = [row for row in rows if row["source"] == name]
                    files[table].append(write_rows(self.home, table, name, of_source))
            version = manifests.commit(self.home, files, parent)
        return AddResult(new=new, duplicate=len(tables["raw"]) - new, version=version)


_COUNTS = """
select (select count(*) from raw) as records,
       count(*) as conversations,
       (select count(*) from (select distinct node_id from nodes where role <> 'root')) as nodes,
       coalesce(sum(message_count), 0)::bigint as path_messages,
       coalesce(sum(tool_call_count), 0)::bigint as tool_calls,
       count(*) filter (judged) as judged,
       count(*) filter (passed) as passed,
       (select count(*) from quarantine) as quarantined
from conversations
"""


def _fresh(connection: duckdb.DuckDBPyConnection, table: str, rows: Iterable[Row]) -> list[Row]:
    """The rows whose key is not stored yet, each key once, in their order."""
    keys = KEYS[table]
    unique = {tuple(row[key] for key in keys): row for row in reversed(list(rows))}
    if not unique:
        return []
    import pyarrow as pa

    wanted = pa.table({key: [each[i] for each in unique] for i, key in enumerate(keys)})
    connection.register("wanted", wanted)
    known = connection.execute(
        f"select {', '.join(keys)} from {table} semi join wanted using ({', '.join(keys)})"
    )
    for key in known.fetchall():
        unique.pop(key, None)
    return list(reversed(unique.values()))


def _node_rows(conversation: Conversation) -> Iterator[Row]:
    ids = path_ids(conversation.tools, conversation.messages)
    root = {"tools": list(conversation.tools)}
    yield _node_row(conversation, ids[0], None, 0, "root", root, ())
    for depth, each in enumerate(conversation.messages, start=1):
        flags = conversation.flags if depth == len(conversation.messages) else ()
        yield _node_row(conversation, ids[depth], ids[depth - 1], depth, each["role"], each, flags)


def _node_row(
    conversation: Conversation,
    node: str,
    parent: str | None,
    depth: int,
    role: str,
    payload: dict[str, Any],
    flags: Sequence[str],
) -> Row:
    return {
        "node_id": node,
        "parent_id": parent,
        "variant": digest_json([payload, sorted(flags)])[:16],
        "source": conversation.source,
        "format": conversation.format,
        "segment": conversation.segment,
        "role": role,
        "depth": depth,
        "calls": len(payload.get("tool_calls", ())),
        "flags": sorted(flags),
        "payload": json.dumps(payload, ensure_ascii=False, separators=(",", ":")),
    }


def _outcome_row(conversation: Conversation) -> Row:
    outcome = conversation.outcome or {}
    leaf = path_ids(conversation.tools, conversation.messages)[-1]
    verdict = {"kind": outcome.get("kind"), "reward": outcome.get("reward"), "passed": outcome.get("passed")}
    return {"digest": digest_json([leaf, verdict]), "node_id": leaf, "source": conversation.source, **verdict}


def _condition(where: str | None, source: Sequence[str] | None) -> str:
    conditions = [f"({where}\n)"] if where else []
    if source is not None:
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in source)
        conditions.append(f"source in ({names})" if names else "false")
    return " and ".join(conditions) or "true"
