"""Tasks with hooks, naps and results of the wrong type, in processes and elsewhere."""

from __future__ import annotations

import os
import tempfile

from dibs import Context, Dibs
from dibs.attempt.hooks import TaskEnd

place = os.environ.setdefault("DIBS_HOOKS_APP", tempfile.mkdtemp())  # children inherit it
app = Dibs(f"sqlite:///{place}/tasks.db", retry_base=0)
told: list[tuple[str, str]] = []


@app.on_success
@app.on_failure
def tell(end: TaskEnd) -> None:
    told.append((end.name, end.state))


@app.task(executor="process")
def good() -> None: ...


@app.task(executor="process")
def wrong() -> int:
    return "one"  # type: ignore[return-value]


@app.task(executor="process")
def naps(ctx: Context) -> int:
    return nap(ctx)


@app.task
def naps_in_thread(ctx: Context) -> int:
    return nap(ctx)


@app.task
async def naps_async(ctx: Context) -> int:
    return nap(ctx)


def nap(ctx: Context) -> int:
    if ctx.lease == 1:
        ctx.snooze(0.01)
    return ctx.attempt


@app.task(executor="process", retries=0)
async def waits() -> None:
    await (await good.aenqueue())


@app.task(executor="process", retries=1, retry_base=3600, retry_cap=3600, backoff=lambda attempt, error: 0.01)
def fails(how: str) -> None:
    if how == "dies":
        os._exit(3)
    raise OSError(how)
