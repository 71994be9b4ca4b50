"""`make chaos`, or `python -m chaos sqlite redis --minutes 60 --seed 7`. Exits with 1 if anything was found."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from chaos.journal import Journal
from chaos.page import page
from chaos.plan import draw
from chaos.planted import PLANTS
from chaos.stage import STAGES, Stage
from servers.cluster import has_disks

NAMES = ("worker-1", "worker-2", "worker-3", "worker-idle", "producer-1", "producer-2")
SLOTS = 8
BUSY = "work,limited,paced,ordered,flows"
PATIENCE = 120.0
"""Seconds in which everything must have ended once nothing disturbs any more."""

SHOWN = 20


def main() -> int:
    given = arguments()
    if has_disks() and not os.environ.get("CHAOS_MAY_MOUNT"):  # disks that are made for a run go with it
        os.environ["CHAOS_MAY_MOUNT"] = "yes"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-m", "chaos", *sys.argv[1:]])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    reports = []
    for store in given.stores:
        report = stormed(store, given)
        reports.append(report)
        show(report)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "chaos.json").write_text(json.dumps(reports, indent=1) + "\n")
    (given.out / "chaos.md").write_text(page(reports))
    print(f"The figures are in {given.out}/chaos.json, as a page in {given.out}/chaos.md.")
    return 1 if any(report["findings"] for report in reports) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=f"of {', '.join(STAGES)}; all of them by default")
    parser.add_argument("--minutes", type=float, default=3.0, help="per store; 3 by default")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to have the same faults again")
    parser.add_argument("--rate", type=float, default=30.0, help="tasks a second of each producer; 30 by default")
    parser.add_argument("--lease", type=float, default=3.0, help="seconds; 3 by default")
    parser.add_argument("--only", default="", help="these faults and no others, separated by commas")
    parser.add_argument("--plant", default="", choices=["", *PLANTS], help="a bug, which must then be found")
    parser.add_argument("--out", type=Path, default=Path("chaos-out"), help="where the results go; ./chaos-out")
    given = parser.parse_args()
    given.stores = given.stores or list(STAGES)
    if unknown := set(given.stores) - set(STAGES):
        parser.error(f"there is no store {', '.join(sorted(unknown))}: choose of {', '.join(STAGES)}")
    given.seed = int(time.time()) % 100_000 if given.seed is None else given.seed
    return given


def stormed(store: str, given: argparse.Namespace) -> dict[str, Any]:
    """One run on one store, from an empty store to its report."""
    folder = Path(tempfile.mkdtemp(prefix="dibs-chaos-journals-"))
    stage = STAGES[store](folder)
    try:
        return run(store, stage, folder, given)
    finally:
        stage.close()
        shutil.rmtree(folder, ignore_errors=True)


def run(store: str, stage: Stage, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    shared = {"CHAOS_FOLDER": str(folder), "CHAOS_LEASE": str(given.lease), "CHAOS_PLANT": given.plant}
    os.environ.update({**shared, "CHAOS_URL": stage.control_url})
    for name in [name for name in sys.modules if name in ("chaos.app", "chaos.producer")]:
        del sys.modules[name]  # it belongs to the store before
    chaos_app: Any = import_module("chaos.app")  # not `from chaos import app`, which would find the one before
    from chaos.checker import check
    from chaos.evidence import gather
    from chaos.figures import measure
    from chaos.nemesis import PROCESS_FAULTS, Nemesis
    from chaos.processes import Processes

    seconds = given.minutes * 60
    kinds = PROCESS_FAULTS | stage.faults
    if given.only:
        kinds = {kind: kinds[kind] for kind in given.only.split(",")}
    plan = draw(given.seed, seconds, kinds, given.lease, NAMES)
    print(f"{store}: {given.minutes:g} min, {len(plan)} faults, seed {given.seed}.")
    journal = Journal(folder, "nemesis")
    processes = Processes(folder, journal)
    with chaos_app.app as app:
        chaos_app.set_up()
        try:
            for name in NAMES:
                if name.startswith("worker"):
                    processes.add(name, worker(name), {"CHAOS_URL": stage.url(name)})
            eventually(lambda: len(app.workers.list()) == 4, "the workers have not come")
            for number, name in enumerate(NAMES):
                if name.startswith("producer"):
                    command = ["chaos.producer", f"{given.seed}{number}{{number}}", str(given.rate)]
                    processes.add(name, command, {"CHAOS_URL": stage.url(name)})
            Nemesis(stage, processes, app, chaos_app.clocks, journal, given.seed).run(plan, seconds)
            processes.send_home("producer")
            journal.write("the storm is over")
            idle = eventually(lambda: everything_has_ended(app), None)
            journal.write("all has ended" if idle else "not all has ended")
            processes.send_home("worker")
        finally:
            processes.end()
        evidence = gather(app, folder, given.lease)
        findings = check(evidence)
        if findings:
            keep(folder, given.out / f"{store}-journals")
        return {
            "store": store,
            "about": about(stage),
            "seed": given.seed,
            "minutes": given.minutes,
            "lease": given.lease,
            "planted": given.plant,
            "faults not to be had here": sorted(set(ALL_FAULTS) - set(kinds)) if not given.only else [],
            "findings": findings,
            "figures": measure(evidence),
        }


ALL_FAULTS = ("disk-full",)


def worker(name: str) -> list[str]:
    queues = "probe" if name == "worker-idle" else BUSY
    return ["dibs", "worker", "chaos.app:app", "--name", "{who}", "-q", queues, "-c", str(SLOTS)]


def everything_has_ended(app: Any) -> bool:
    left = ("pending", "scheduled", "blocked", "running", "retrying")
    return not any(queue.counts[state] for queue in app.queues.list() for state in left)


def eventually(holds: Any, otherwise: str | None) -> bool:
    until = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > until:
            if otherwise is not None:
                raise RuntimeError(otherwise)
            return False
        time.sleep(0.1)
    return True


def about(stage: Stage) -> str:
    return f"{type(stage).__name__.removesuffix('Stage')}, Python {platform.python_version()}, {os.cpu_count()} cores"


def keep(folder: Path, target: Path) -> None:
    """For readers who want to know the cause."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("clock"))


def show(report: dict[str, Any]) -> None:
    figures, findings = report["figures"], report["findings"]
    faults = sum(kind["times"] for kind in figures["faults"].values())
    print(f"  {figures['tasks']:,} tasks, {figures['runs']:,} runs, {faults} faults.")
    print(f"  {len(findings)} findings." if findings else "  Nothing was found.")
    for name, what in findings[:SHOWN]:
        print(f"  - {name}: {what}")


if __name__ == "__main__":
    sys.exit(main())
