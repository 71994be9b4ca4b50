"""`app.why`: in one line, why a task is not running yet, and when that ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from msgspec import Struct, structs

from dibs.client.blockers import StoreView, find_blockers
from dibs.client.humanize import figures, label, number, subject
from dibs.client.info import unknown_task
from dibs.core.fairness import most_before
from dibs.core.humanize import format_duration
from dibs.core.limits import LimitState, Scope
from dibs.core.priority import effective
from dibs.core.recurrence import Overlap
from dibs.core.schedules import UNPLANNABLE, ScheduleRecord, plan
from dibs.core.settings import Policy, QueueSettings
from dibs.core.states import UNFINISHED, WAITING, Reason, State
from dibs.core.task import QueueState, TaskRecord
from dibs.core.times import MINUTE, Instant, seconds, when
from dibs.engines.base import Engine
from dibs.engines.values import Query, UnreadableTask

__all__ = ["Why", "explain"]

MOST_TENANTS = 1000
"""The most tenants that are read to find a turn."""

LATE = MINUTE
"""If a schedule is overdue by more, no worker fires it."""


class Why(Struct, frozen=True):
    """The answer; `until` is when the cause ends, if that is known, and `details` are further lines."""

    text: str
    """The answer, one line."""
    until: datetime | None = None
    """When the cause ends, if that is known."""
    details: tuple[str, ...] = ()
    """Further lines."""

    def __str__(self) -> str:
        return self.text


async def explain(engine: Engine, task_id: str, now: Instant) -> Why:
    """Why a task is in its state, or why a schedule, given its name, does not fire."""
    view = StoreView(engine, now)
    record = await view.task(task_id)
    if isinstance(record, UnreadableTask):
        return Why(f"it can't be read here ({record.problem}), and is set aside: upgrade, repair its row, or purge it.")
    if record is not None:
        return await explain_task(view, record)
    for schedule in await engine.schedules():
        if schedule.name == task_id:
            return await explain_schedule(view, schedule)
    raise unknown_task(task_id)


async def explain_task(view: StoreView, record: TaskRecord) -> Why:
    """The reason, and what else is worth knowing about a task that waits."""
    extra = waiting_details(record, view.now) if record.state in WAITING else ()
    if record.state is State.PENDING:
        why = await explain_pending(view, record)
        extra = (*next_step(record, (await view.queue(record.queue)).settings, view.now), *extra)
    elif record.state is State.BLOCKED or record.reason is Reason.DEPENDENCY:
        why = await explain_dependent(view, record)
    else:
        why = explain_other(record, view.now)
    return structs.replace(why, details=(*why.details, *extra))


def next_step(record: TaskRecord, settings: QueueSettings, now: Instant) -> tuple[str, ...]:
    """What changes the priority of a pending task next, besides its wait, and when."""
    if record.rerank_at is None:
        return ()
    if settings.policy is Policy.TIERS:
        what = "It is promoted to the next tier"
    elif settings.max_aging_bonus is not None and record.rerank_at == cap_at(record, settings):
        what = "Its priority stops rising with its wait"
    else:
        what = "Its deadline makes it more urgent"
    left = seconds(record.rerank_at - now)
    if left <= 0:
        return (f"{what} with the next claim.",)
    return (f"{what} in {format_duration(left)}, at {when(record.rerank_at):%Y-%m-%d %H:%M:%S} UTC.",)


def cap_at(record: TaskRecord, settings: QueueSettings) -> Instant:
    """When a task of a queue with a cap has waited so long that it ages no more."""
    return (record.ready_at or 0) + (settings.max_aging_bonus or 0) * settings.aging


def waiting_details(record: TaskRecord, now: Instant) -> tuple[str, ...]:
    lines = []
    if record.inherited > record.spec.priority:
        lines.append(
            f"It has priority {record.inherited} instead of {record.spec.priority}: a task that waits for it does."
        )
    if record.spec.expires_at is not None:
        at = when(record.spec.expires_at)
        left = format_duration(seconds(record.spec.expires_at - now))
        lines.append(f"It expires in {left}, at {at:%Y-%m-%d %H:%M:%S} UTC: unless started by then it is cancelled.")
    return tuple(lines)


def explain_other(record: TaskRecord, now: Instant) -> Why:
    due = when(record.due_at)
    in_words = format_duration(seconds((record.due_at or now) - now))
    if record.state is State.SCHEDULED:
        return Why(f"it is scheduled: due in {in_words}, at {due:%Y-%m-%d %H:%M:%S} UTC.", due)
    if record.state is State.RETRYING:
        error = f" ({record.failure.type}: {record.failure.message})" if record.failure else ""
        tried = f"attempt {record.attempts} of {record.options.retries + 1} failed{error}"
        cause = tried if record.attempts else f"its worker was lost {number(record.losses, 'time')}"
        return Why(f"{cause}; the next run is in {in_words}.", due)
    if record.state is State.RUNNING:
        asked = " and has been asked to cancel" if record.cancel_reason is not None else ""
        since = format_duration(seconds(now - (record.started_at or now)))
        return Why(f"it is running{asked}: on {record.worker} for {since}, lease {record.lease}.")
    ended = f"{when(record.finished_at):%Y-%m-%d %H:%M:%S} UTC"
    if record.state is State.COMPLETED:
        return Why(f"it has completed, at {ended}.")
    note = f": {record.note}" if record.note else ""
    error = f", {record.failure.type}: {record.failure.message}" if record.failure else ""
    replay = " Replay it to run it again." if record.state is State.DEAD else ""
    return Why(f"it is {record.state} (reason {record.reason}{note}{error}) since {ended}.{replay}")


async def explain_dependent(view: StoreView, record: TaskRecord) -> Why:
    """Why a task waits for others, or ended because of one: down to the task at the root."""
    found = await find_blockers(view, record)
    if record.state is State.BLOCKED:
        if not found.path:
            return Why("what it waited for has ended; the next claim unblocks it.")
        part = "" if found.open == found.total else f"{found.open:,} of "
        text = "it waits for" if found.total == 1 else f"it waits for {part}{found.total:,} tasks, among them"
    else:
        text = explain_other(record, view.now).text
        if not found.path:
            return Why(text)
        text = f"{text} It waited for"
    first, root = found.path[0], found.path[-1]
    cause = await explain_root(view, root)
    if first is root:
        return Why(f"{text} {label(first)}: {cause.text}", details=cause.details)
    waits = "waits" if record.state is State.BLOCKED else "waited"
    steps = [f"{label(one)} {waits} for {label(other)}." for one, other in pairwise((record, *found.path))]
    text = f"{text} {label(first)}; at the root of that is {label(root)}: {cause.text}"
    return Why(text, details=(*steps, *cause.details))


async def explain_root(view: StoreView, record: TaskRecord) -> Why:
    """Why the last task of a path is in its state; the path is not followed any further."""
    if record.state is State.PENDING:
        return await explain_pending(view, record)
    if record.state is State.BLOCKED:
        return Why(f"it waits for others itself (`dibs why {record.id}` goes on from there).")
    return explain_other(record, view.now)


async def explain_pending(view: StoreView, record: TaskRecord) -> Why:
    if (trouble := await view.trouble(record)) is not None:
        return Why(trouble)
    limits = (await view.engine.standing(record.queue, [record.id], now=view.now)).limits[0]
    for state in limits:
        if state.is_full:
            text = await full_text(view, record, state)
            others = tuple(
                f"Limit: {subject(other, record.queue)}, {figures(other)}." for other in limits if other != state
            )
            until = None if state.opens_in is None else when(view.now + state.opens_in)
            return Why(text, until, others)
    position = (await view.engine.peek(record.queue, 0, until=record.id, now=view.now)).position
    if position is None:
        return Why("it is just being claimed.")
    settings = (await view.queue(record.queue)).settings
    points = effective(record.rank, record.lane, settings, view.now)
    ahead = f"more than {position.ahead:,} tasks go" if position.more else f"{number(position.ahead, 'task')} go"
    ahead += "es" if position.ahead == 1 else ""
    rate = "" if settings.rate is None else f", and at most {settings.rate:g} start per second"
    details = await turn_details(view, record, settings) if settings.fair else ()
    details += tuple(f"Limit: {subject(state, record.queue)}, {figures(state)}." for state in limits)
    if position.ahead == 0:
        text = (
            f"it is next in queue {record.queue!r} (effective priority {points:.1f}){rate}: it waits for a free slot."
        )
    else:
        text = f"{ahead} before it in queue {record.queue!r} (its effective priority is {points:.1f}){rate}."
    return Why(text, details=details)


async def turn_details(view: StoreView, record: TaskRecord, settings: QueueSettings) -> tuple[str, ...]:
    """How many tenants have their turn before this task's tenant, and the bound of their starts."""
    standing = await view.engine.standing(record.queue, tenants=MOST_TENANTS)
    shares = [each.tenant for each in standing.tenants]
    others = [share for share in shares if share != record.share]
    before = shares.index(record.share) if record.share in shares else len(shares)
    more = "more than " if record.share not in shares and len(shares) == MOST_TENANTS else ""
    mine = f"tenant {record.share!r}" if record.share else "tasks without a tenant"
    most = most_before(settings, record.share, others)
    goes = "tenant goes" if before == 1 else "tenants go"
    text = f"Fair shares: {more}{before:,} {goes} before {mine}, whose next task starts after at most "
    return (f"{text}{number(most, 'start')} of others.",)


