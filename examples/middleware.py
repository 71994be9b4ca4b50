"""Middleware: code around every run, for timing, error reports, or what a task needs.

Run it with `python middleware.py`. The first middleware added is the outermost. It runs on the worker's event loop,
also around a `def` task, whose function runs in a thread. With `executor="process"` it runs in the child process.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from dibs import Context, Dibs

app = Dibs("memory://", retries=1, retry_base=0)
Next = Callable[[], Awaitable[Any]]
timings: list[float] = []


@app.middleware
async def timing(ctx: Context, run: Next) -> Any:
    started = time.perf_counter()
    try:
        return await run()
    finally:
        timings.append(time.perf_counter() - started)


@app.middleware
async def report_errors(ctx: Context, run: Next) -> Any:
    try:
        return await run()
    except Exception as error:
        print(f"{ctx.name}, attempt {ctx.attempt}: {type(error).__name__}: {error}")
        raise  # otherwise the run would count as completed


@app.task
def divide(a: int, b: int) -> float:
    return a / b


def main() -> None:
    good, bad = divide.enqueue(1, 2), divide.enqueue(1, 0)
    with app.worker():
        ended = app.wait([good, bad], timeout=10)
    print("ended:", ", ".join(task.state for task in ended))
    print("runs timed:", len(timings))


if __name__ == "__main__":
    with app:
        main()
