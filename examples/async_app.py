"""Async code: the same app from asyncio. Methods that talk to the store have an async twin that begins with `a`.

Run it with `python async_app.py`.
"""

import asyncio
from collections.abc import AsyncIterator

from dibs import Context, Dibs, State
from dibs.errors import TaskFailed

app = Dibs("memory://", retries=0)


@app.lifespan
async def resources() -> AsyncIterator[dict[str, int]]:
    """Made once per worker (and once per executor process); tasks find it as `ctx.state`."""
    print("opened")
    yield {"rate": 2}
    print("closed")


@app.task
async def convert(ctx: Context, amount: int) -> int:
    await asyncio.sleep(0.01)
    if amount < 0:
        raise ValueError("amounts are not negative")
    rate: int = ctx.state["rate"]
    return amount * rate


async def main() -> None:
    handles = [await convert.aenqueue(amount) for amount in range(5)]
    print("results:", await asyncio.gather(*handles))

    batch = await app.aenqueue_many(convert.call(amount) for amount in (10, 20))  # all or none
    print("batch:", [await handle for handle in batch])

    try:
        failing = await convert.aenqueue(-1)
        await failing.aresult(timeout=10)
    except TaskFailed as error:
        print("failed:", error.error_message)
    print("completed:", (await app.queues.aget("default")).counts[State.COMPLETED])


if __name__ == "__main__":
    with app, app.worker():  # the worker has a loop and a thread of its own
        asyncio.run(main())
