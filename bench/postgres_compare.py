"""Dibs beside its PostgreSQL peers: the same work in one run, alternating rounds, medians, ratios."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import postgres_raw
from compare import rate, ratio, version_of
from postgres_contestants import CONTESTANTS, NODE_PACKAGES, Contestant, Failed, drain, enqueue, latency
from postgres_server import Server, serving

COLUMNS = {
    "one_per_second": "one/s",
    "callers_per_second": "64 callers/s",
    "bulk_per_second": "bulk/s",
    "drain_per_second": "drain/s",
    "latency_ms_p50": "start P50",
    "latency_ms_p99": "P99",
}
Measured = dict[str, float]
Job = tuple[str, str, Callable[[], Measured]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--url", help="the server to measure on, by someone who may create databases; else one is started"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--tasks", type=int, default=20_000, help="tasks to drain; a tenth is enqueued singly, a half by 64 callers"
    )
    parser.add_argument("--samples", type=int, default=200, help="starts on an idle worker")
    parser.add_argument("--only", help="names of contestants, separated by commas")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    chosen, absent = choose(options.only)
    for name, reason in absent.items():
        print(f"without {name}: {reason}", file=sys.stderr)
    found: dict[str, dict[str, list[float]]] = {}
    failures: list[str] = []
    with serving(options.url) as server:
        settings = server.settings()
        for number in range(1, options.rounds + 1):
            one_round(found, failures, chosen, server, options, number)
    report = summary(found, chosen, options) | {"absent": absent, "failures": failures, "server": settings}
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)


def choose(only: str | None) -> tuple[list[Contestant], dict[str, str]]:
    """The contestants that take part, and why others that were asked for don't."""
    names = [each.name for each in CONTESTANTS]
    wanted = [name.strip() for name in only.split(",")] if only else names
    if unknown := set(wanted) - set(names):
        sys.exit(f"no contestant is called {', '.join(sorted(unknown))}. There are: {', '.join(names)}.")
    asked = [each for each in CONTESTANTS if each.name in wanted]
    return [each for each in asked if not each.missing], {each.name: each.missing for each in asked if each.missing}


def one_round(
    found: dict[str, dict[str, list[float]]],
    failures: list[str],
    chosen: list[Contestant],
    server: Server,
    options: argparse.Namespace,
    number: int,
) -> None:
    """Every contestant once, figure by figure, so that a busy moment of the machine hits all alike."""
    jobs = raw_jobs(server, options) + [job for each in chosen for job in jobs_of(each, server, options)]
    order = list(COLUMNS)
    for name, figure, measure in sorted(jobs, key=lambda job: order.index(job[1])):
        print(f"round {number}: {name}, {figure}", file=sys.stderr)
        try:
            measured = measure()
        except Failed as error:
            failures.append(f"{name}, {figure}: {error}")
            print(f"  {error}", file=sys.stderr)
            continue
        for key, value in measured.items():
            found.setdefault(name, {}).setdefault(key, []).append(value)


