"""What does a subscription cost? The same drain without one, with one to figures, and with one to all events."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from depth import stores
from dibs.benchmark import measures
from dibs.benchmark.app import make_app

TOPICS: dict[str, list[str] | None] = {"nobody": None, "figures": ["queue.depth", "system.metrics"], "all events": []}
WANTED = {"figures": 0.97, "all events": 0.7}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--postgres", nargs="?", const="", metavar="URL", help="on PostgreSQL, as for depth.py")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in TOPICS}
    with tempfile.TemporaryDirectory(prefix="dibs-events-") as place, stores(Path(place), options.postgres) as urls:
        for number in range(options.rounds):
            for name, topics in TOPICS.items():
                url = urls(f"round_{number}_{name.replace(' ', '_')}")
                rates[name].append(drained(Path(place), url, topics, options.tasks))
    found = {name: median(each) for name, each in rates.items()}
    ratios = {name: round(found[name] / found["nobody"], 2) for name in WANTED}
    if options.json:
        print(json.dumps({"per_second": {name: round(each) for name, each in found.items()}, "ratios": ratios}))
        return
    for name, rate in found.items():
        ratio = f", {ratios[name]:.2f} × (at least {WANTED[name]} wanted)" if name in WANTED else ""
        print(f"{name:>10}: {rate:8,.0f}/s{ratio}")


def drained(place: Path, url: str, topics: list[str] | None, tasks: int) -> float:
    """Tasks per second, while a process of its own reads events of these topics; None: while nobody does."""
    with make_app(url) as app:
        app.queues.set("bench-drain")
        with subscriber(url, topics):
            return measures.drain(app, place, tasks)


@contextmanager
def subscriber(url: str, topics: list[str] | None) -> Iterator[None]:
    if topics is None:
        yield
        return
    command = [sys.executable, "-m", "dibs", "events", *topics, "--json", "--url", url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
