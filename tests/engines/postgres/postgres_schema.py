"""A schema in words, from the catalogs: what two stores are compared by, and `postgres_schema.txt` is written with.

Run as a program it writes that file again: `python tests/engines/postgres/postgres_schema.py`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

__all__ = ["FILE", "describe", "layout_only"]

FILE = Path(__file__).with_name("postgres_schema.txt")

QUERIES = {
    "table": """
        SELECT c.relname || coalesce(' with ' || array_to_string(c.reloptions, ', '), '')
            || coalesce(' ' || pg_get_partkeydef(c.oid), '') || coalesce(' ' || pg_get_expr(c.relpartbound, c.oid), '')
        FROM pg_class AS c WHERE c.relnamespace = $1 AND c.relkind IN ('r', 'p', 'v')
    """,
    "column": """
        SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
            || coalesce(' collate ' || nullif(l.collname, 'default'), '')
            || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
            || CASE a.attidentity WHEN 'a' THEN ' identity' ELSE '' END
            || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
        FROM pg_attribute AS a
        JOIN pg_class AS c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
        WHERE c.relnamespace = $1 AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped
    """,
    "index": """
        SELECT pg_get_indexdef(i.indexrelid) || CASE WHEN i.indisvalid THEN '' ELSE ' (invalid)' END
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid WHERE c.relnamespace = $1
    """,
    "constraint": """
        SELECT c.relname || ': ' || pg_get_constraintdef(k.oid)
        FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
        WHERE c.relnamespace = $1 AND k.contype <> 'n'
    """,
    "function": "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = $1",
    "view": """
        SELECT c.relname || ' as ' || pg_get_viewdef(c.oid) FROM pg_class AS c
        WHERE c.relnamespace = $1 AND c.relkind = 'v'
    """,
}


async def describe(connection: Any, schema: str) -> list[str]:
    """Everything in a schema but its days, one entry each, in order; its name is given as dibs."""
    number = await connection.fetchval("SELECT oid FROM pg_namespace WHERE nspname = $1", schema)
    found = []
    for kind, query in QUERIES.items():
        for row in await connection.fetch(query, number):
            text = re.sub(r"\s+", " ", row[0]).strip()
            found.append(f"{kind} {text}".replace(f'"{schema}".', "dibs.").replace(f"{schema}.", "dibs."))
    return sorted(entry for entry in found if not re.search(r"\bfinished_\d", entry))


def layout_only(description: list[str]) -> list[str]:
    """Without what is code, and is spelled differently by different servers."""
    return [entry for entry in description if not entry.startswith(("function ", "view "))]


if __name__ == "__main__":
    import asyncio

    sys.path[:0] = [str(FILE.parent), str(FILE.parents[2])]
    from postgres_help import connection as connect
    from postgres_help import engines

    async def write() -> None:
        async with engines() as (engine,), connect() as own:
            FILE.write_text("\n".join(layout_only(await describe(own, engine.address.schema))) + "\n")

    asyncio.run(write())
