"""Assembling conversations from the message tree: the path from each leaf to its root, with what all
sightings know.

One message may have been seen several times: with and without its reasoning, or cut short. What any
sighting knows is kept, and what any sighting bars from training is barred.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from storage import query
from storage.conversation import Conversation, Message, link_results, mark_targets

if TYPE_CHECKING:
    import duckdb

_CHUNK = 256  # conversations assembled at a time


def assemble(connection: duckdb.DuckDBPyConnection, condition: str) -> Iterator[Conversation]:
    """The conversations that meet an SQL condition over the view `conversations`, in the order of ids."""
    columns = "node_id, id, source, format, segment, flags, judged, kind, reward, passed"
    _, leaves = query.select(connection, f"select {columns} from conversations where {condition} order by id")
    parents = dict(connection.execute("select distinct node_id, parent_id from nodes").fetchall())
    for start in range(0, len(leaves), _CHUNK):
        chunk = leaves[start : start + _CHUNK]
        paths = [_path(leaf[0], parents) for leaf in chunk]
        payloads = _payloads(connection, {node for path in paths for node in path})
        for leaf, path in zip(chunk, paths, strict=True):
            yield _conversation(leaf, [payloads[node] for node in path])


def _path(leaf: str, parents: dict[str, str | None]) -> list[str]:
    path: list[str] = []
    node: str | None = leaf
    while node is not None:
        path.append(node)
        node = parents[node]
    return path[::-1]


def _payloads(connection: duckdb.DuckDBPyConnection, nodes: set[str]) -> dict[str, dict[str, Any]]:
    import pyarrow as pa

    connection.register("asked", pa.table({"node_id": sorted(nodes)}))
    rows = connection.execute(
        "select node_id, payload from nodes semi join asked using (node_id) order by node_id, variant"
    ).fetchall()
    found: dict[str, dict[str, Any]] = {}
    for node, text in rows:
        payload = json.loads(text)
        found[node] = _merge(found[node], payload) if node in found and "role" in payload else payload
    return found


def _merge(first: Message, second: Message) -> Message:
    """One message seen twice: everything that either sighting knows."""
    return {
        **first,
        "reasoning": first["reasoning"] or second["reasoning"],
        "is_error": first["is_error"] or second["is_error"],
        "flags": sorted({*first["flags"], *second["flags"]}),
        "train": first["train"] and second["train"],
    }


def _conversation(leaf: tuple[Any, ...], payloads: list[dict[str, Any]]) -> Conversation:
    _, id, source, format, segment, flags, judged, kind, reward, passed = leaf
    return Conversation(
        id=id,
        source=source,
        format=format,
        segment=segment,
        flags=tuple(flags),
        tools=tuple(payloads[0]["tools"]),
        outcome={"kind": kind, "reward": reward, "passed": passed} if judged else None,
        messages=tuple(mark_targets(link_results(payloads[1:]))),
    )


def create_messages(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table `messages`, one row a message of each conversation; `position` counts from 0."""
    import pyarrow as pa

    schema = pa.schema(
        [(name, pa.string()) for name in ("conversation_id", "role", "content", "reasoning", "refusal")]
        + [("position", pa.int64()), ("tool_calls", pa.string()), ("tool_call_id", pa.string())]
        + [("is_error", pa.bool_()), ("flags", pa.list_(pa.string())), ("train", pa.bool_())]
    )
    rows = [
        {
            **each,
            "conversation_id": whole.id,
            "position": position,
            "content": _text(each["content"]),
            "tool_calls": json.dumps(each["tool_calls"], ensure_ascii=False),
        }
        for whole in assemble(connection, "true")
        for position, each in enumerate(whole.messages)
    ]
    connection.register("messages_rows", pa.Table.from_pylist(rows, schema=schema))
    connection.execute("create table messages as select * from messages_rows")


def _text(content: Any) -> str | None:
    return content if content is None or isinstance(content, str) else json.dumps(content, ensure_ascii=False)
