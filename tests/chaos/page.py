"""The figures of runs as a page: `python -m chaos.page RESULT.json… > docs/evidence.md`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from chaos.checker import CHECKS

__all__ = ["page"]

FAULTS = {
    "clock": "the wall clock of all processes is set, by −3 to +60 s",
    "disk-full": "the store's disk is full",
    "freeze": "all processes of the server stand still",
    "kill": "SIGKILL of a worker",
    "kill-producer": "SIGKILL of a producer",
    "memory-full": "the server has no memory left",
    "pause": "a queue is paused and resumed",
    "paused": "the server holds all writes back",
    "read-held": "a reader does not end",
    "replace": "a worker leaves in good order, another starts",
    "server-crash": "the server ends at once and comes back",
    "server-restart": "the server is stopped and comes back",
    "scripts-gone": "the server forgets its scripts",
    "sever": "one worker's connections are cut, and new ones refused",
    "sever-all": "all connections are cut",
    "snapshot-held": "a transaction is left open",
    "stall": "one worker's packets are dropped",
    "stall-all": "all packets are dropped",
    "stop": "SIGSTOP of one worker, then SIGCONT",
    "stop-all": "SIGSTOP of all processes, then SIGCONT",
    "terminate": "the server ends sessions of Dibs",
    "write-held": "a process keeps the write lock",
}

LONGEST = 200

HEAD = """\
# Evidence

`make chaos` runs producers and workers as real processes against a real store, injects the faults of production, and
then compares the processes' own append-only journals with what the store says about each task. The faults are drawn
from a seed. This page holds the figures of the longest runs; `make chaos ARGS="--minutes 60"` makes new ones, in
`chaos-out`.
"""

NOT_TRIED = """\
## What was not tried

- Power loss, a host that dies, failing disks, and a network between hosts: everything ran on one machine.
- A failover to a standby or a replica (tested apart: `tests/engines/postgres`, `tests/engines/redis`), PgBouncer,
  PostgreSQL before 18, Redis without a log on disk.
- The clock of the PostgreSQL or Redis server; clocks that differ between processes that share a SQLite file.
- The memory engine, which lives in one process; macOS and Windows.
- Results and arguments in a blob store, transactions of the caller's own, hundreds of workers, millions of tasks.
"""


def page(reports: Sequence[dict[str, Any]]) -> str:
    return "\n".join([HEAD, *(text for report in reports for text in section(report)), checks(), NOT_TRIED])


def checks() -> str:
    lines = [f"- {name}: {meaning(name)}" for name in CHECKS]
    return "## What must hold\n\n" + "\n".join(fill(line, 118, subsequent_indent="  ") for line in lines) + "\n"


def meaning(name: str) -> str:
    return " ".join((CHECKS[name].__doc__ or "").split())


def section(report: dict[str, Any]) -> Iterator[str]:
    figures = report["figures"]
    faults = figures["faults"]
    found = report["findings"]
    history = ", ".join(f"{count:,} {event}" for event, count in sorted(figures["history"].items()))
    yield f"## {report['about']}, {report['minutes']:g} minutes, seed {report['seed']}\n"
    yield fill(
        f"{figures['tasks']:,} tasks in {figures['runs']:,} runs by {figures['processes']} processes under"
        f" {sum(each['times'] for each in faults.values())} faults, leases of {report['lease']:g} s:"
        f" {told(found)}."
        f" {figures['enqueues that were repeated']:,} enqueues failed and were repeated by their producers;"
        f" the schedule fired {figures['fires of the schedule']:,} times."
        f" History: {history or 'none'}.",
        118,
    )
    for name, what in found[:20]:
        yield f"- {name}: {what[:LONGEST]}"
    yield "\n| | n | median s | 99 % s | most s |\n|---|---|---|---|---|"
    for name, title in (
        ("recovery from a killed worker, s", "killed worker: until all its tasks run again"),
        ("probe in calm times, s", "calm times: from enqueued to started, by an idle worker"),
    ):
        yield "| " + " | ".join([title, *numbers(figures[name])]) + " |"
    inverted = figures["longest inversion of order, s"]
    yield f"\nThe longest that a less urgent task was ahead of a more urgent one: {inverted} s.\n"
    yield "| fault | times | runs/s before | during | after | until work goes on, median / most s |"
    yield "|---|---|---|---|---|---|"
    for kind, each in faults.items():
        _, middle, _, most = numbers(each["until work goes on, s"])
        rates = [str(each[when]) for when in ("times", "ended per s before", "during", "after")]
        yield "| " + " | ".join([FAULTS[kind], *rates, f"{middle} / {most}"]) + " |"
    yield ""


def told(found: Sequence[object]) -> str:
    number = f"{len(found)} finding{'' if len(found) == 1 else 's'}"
    return f"**{number}**" if found else "**nothing was found**"


def numbers(summary: dict[str, float]) -> list[str]:
    return [str(summary.get(name, "–")) for name in ("n", "p50", "p99", "max")]


if __name__ == "__main__":
    print(page([report for file in sys.argv[1:] for report in json.loads(Path(file).read_text())]))
