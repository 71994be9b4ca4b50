"""What does an idle worker cost? Its share of a core and its memory, while it waits for work."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import psutil

from dibs.cli.bench_app import QUEUES, make_app
from dibs.cli.crew import Crew

MOST_CPU = 0.5
MOST_MEMORY = 60.0
SETTLING = 2.0
"""Seconds after the start that don't count."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dibs-idle-") as place:
        share, memory = watch(Path(place), options.seconds)
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


def watch(place: Path, seconds: float) -> tuple[float, float]:
    """Percent of one core, and resident MiB, over that time."""
    url = f"sqlite:///{place}/idle.db"
    with make_app(url) as app, Crew("dibs.cli.bench_app:app", url, place, 10, QUEUES) as crew:
        app.task_named("bench.nothing").enqueue(number=1)
        crew.start(1)
        crew.ready(app)
        process = psutil.Process(crew.pid(crew.names[0]))
        time.sleep(SETTLING)
        before = process.cpu_times()
        began = time.monotonic()
        time.sleep(seconds)
        after = process.cpu_times()
        used = after.user + after.system - before.user - before.system
        memory = process.memory_info().rss / 2**20
        crew.stop()
        return used / (time.monotonic() - began) * 100, memory


if __name__ == "__main__":
    main()