def count_for(figure: str, tasks: int) -> int:
    return {"one_per_second": tasks // 10, "callers_per_second": tasks // 2}.get(figure, tasks)


def raw_jobs(server: Server, options: argparse.Namespace) -> list[Job]:
    def measure(figure: str, loop: postgres_raw.Loop) -> Measured:
        with server.database() as url:
            return {figure: asyncio.run(loop(url, count_for(figure, options.tasks)))}

    return [
        (name, figure, partial(measure, figure, loop))
        for name, loops in postgres_raw.LOOPS.items()
        for figure, loop in loops.items()
    ]


def jobs_of(each: Contestant, server: Server, options: argparse.Namespace) -> list[Job]:
    def enqueued(how: str) -> Measured:
        figure = f"{how}_per_second"
        return {figure: enqueue(each, server, how, count_for(figure, options.tasks))}

    def started() -> Measured:
        return {f"latency_ms_{name}": value for name, value in latency(each, server, options.samples).items()}

    drained: Job = (each.name, "drain_per_second", lambda: {"drain_per_second": drain(each, server, options.tasks)})
    if each.drains_only:
        return [drained]
    ways = ("one", "callers", "bulk") if each.bulk else ("one", "callers")
    jobs: list[Job] = [(each.name, f"{how}_per_second", partial(enqueued, how)) for how in ways]
    return [*jobs, drained, (each.name, "latency_ms_p50", started)]


def summary(
    found: dict[str, dict[str, list[float]]], chosen: list[Contestant], options: argparse.Namespace
) -> dict[str, Any]:
    described = {each.name: {"keeps": each.keeps, "at_once": each.at_once} for each in chosen}
    medians = {name: {figure: median(values) for figure, values in figures.items()} for name, figures in found.items()}
    ours = medians.get("Dibs", {})
    rows = []
    for name in [*postgres_raw.LOOPS, *described]:
        row: dict[str, Any] = {"name": name, **described.get(name, {})}
        for figure, value in medians.get(name, {}).items():
            row[figure] = round(value, 2)
            if figure in ours:
                faster = value / ours[figure] if figure.startswith("latency") else ours[figure] / value
                row[f"dibs_{figure}_ratio"] = round(faster, 2)
            row[f"{figure}_rounds"] = [round(each, 2) for each in found[name][figure]]
        rows.append(row)
    return {
        "rows": rows,
        "rounds": options.rounds,
        "tasks": options.tasks,
        "samples": options.samples,
        "most": {each.name: each.most for each in chosen if each.most and each.most < options.tasks},
        "versions": {each.package: version(each) for each in chosen} | node_version(chosen),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def version(contestant: Contestant) -> str:
    if contestant.program[0] != "node":
        return version_of(contestant.package)
    described = NODE_PACKAGES / "node_modules" / contestant.package / "package.json"
    return str(json.loads(described.read_text())["version"])


def node_version(chosen: list[Contestant]) -> dict[str, str]:
    commands = [each.command()[0] for each in chosen if each.program[0] == "node"]
    told = subprocess.run([commands[0], "--version"], check=True, capture_output=True, text=True) if commands else None
    return {"node": told.stdout.strip().removeprefix("v")} if told else {}


def show(report: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table_of(report["rows"], ("keeps", "at_once"), value_of))
    if any(row["name"] == "Dibs" for row in report["rows"]):
        others = [row for row in report["rows"] if row["name"] != "Dibs"]
        console.print("\nHow many times as fast Dibs is with one worker process:\n")
        console.print(table_of(others, (), lambda row, figure: ratio(row.get(f"dibs_{figure}_ratio"))))
    console.print("\n" + footnotes(report), soft_wrap=True, highlight=False)
    for failure in report["failures"]:
        console.print(f"failed: {failure}", style="red", soft_wrap=True)


def table_of(rows: list[dict[str, Any]], words: tuple[str, ...], cell: Callable[[dict[str, Any], str], str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", *words):
        table.add_column(name.replace("_", " "), no_wrap=True)
    for name in COLUMNS.values():
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row["name"], *(row.get(word, "") for word in words), *(cell(row, figure) for figure in COLUMNS))
    return table


def value_of(row: dict[str, Any], figure: str) -> str:
    value = row.get(figure)
    if value is not None and figure.startswith("latency"):
        return f"{value:.1f} ms"
    return rate(value)


def footnotes(report: dict[str, Any]) -> str:
    """What the figures rest on."""
    server = report["server"]
    fewer = "; ".join(f"{name} drained {most:,}" for name, most in report["most"].items())
    absent = "; ".join(f"{name} ({reason})" for name, reason in report["absent"].items())
    durability = ", ".join(f"{name} {server[name]}" for name in server if name != "server_version")
    lines = [
        f"Medians; rounds: {report['rounds']}, tasks: {report['tasks']:,}, starts: {report['samples']}.",
        fewer and f"{fewer}.",
        f"PostgreSQL {server['server_version']} with {durability}.",
        ", ".join(f"{name} {number}" for name, number in report["versions"].items()) + f"; Python {report['python']}.",
        absent and f"Left out: {absent}.",
    ]
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    main()
