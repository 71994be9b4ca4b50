"""What does an idle worker cost? Its share of a core and its memory, while it waits for work.

`--workers`: several on one store, of which the dearest counts. `--storm`: so many tasks are run before.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import psutil

from dibs.benchmark.app import QUEUES, make_app
from dibs.worker_processes import WorkerProcesses

MOST_CPU = 0.5
MOST_MEMORY = 60.0
SETTLING = 2.0
"""Seconds after the start that don't count."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--storm", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dibs-idle-") as place:
        share, memory = watch(Path(place), options.seconds, options.workers, options.storm)
    report = {
        "cpu_percent": round(share, 3),
        "memory_mib": round(memory, 1),
        "seconds": options.seconds,
        "reached": share < MOST_CPU and memory < MOST_MEMORY,
    }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(f"idle worker: {share:.2f} % of a core (under {MOST_CPU} % wanted)")
    print(f"             {memory:.0f} MiB (under {MOST_MEMORY:.0f} MiB wanted)")


def watch(place: Path, seconds: float, workers: int, storm: int) -> tuple[float, float]:
    """Percent of one core, and resident MiB, over that time, of the one that takes most."""
    url = f"sqlite:///{place}/idle.db"
    with make_app(url) as app, WorkerProcesses("dibs.benchmark.app:app", url, place, 10, QUEUES) as processes:
        task = app.task_named("bench.nothing")
        handles = app.enqueue_many([task.call(number=number) for number in range(storm)])
        processes.start(workers)
        processes.ready(app)
        app.wait(handles)
        watched = [psutil.Process(processes.pid(name)) for name in processes.names]
        time.sleep(SETTLING)
        before = [used(process) for process in watched]
        began = time.monotonic()
        time.sleep(seconds)
        after = [used(process) for process in watched]
        took = time.monotonic() - began
        memory = max(process.memory_info().rss for process in watched) / 2**20
        processes.stop()
    return max(late - early for early, late in zip(before, after, strict=True)) / took * 100, memory


def used(process: psutil.Process) -> float:
    """Seconds of a core, so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
