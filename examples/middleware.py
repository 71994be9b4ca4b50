"""Middleware: code around every run, for timing, error reports, or what a task needs.

Run it with `python middleware.py`. The first middleware added is the outermost. An async function runs on the event
loop, around everything else. A generator function runs where the task's function runs: in its thread, in its child
process (`executor="process"`), or on the loop. So it can look after what belongs to that thread, such as a connection.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from dibs import Context, Dibs

app = Dibs("memory://", retries=1, retry_base=0)
timings: list[float] = []
threads: set[str] = set()


@app.middleware
async def report_errors(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await run()
    except Exception as error:
        print(f"{ctx.name}, attempt {ctx.attempt}: {type(error).__name__}: {error}")
        raise  # otherwise the run would count as completed


@app.middleware
def timing(ctx: Context) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield  # the task's function runs here; what it raises is raised here as well
    finally:
        timings.append(time.perf_counter() - started)
        threads.add(threading.current_thread().name.rstrip("0123456789"))


@app.task
def divide(a: int, b: int) -> float:
    return a / b


def main() -> None:
    good, bad = divide.enqueue(1, 2), divide.enqueue(1, 0)
    with app.worker():
        ended = app.wait([good, bad], timeout=10)
    print("ended:", ", ".join(task.state for task in ended))
    print("runs timed:", len(timings), "in threads", *threads)


if __name__ == "__main__":
    with app:
        main()
