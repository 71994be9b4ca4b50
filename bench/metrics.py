"""What do metrics cost? The same drain by a worker without a metrics port, and by one that is scraped once a second."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from depth import Stores, stores
from dibs.benchmark import measures
from dibs.benchmark.app import make_app
from dibs.core.task import WorkerState

QUEUE = "bench-drain"
PORT = 19_464
WANTED = 0.98
COMMAND = ("-m", "dibs", "worker", "dibs.benchmark.app:app", "--queues", QUEUE, "--concurrency", "200")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--old", metavar="SRC", help="also with the package in this folder, from before a change")
    parser.add_argument("--postgres", nargs="?", const="", metavar="URL", help="on PostgreSQL, as for depth.py")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = ["off", "scraped", *(["old"] if options.old else [])]
    rates: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="dibs-metrics-") as place, stores(Path(place), options.postgres) as urls:
        for number in range(options.rounds):
            for name in names if number % 2 else names[::-1]:
                rates[name].append(drained(urls, f"round_{number}_{name}", name, options))
    ratios = {
        f"{name} / {base}": round(median(a / b for a, b in zip(rates[name], rates[base], strict=True)), 3)
        for name, base in (("scraped", "off"), ("off", "old"))
        if base in rates
    }
    found = {name: round(median(each)) for name, each in rates.items()}
    if options.json:
        print(json.dumps({"per_second": found, "ratios": ratios}))
        return
    for name, rate in found.items():
        print(f"{name:>10}: {rate:8,}/s")
    for name, ratio in ratios.items():
        print(f"{name:>14}: {ratio:.3f} × (at least {WANTED} wanted)")


def drained(urls: Stores, store: str, name: str, options: argparse.Namespace) -> float:
    """Tasks per second of one worker, from the moment that the queue is opened."""
    url = urls(store)
    with make_app(url) as app:
        task = app.task_named("bench.nothing")
        app.queues.set(QUEUE)
        app.queues.pause(QUEUE)
        for start in range(0, options.tasks, 1000):
            app.enqueue_many([task.call(number=number) for number in range(start, min(start + 1000, options.tasks))])
        with working(url, name, options.old):
            while not any(worker.state is WorkerState.ACTIVE for worker in app.workers.list()):
                time.sleep(0.02)
            with scraping(name == "scraped"):
                began = time.perf_counter()
                app.queues.resume(QUEUE)
                return options.tasks / (measures.wait_for(app, QUEUE, options.tasks) - began)


@contextmanager
def working(url: str, name: str, old: str | None) -> Iterator[None]:
    environment = {**os.environ, "DIBS_URL": url, **({"PYTHONPATH": old} if old and name == "old" else {})}
    port = ["--metrics-port", str(PORT)] if name == "scraped" else []
    process = subprocess.Popen([sys.executable, *COMMAND, *port], env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def scraping(is_on: bool) -> Iterator[None]:
    """Once a second: fifteen times as often as Prometheus does by default."""
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(1.0):
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=5) as answer:
                assert b"dibs_worker_runs_total" in answer.read()

    thread = threading.Thread(target=scrape)
    if is_on:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if is_on:
            thread.join()


if __name__ == "__main__":
    main()
