"""What the tests of the SQLite engine share."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dibs.core.ids import uuid7
from dibs.core.task import Lease, LeasedTask, NewTask, Outcome, Settlement
from dibs.engines.sqlite import SqliteEngine
from dibs.engines.values import Beat, ClaimRequest
from dibs.testing.tasks import changed

counter = iter(range(1 << 60))


def new(**facts: object) -> NewTask:
    number = next(counter)
    task_id = uuid7(time.time_ns() // 1_000_000, number, random.getrandbits(62))
    return changed(NewTask(id=task_id, queue="default", name="work"), **facts)


def request(limit: int = 1, worker: str = "w", **facts: object) -> ClaimRequest:
    plain = {"worker": worker, "sequence": next(counter), "queues": ("default",), "limit": limit}
    return ClaimRequest(**{**plain, **facts})  # type: ignore[arg-type]


def completed(task: LeasedTask) -> Settlement:
    return Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED, result=b"1")


def beat(worker: str, pid: int) -> Beat:
    return Beat(id=worker, host="here", pid=pid, version="1", queues=("default",), names=None)


@asynccontextmanager
async def opened(path: Path, **options: object) -> AsyncIterator[SqliteEngine]:
    engine = SqliteEngine(path, **options)  # type: ignore[arg-type]
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()
