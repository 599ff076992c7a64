"""SQL over one version of the lake: an in-memory DuckDB that can read the listed Parquet files and nothing
else.

Views: raw, nodes, outcomes, quarantine as stored (records as text), and `conversations`, one row a path. A
query cannot write to disk, read other files, load extensions, or see this process's variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.errors import QueryError
from storage.home import Home
from storage.manifests import LakeFile
from storage.tables import COLUMNS

if TYPE_CHECKING:
    import duckdb

# Several records may judge one path: the worst verdict counts, so a disagreement never passes for success.
_CONVERSATIONS = """
create view conversations as
with recursive node as materialized (
    select node_id, any_value(parent_id) as parent_id, min(source) as source, min(format) as format,
           min(segment) as segment, any_value(role) as role, any_value(depth) as depth,
           any_value(calls) as calls, flatten(list(flags)) as flags
    from nodes group by node_id
), leaf as (
    select * from node
    where role <> 'root' and node_id not in (select parent_id from nodes where parent_id is not null)
), path as (
    select node_id as leaf, parent_id, calls, flags from leaf
    union all
    select path.leaf, node.parent_id, node.calls, node.flags
    from path join node on node.node_id = path.parent_id
), whole as (
    select leaf, sum(calls)::bigint as tool_call_count,
           list_sort(list_distinct(flatten(list(flags)))) as flags
    from path group by leaf
), verdict as (
    select node_id, kind, reward, passed,
           count(distinct (reward, passed)) over (partition by node_id) > 1 as disputed
    from outcomes
    qualify row_number() over (
        partition by node_id order by reward nulls last, passed nulls last, kind) = 1
)
select leaf.node_id[:16] as id, leaf.node_id, source, format, segment,
       depth as message_count, tool_call_count,
       case when coalesce(disputed, false) then list_sort(list_append(whole.flags, 'disputed_outcome'))
            else whole.flags end as flags,
       verdict.node_id is not null as judged, kind, reward, passed
from leaf join whole on whole.leaf = leaf.node_id left join verdict on verdict.node_id = leaf.node_id
"""

_READ_AS_TEXT = {
    "raw": "* replace (decode(record) as record)",
    "quarantine": "* replace (try(decode(record)) as record)",
}


def connect(home: Home, files: dict[str, list[LakeFile]]) -> duckdb.DuckDBPyConnection:
    """A connection with the views, locked down. The caller closes it."""
    import duckdb

    connection = duckdb.connect(
        config={
            "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "temp_directory": "",
        }
    )
    for table, entries in files.items():
        connection.execute(_view(table, [str(home.lake / entry.path) for entry in entries]))
    connection.execute(_CONVERSATIONS)
    return connection


def lock_down(connection: duckdb.DuckDBPyConnection, home: Home, files: dict[str, list[LakeFile]]) -> None:
    """Let the connection read the version's files only, for good."""
    paths = [str(home.lake / entry.path) for entries in files.values() for entry in entries]
    connection.execute(f"set allowed_paths = [{', '.join(map(_literal, paths))}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def select(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one SELECT; raises QueryError for anything else, and for a query that DuckDB refuses."""
    import duckdb

    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise QueryError("only one SELECT statement can be run over the lake. Remove everything else.")
        result = connection.execute(statements[0])
        return [column[0] for column in result.description or []], result.fetchall()
    except duckdb.Error as error:
        raise QueryError(
            f"the query failed: {error}\nViews: conversations, messages, nodes, outcomes, raw, quarantine."
        ) from error


def _view(table: str, paths: list[str]) -> str:
    if not paths:
        columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS[table].items())
        # A BLOB column is read as text, so the empty table has it as text as well.
        return f"create table {table} ({columns.replace('BLOB', 'VARCHAR')})"
    listed = ", ".join(map(_literal, paths))
    columns = _READ_AS_TEXT.get(table, "*")
    return f"create view {table} as select {columns} from read_parquet([{listed}], hive_partitioning = false)"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
