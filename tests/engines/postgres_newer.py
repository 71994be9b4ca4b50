"""A process of another version of Dibs: its functions have another text. Says `ready`, works, and ends.

Takes the URL of a store and how many tasks to run. Prints its fingerprint at the end.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import uuid4

from postgres_help import new, settle

from dibs.engines.postgres import from_url, statements
from dibs.engines.values import ClaimRequest

known = dict(statements.function_sources())
known["promote"] += "\n-- as the next version has it"
statements.function_sources = lambda: known  # type: ignore[assignment]


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
