"""What other processes do to a store in the tests: run as ``python sqlite_process.py ROLE PATH …``.

Each prints one line when it is ready and obeys one line of input at a time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from sqlite_help import beat, completed, new, request

from dibs.engines.sqlite import SqliteEngine
from dibs.engines.topics import work_topic


def say(text: object) -> None:
    print(text, flush=True)


async def read_line() -> str:
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def enqueue_many(engine: SqliteEngine, count: str) -> None:
    """Enqueue one at a time, as fast as it goes."""
    for _ in range(int(count)):
        await engine.enqueue([new()])
    say("done")


async def drain(engine: SqliteEngine, worker: str) -> None:
    """Claim and settle until a line comes in and nothing is left; then name the tasks that were run."""
    stop = asyncio.ensure_future(read_line())
    ran = []
    while True:
        tasks = (await engine.claim(request(7, worker=worker))).tasks
        if not tasks and stop.done():
            break
        await engine.settle([completed(task) for task in tasks])
        ran += [task.id for task in tasks]
    say(" ".join(ran))


async def hold(engine: SqliteEngine, worker: str) -> None:
    """Beat, claim one task, and keep it until killed."""
    await engine.beat(beat(worker, os.getpid()))
    (task,) = (await engine.claim(request(worker=worker))).tasks
    say(task.id)
    await read_line()


async def listen(engine: SqliteEngine) -> None:
    """At each notification, claim, and print when each task was got."""
    subscription = engine.subscribe([work_topic("default")])
    say("listening")
    while await subscription.wait(30):
        for task in (await engine.claim(request(10))).tasks:
            say(f"{time.time_ns()} {task.id}")


async def notify(engine: SqliteEngine) -> None:
    """Enqueue a task for each line that comes in, and tell when it was."""
    say("ready")
    while await read_line():
        task = new()
        say(f"{time.time_ns()} {task.id}")
        await engine.enqueue([task])


ROLES = {"enqueue": enqueue_many, "drain": drain, "hold": hold, "listen": listen, "ring": notify}


async def main(role: str, path: str, *arguments: str) -> None:
    engine = SqliteEngine(Path(path))
    await engine.open()
    await ROLES[role](engine, *arguments)  # type: ignore[operator]
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
