"""Does a deep queue slow claims down? The same number of tasks drained from a shallow and from a deep queue."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from dibs.benchmark import measures
from dibs.benchmark.app import make_app

QUEUE = "bench-drain"
WANTED = 0.8
"""The deep queue is to reach this share of the shallow queue's rate."""

Stores = Callable[[str], str]
"""From a name to the URL of a store that nobody else uses."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shallow", type=int, default=10_000)
    parser.add_argument("--deep", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--priorities", type=int, default=1, help="spread the tasks over this many priorities (1 to 50)"
    )
    parser.add_argument(
        "--postgres",
        nargs="?",
        const="",
        metavar="URL",
        help="on PostgreSQL: on the server at URL, by someone who may create databases; else one is started",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dibs-depth-") as place, stores(Path(place), options.postgres) as urls:
        shallow, deep = measure_both(Path(place), urls, options)
    share = deep / shallow
    report = {
        "shallow_per_second": round(shallow),
        "deep_per_second": round(deep),
        "ratio": round(share, 2),
        "tasks": {"shallow": options.shallow, "deep": options.deep},
        "priorities": options.priorities,
        "store": "sqlite" if options.postgres is None else "postgres",
        "reached": share >= WANTED,
    }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(f"from {options.shallow:>9,} waiting: {shallow:8,.0f}/s")
    print(f"from {options.deep:>9,} waiting: {deep:8,.0f}/s, {share:.2f} × (at least {WANTED} wanted)")


@contextmanager
def stores(place: Path, postgres: str | None) -> Iterator[Stores]:
    """A file per store, or a schema in a database of this run."""
    if postgres is None:
        yield lambda name: f"sqlite:///{place}/{name}.db"
        return
    from postgres_server import serving, with_option

    with serving(postgres or None) as server, server.database() as url:
        yield lambda name: with_option(url, "schema", name)


def measure_both(place: Path, urls: Stores, options: argparse.Namespace) -> tuple[float, float]:
    """Alternating: drain a shallow queue to its end, and as many tasks from the top of the deep one."""
    shallow = options.shallow
    fill(urls("deep"), options.deep, options.priorities)
    rates: dict[str, list[float]] = {"shallow": [], "deep": []}
    for number in range(options.rounds):
        fill(urls(f"shallow-{number}"), shallow, options.priorities)
        rates["shallow"].append(drain(place, urls(f"shallow-{number}"), shallow))
        rates["deep"].append(drain(place, urls("deep"), shallow))
    return median(rates["shallow"]), median(rates["deep"])


def fill(url: str, count: int, priorities: int) -> None:
    """With several priorities the tasks to claim first lie far apart in the store."""
    with make_app(url) as app:
        app.queues.set(QUEUE)
        app.queues.pause(QUEUE)
        tasks = [app.task_named("bench.nothing").using(priority=priority) for priority in range(50, 50 + priorities)]
        for start in range(0, count, 1000):
            end = min(start + 1000, count)
            app.enqueue_many([tasks[number * 7 % len(tasks)].call(number=number) for number in range(start, end)])


def drain(place: Path, url: str, count: int) -> float:
    """The rate of the first `count` tasks from the moment that the queue is opened."""
    with make_app(url) as app:
        before = measures.completed(app, QUEUE)
        with measures.working(app, place, 1, 200):
            began = time.perf_counter()
            app.queues.resume(QUEUE)
            ended = measures.wait_for(app, QUEUE, before + count)
            app.queues.pause(QUEUE)
        done = measures.completed(app, QUEUE) - before
        assert done >= count
        return count / (ended - began)


if __name__ == "__main__":
    main()
