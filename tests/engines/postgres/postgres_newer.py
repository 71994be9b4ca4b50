"""A process of another version of Dibs: its functions have another text, and it knows one step more.

Takes the URL of a store and how many tasks to run. Prints its fingerprint at the end.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import uuid4

from postgres_help import new, settle

from dibs.engines.postgres import from_url, layout, statements
from dibs.engines.values import ClaimRequest

known = dict(statements.function_sources())
known["promote"] += "\n-- as the next version has it"
statements.function_sources = lambda: known  # type: ignore[assignment]
every_script = layout.migration_scripts


def one_more(schema: str) -> dict[int, tuple[str, str]]:
    script = f"ALTER TABLE {statements.quoted(schema)}.tasks ADD COLUMN extra integer;"
    return {**every_script(schema), 99: ("one more", script)}


layout.migration_scripts = one_more  # type: ignore[assignment]


async def work(url: str, tasks: int) -> None:
    engine = from_url(url)
    await engine.open()
    for _ in range(tasks):
        await engine.enqueue([new(queue="newer", id=str(uuid4()))])
    done = 0
    while done < tasks:
        request = ClaimRequest(worker="newer", sequence=done, queues=("newer",), limit=10)
        claimed = (await engine.claim(request)).tasks
        await settle(engine, claimed)
        done += len(claimed)
    await engine.close()


asyncio.run(work(sys.argv[1], int(sys.argv[2])))
print(statements.fingerprint())
