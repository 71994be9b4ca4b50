"""Dibs beside its SQLite peers: the same work in one run, alternating rounds, medians, ratios."""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import raw
from contestants import CONTESTANTS, Contestant

PACKAGES = ("dibs", "huey", "flexiq", "persist-queue", "litequeue")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=10_000, help="tasks to drain; a fifth of them is enqueued singly")
    parser.add_argument("--samples", type=int, default=60, help="starts on an idle worker")
    parser.add_argument("--only", help="names of contestants, separated by commas")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    chosen = [each for each in CONTESTANTS if not options.only or each.name in options.only.split(",")]
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(1, options.rounds + 1):
        one_round(found, chosen, options, number)
    report = summary(found, chosen, options)
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)


def one_round(
    found: dict[str, dict[str, list[float]]], chosen: list[Contestant], options: argparse.Namespace, number: int
) -> None:
    """Every contestant once, the raw loops first, so that a busy moment of the machine hits all alike."""
    singles = options.tasks // 5
    jobs: list[tuple[str, str, Callable[[Path], float | None]]] = [
        ("raw sqlite3, FULL", "enqueue_per_second", lambda place: raw.single_inserts(place, singles)),
        ("raw sqlite3, FULL", "drain_per_second", lambda place: raw.claim_and_move(place, options.tasks)),
        ("raw sqlite3, NORMAL", "enqueue_per_second", lambda place: raw.single_inserts(place, singles, "NORMAL")),
        ("raw sqlite3, NORMAL", "drain_per_second", lambda place: raw.claim_and_move(place, options.tasks, "NORMAL")),
    ]
    for each in chosen:
        jobs += jobs_of(each, singles, options)
    for name, figure, measure in jobs:
        print(f"round {number}: {name}, {figure}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="dibs-compare-") as place:
            value = measure(Path(place))
        if value is not None:
            found.setdefault(name, {}).setdefault(figure, []).append(value)


def jobs_of(
    each: Contestant, singles: int, options: argparse.Namespace
) -> list[tuple[str, str, Callable[[Path], float | None]]]:
    return [
        (each.name, "enqueue_per_second", lambda place: each.enqueue(place, singles)),
        (each.name, "drain_per_second", lambda place: each.drain(place, options.tasks)),
        (each.name, "latency_ms_p50", lambda place: each.latency(place, options.samples)),
    ]


def summary(
    found: dict[str, dict[str, list[float]]], chosen: list[Contestant], options: argparse.Namespace
) -> dict[str, Any]:
    durability = {each.name: each.durability for each in chosen}
    durability |= {name: name.rpartition(" ")[2] for name in found if name.startswith("raw")}
    medians = {name: {figure: median(values) for figure, values in figures.items()} for name, figures in found.items()}
    ours = medians.get("Dibs", {})
    rows = []
    for name, figures in medians.items():
        row: dict[str, Any] = {"name": name, "durability": durability[name]}
        for figure, value in figures.items():
            row[figure] = round(value, 1)
            if figure in ours:
                faster = value / ours[figure] if figure.startswith("latency") else ours[figure] / value
                row[f"dibs_{figure.partition('_')[0]}_ratio"] = round(faster, 2)
        rows.append(row)
    return {
        "rows": rows,
        "rounds": options.rounds,
        "tasks": options.tasks,
        "versions": {name: version_of(name) for name in PACKAGES},
        "sqlite": sqlite3.sqlite_version,
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def show(report: dict[str, Any]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    columns = ["", "durability", "enqueue/s", "Dibs is", "drain/s", "Dibs is", "start P50", "Dibs is"]
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right", no_wrap=True)
    for row in report["rows"]:
        table.add_row(
            row["name"],
            row["durability"],
            rate(row.get("enqueue_per_second")),
            ratio(row.get("dibs_enqueue_ratio")),
            rate(row.get("drain_per_second")),
            ratio(row.get("dibs_drain_ratio")),
            "–" if row.get("latency_ms_p50") is None else f"{row['latency_ms_p50']:.1f} ms",
            ratio(row.get("dibs_latency_ratio")),
        )
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    console.print(
        f"\nMedians of {report['rounds']} rounds, {report['tasks']:,} tasks. “Dibs is”: how many times as fast"
    )
    console.print(
        f"Dibs with FULL is. {versions}, SQLite {report['sqlite']}, Python {report['python']}", soft_wrap=True
    )


def rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} ×"


if __name__ == "__main__":
    main()
