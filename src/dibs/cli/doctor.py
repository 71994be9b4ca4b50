"""`dibs doctor`: is everything as it should be?"""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.text import Text

from dibs.cli.codes import ExitCode
from dibs.cli.options import json_option, with_store
from dibs.client.app import Dibs
from dibs.client.info import ChoreInfo
from dibs.client.queues import QueueInfo
from dibs.client.stats import read_ages
from dibs.client.workers import WorkerInfo
from dibs.core.chores import meaning_of
from dibs.core.humanize import format_duration
from dibs.core.settings import Policy
from dibs.core.states import State
from dibs.core.task import QueueState, WorkerState
from dibs.core.times import EPOCH, SECOND
from dibs.engines.values import Feature, Finding, Level
from dibs.errors import StoreError
from dibs.runtime.payloads import Payloads
from dibs.terminal import emit, say, status

__all__ = ["doctor"]

BACKLOG = 20
"""Ageing periods after which the oldest pending task is worth a warning."""

OVERDUE = 60.0
"""Seconds after which a schedule that has not fired is worth a warning."""

MARKS = {Level.OK: ("✓", "green"), Level.WARNING: ("!", "yellow"), Level.ERROR: ("✗", "red")}


@click.command()
@click.option("--quick", is_flag=True, help="Skip the full integrity check, which reads the whole store.")
@json_option
@with_store
def doctor(app: Dibs, quick: bool, as_json: bool) -> int:
    """Check the store, queues and workers.

    Exit code 1 if an error is found.
    """
    with status("Checking", quiet=as_json):
        findings = examine(app, full=not quick)
    if as_json:
        emit({"ok": not bad(findings), "findings": findings})
    else:
        for finding in findings:
            show_finding(finding)
    return ExitCode.FAILED if bad(findings) else ExitCode.OK


def bad(findings: list[Finding]) -> bool:
    return any(finding.level is Level.ERROR for finding in findings)


def show_finding(finding: Finding) -> None:
    mark, colour = MARKS[finding.level]
    line = Text(f"{mark} ", style=colour).append(finding.title, style="default")
    if finding.detail:
        line.append(f": {finding.detail}", style="bright_black" if finding.level is Level.OK else "default")
    say(line, indent=2)


def examine(app: Dibs, *, full: bool) -> list[Finding]:
    """All findings, the store's first."""
    findings = app.hub.runner.run(app.hub.engine.check(full=full))
    features = app.hub.engine.features
    if not any(finding.title == "durability" for finding in findings):
        findings.append(durability(app.hub.runner.run(app.hub.engine.about()).durability, features))
    findings.append(crash_detection(features))
    findings.append(large_payloads(app.hub.payloads))
    queues, workers = app.queues.list(), app.workers.list()
    serving = [worker for worker in workers if worker.state is not WorkerState.DEAD]
    findings.append(who_works(serving))
    ages = app.hub.runner.run(read_ages(app.hub.engine, app.hub.clock.now()))
    for queue in queues:
        findings += look_at(queue, serving, ages.get(queue.name))
    findings += look_at_schedules(app)
    findings += look_at_chores(app.chores())
    return findings


def durability(text: str, features: frozenset[Feature]) -> Finding:
    return Finding(Level.OK if Feature.DURABLE in features else Level.WARNING, "durability", text)


def crash_detection(features: frozenset[Feature]) -> Finding:
    if Feature.PRESENCE in features:
        detail = "a killed worker is noticed by its absence, and its tasks run again within 3 s"
    else:
        detail = "a killed worker's tasks run again when their lease has ended (30 s by default)"
    return Finding(Level.OK, "crash detection", detail)


def large_payloads(payloads: Payloads) -> Finding:
    title = "large payloads"
    if payloads.blobs is None:
        detail = f"no blob store, so arguments and results over {payloads.limit:,} bytes are refused"
        return Finding(Level.OK, title, detail)
    try:
        with payloads.using() as blobs:
            return Finding(Level.OK, title, blobs.check())
    except StoreError as error:
        return Finding(Level.ERROR, title, str(error))