async def full_text(view: StoreView, record: TaskRecord, state: LimitState) -> str:
    """Which limit is full, with its figures, and what frees it."""
    full = f"{subject(state, record.queue)} is at its limit: {figures(state)}"
    if state.opens_in is not None:
        return f"{full}; the next is there in {format_duration(seconds(state.opens_in))}."
    oldest = min(await running_under(view, record, state), key=lambda each: each.started_at or 0, default=None)
    if oldest is None:
        return f"{full}; it waits for one to end."
    since = format_duration(seconds(view.now - (oldest.started_at or view.now)))
    only = "by" if state.running == 1 else "the longest"
    return f"{full}, {only} {label(oldest)} on {oldest.worker} for {since}; it waits for one to end."


async def running_under(view: StoreView, record: TaskRecord, state: LimitState) -> Sequence[TaskRecord]:
    """Some of the tasks that hold the slots of a limit."""
    query = Query(
        states=(State.RUNNING,),
        queues=(record.queue,),
        names=(record.name,) if state.scope is Scope.TASK else (),
        partition=state.whose if state.scope is Scope.PARTITION else None,
        limit=1000,
    )
    return (await view.engine.search(query)).records


async def explain_schedule(view: StoreView, schedule: ScheduleRecord) -> Why:
    """Why a schedule does not fire, or when it does."""
    if schedule.paused:
        return Why(f"schedule {schedule.name!r} is paused: it does not fire until it is resumed.")
    try:
        plan(schedule, view.now)
    except UNPLANNABLE as error:
        return Why(f"schedule {schedule.name!r} can't be computed on this machine: {error}.")
    due, late = when(schedule.next_fire_at), view.now - schedule.next_fire_at
    queue = await view.queue(schedule.task.queue)
    if late > 0 and queue.state is QueueState.DRAINING:
        return Why(f"schedule {schedule.name!r} is due, but queue {queue.name!r} is draining: it fires when resumed.")
    depth = queue.settings.max_depth
    if late > 0 and depth is not None and (await view.engine.counts()).tasks[queue.name][State.PENDING] >= depth:
        return Why(f"schedule {schedule.name!r} is due, but queue {queue.name!r} is full: it fires when there is room.")
    if late > LATE:
        overdue = format_duration(seconds(late))
        return Why(f"schedule {schedule.name!r} is overdue by {overdue}: no worker leads, so none fires it.")
    left, at = format_duration(seconds(-late)), f"{due:%Y-%m-%d %H:%M:%S} UTC"
    if not await view.workers():
        text = f"schedule {schedule.name!r} is due in {left}, at {at}, but no worker is running that could fire it"
        return Why(f"{text}: start one with `dibs worker`.", due)
    last = await view.task(schedule.last_task) if schedule.last_task else None
    details: tuple[str, ...] = ()
    if schedule.recurrence.overlap is Overlap.SKIP and isinstance(last, TaskRecord) and last.state in UNFINISHED:
        details = (f"It will be skipped if its last task, {label(last)}, is still {last.state} then.",)
    return Why(f"schedule {schedule.name!r} fires next in {left}, at {at}.", due, details)
