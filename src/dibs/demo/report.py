"""What `dibs demo` found in the store afterwards, and whether every promise was kept."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from dibs.client.app import Dibs
from dibs.client.schedules import ScheduleInfo
from dibs.core.humanize import format_duration
from dibs.core.settings import Tier, tier_of
from dibs.core.states import ENDED, State
from dibs.core.task import TaskRecord
from dibs.core.times import SECOND
from dibs.demo.plan import Planned, count_ends
from dibs.demo.promises import Promise, special_promises
from dibs.engines.figures import Counter
from dibs.engines.open import shown_url

__all__ = ["RECOVERY_LIMIT", "Crash", "Promise", "Summary", "summarise"]

BATCH = 500
RECOVERY_LIMIT = 3.0
"""Seconds within which a killed worker's tasks can run again, if the store notices its death."""


class Crash(Struct, kw_only=True):
    """The worker that was killed, the tasks that it held, and after how long they were taken back."""

    worker: str
    tasks: list[str]
    recovered_after: float | None = None
    limit: float = RECOVERY_LIMIT


class Wait(Struct, frozen=True, kw_only=True):
    """Milliseconds from ready to claimed."""

    count: int
    p50: float
    p95: float
    p99: float


class Summary(Struct, frozen=True, kw_only=True):
    """The outcome of a demo."""

    ok: bool
    url: str
    seconds: float
    tasks: int
    end_states: dict[str, int]
    wait_ms: dict[str, Wait]
    throughput_per_second: float
    retries: int
    recoveries: int
    recovery_seconds: float | None
    refused_writes: int
    lost: int
    promises: list[Promise]


def summarise(
    app: Dibs,
    plan: Sequence[Planned],
    crash: Crash | None,
    ticks: ScheduleInfo,
    before: dict[str, int],
    exits: dict[str, int],
    seconds: float,
) -> Summary:
    """Read every task back and judge."""
    records = read(app, [planned.call.new.id for planned in plan])
    pairs = list(zip(plan, records, strict=True))
    ended = [record for record in records if record is not None and record.state in ENDED]
    counted = {name: count - before.get(name, 0) for name, count in app.stats().counters.items()}
    waits = waits_of(ended)
    lost = len(plan) - len(ended)
    promises = [
        Promise(promise="nothing is lost", kept=lost == 0, detail=f"{len(ended):,} of {len(plan):,} tasks have ended"),
        outcomes(plan, ended),
        contents(pairs),
        urgent_first(waits),
        recovery(crash, {record.id: record for record in ended}),
        *special_promises(app, ended, ticks),
        shutdown(exits),
    ]
    return Summary(
        ok=all(promise.kept for promise in promises),
        url=shown_url(app.url),
        seconds=round(seconds, 1),
        tasks=len(plan),
        end_states=count_ends(record.state for record in ended),
        wait_ms=waits,
        throughput_per_second=round(throughput(ended), 1),
        retries=counted[Counter.RETRIES],
        recoveries=sum(record.losses > 0 for record in ended),
        recovery_seconds=None if crash is None or crash.recovered_after is None else round(crash.recovered_after, 2),
        refused_writes=counted[Counter.REFUSED],
        lost=lost,
        promises=promises,
    )


def read(app: Dibs, ids: list[str]) -> list[TaskRecord | None]:
    found: list[TaskRecord | None] = []
    for start in range(0, len(ids), BATCH):
        records = app.hub.runner.run(app.hub.engine.get(ids[start : start + BATCH]))
        found += [record if isinstance(record, TaskRecord) else None for record in records]
    return found


def waits_of(ended: Sequence[TaskRecord]) -> dict[str, Wait]:
    """By tier, most urgent first, of tasks without a retry or a loss."""
    waits = {}
    for tier in reversed(Tier):
        values = sorted(
            (record.started_at - record.ready_at) / 1000
            for record in ended
            if tier_of(record.spec.priority) is tier and record.attempts + record.losses == 0
            if record.started_at is not None and record.ready_at is not None
        )
        if values:
            p50, p95, p99 = (
                round(values[min(len(values) - 1, int(part * len(values)))], 1) for part in (0.5, 0.95, 0.99)
            )
            waits[str(tier)] = Wait(count=len(values), p50=p50, p95=p95, p99=p99)
    return waits


def throughput(ended: Sequence[TaskRecord]) -> float:
    """Ended tasks per second, from the first claim to the last settlement."""
    starts = [record.started_at for record in ended if record.started_at is not None]
    ends = [record.finished_at for record in ended if record.finished_at is not None]
    return len(ended) / ((max(ends) - min(starts)) / SECOND) if starts and ends and max(ends) > min(starts) else 0.0


def outcomes(plan: Sequence[Planned], ended: Sequence[TaskRecord]) -> Promise:
    wanted = count_ends(planned.expected for planned in plan)
    found = count_ends(record.state for record in ended)
    detail = ", ".join(f"{count:,} {state}" for state, count in found.items())
    if found != wanted:
        detail += f"; expected {', '.join(f'{count:,} {state}' for state, count in wanted.items())}"
    return Promise(promise="every task has the outcome that it must have", kept=found == wanted, detail=detail)


def contents(pairs: Sequence[tuple[Planned, TaskRecord | None]]) -> Promise:
    """Each task by itself: its state, its result, and as many failed attempts as planned."""
    wrong = [planned for planned, record in pairs if record is not None and not as_planned(planned, record)]
    detail = f"{len(pairs) - len(wrong):,} of {len(pairs):,} have the planned result and number of failed attempts"
    return Promise(promise="results and retries are exact", kept=not wrong, detail=detail)


def as_planned(planned: Planned, record: TaskRecord) -> bool:
    result = str(planned.number).encode() if planned.expected is State.COMPLETED else None
    return (record.state, record.attempts, record.result) == (planned.expected, planned.attempts, result)


def urgent_first(waits: dict[str, Wait]) -> Promise:
    medians = [wait.p50 for wait in waits.values()]
    kept = len(medians) > 1 and medians == sorted(medians) and medians[0] < medians[-1]
    detail = ", ".join(f"{tier} {format_duration(wait.p50 / 1000)}" for tier, wait in waits.items())
    return Promise(promise="urgent tasks wait less", kept=kept, detail=f"median wait: {detail}")


def recovery(crash: Crash | None, ended: dict[str, TaskRecord]) -> Promise:
    name = "a killed worker's tasks run again"
    if crash is None:
        return Promise(promise=name, kept=False, detail="no worker could be killed while it was running tasks")
    again = [task_id for task_id in crash.tasks if task_id in ended and ended[task_id].losses > 0]
    took = crash.recovered_after
    kept = bool(crash.tasks) and len(again) == len(crash.tasks) and took is not None and took <= crash.limit
    detail = f"{len(again)} of {len(crash.tasks)} did; taken back after {format_duration(took)}"
    detail += f", limit {format_duration(crash.limit)}"
    return Promise(promise=name, kept=kept, detail=detail)


def shutdown(exits: dict[str, int]) -> Promise:
    detail = ", ".join(f"{name} exit code {code}" for name, code in exits.items())
    return Promise(promise="the other workers leave in good order", kept=not any(exits.values()), detail=detail)