def who_works(workers: list[WorkerInfo]) -> Finding:
    if not workers:
        return Finding(Level.WARNING, "workers", "none is running: start one with dibs worker MODULE:APP")
    versions = sorted({worker.version for worker in workers})
    if len(versions) > 1:
        return Finding(Level.WARNING, "workers", f"{len(workers)}, of different versions: {', '.join(versions)}")
    return Finding(Level.OK, "workers", f"{len(workers)}, version {versions[0]}")


def look_at(queue: QueueInfo, workers: list[WorkerInfo], oldest: float | None) -> list[Finding]:
    """What is wrong with one queue. `oldest`: the seconds that its oldest pending task has waited."""
    title = f"queue {queue.name}"
    found = []
    pending = queue.counts[State.PENDING]
    if pending and not any(queue.name in worker.queues for worker in workers):
        found.append(Finding(Level.WARNING, title, f"no worker serves it, and tasks are pending: {pending:,}"))
    if pending and queue.state is QueueState.PAUSED:
        found.append(Finding(Level.WARNING, title, f"is paused, and tasks are pending: {pending:,}"))
    if queue.stale:
        detail = f"tasks still ranked by earlier settings: {queue.stale:,}; the leading worker ranks them again"
        found.append(Finding(Level.WARNING, title, detail))
    limit = BACKLOG * queue.settings.aging / SECOND
    if oldest is not None and queue.settings.policy is Policy.AGING and oldest > limit:
        detail = (
            f"its oldest pending task has waited {format_duration(oldest)}, more than {BACKLOG} × the ageing period: "
            "priorities count for little in such a backlog; add workers, or raise aging"
        )
        found.append(Finding(Level.WARNING, title, detail))
    if queue.bound.worst is None and pending:
        found.append(Finding(Level.OK, title, f"bound {queue.bound}"))
    return found or [Finding(Level.OK, title, f"{pending:,} pending, {queue.counts[State.RUNNING]:,} running")]


def look_at_schedules(app: Dibs) -> list[Finding]:
    """Schedules that don't fire, and those that are left over from earlier code."""
    schedules = app.schedules.list()
    found = []
    now = datetime.now(UTC)
    for each in schedules:
        title = f"schedule {each.name}"
        if each.next_fire_at is not None and (now - each.next_fire_at).total_seconds() > OVERDUE:
            found.append(Finding(Level.WARNING, title, str(app.why(each.name))))
        if each.stale:
            detail = (
                "code declared it, but no running worker has for 15 minutes: start one that does, or "
                f"dibs schedules remove {each.name}"
            )
            found.append(Finding(Level.WARNING, title, detail))
    if schedules and not found:
        paused = sum(each.paused for each in schedules)
        found.append(Finding(Level.OK, "schedules", f"{len(schedules):,}, {paused:,} of them paused"))
    return found


def look_at_chores(chores: list[ChoreInfo]) -> list[Finding]:
    """What the leading worker has not done. Nothing is expected of a store that never had a worker."""
    late = [chore for chore in chores if chore.late]
    if late and len(late) == len(chores):
        detail = "none has been done for 3 minutes or longer: no worker leads, so nothing that is old is deleted"
        return [Finding(Level.WARNING, "chores", detail)]
    return [Finding(Level.WARNING, f"chore {chore.name}", lateness(chore)) for chore in late]


def lateness(chore: ChoreInfo) -> str:
    """Since when a chore is late, and what that means."""
    span = format_duration((datetime.now(UTC) - (chore.behind_since or chore.at or EPOCH)).total_seconds())
    since = (
        f"was last done {span} ago" if chore.behind_since is None else f"has had work left after each run for {span}"
    )
    return f"{since}: {meaning_of(chore.name)}"
