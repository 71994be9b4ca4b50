"""`app.why`: in one line, why a task is not running yet, and when that ends."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from dibs.core.priority import effective
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import QueueRecord, QueueState, TaskRecord, WorkerState
from dibs.core.times import SECOND, Instant, when
from dibs.engines.base import Engine, WorkerRecord
from dibs.errors import UnknownTask

__all__ = ["Why", "explain"]


class Why(Struct, frozen=True):
    """The answer; `until` is when the cause ends, where that is known."""

    text: str
    until: datetime | None = None

    def __str__(self) -> str:
        return self.text


async def explain(engine: Engine, task_id: str, now: Instant) -> Why:
    """Why a task is where it is."""
    record = (await engine.get([task_id]))[0]
    if record is None:
        raise UnknownTask(f"no task has the id {task_id}.")
    if record.state is State.PENDING:
        return await explain_pending(engine, record, now)
    return explain_other(record, now)


def explain_other(record: TaskRecord, now: Instant) -> Why:
    due = when(record.due_at)
    in_words = span((record.due_at or now) - now)
    if record.state is State.SCHEDULED:
        return Why(f"it is scheduled: due in {in_words}, at {due:%Y-%m-%d %H:%M:%S} UTC.", due)
    if record.state is State.RETRYING:
        error = f" ({record.failure.type}: {record.failure.message})" if record.failure else ""
        tried = f"attempt {record.attempts} of {record.options.retries + 1} failed{error}"
        cause = tried if record.attempts else f"its worker was lost {number(record.losses, 'time')}"
        return Why(f"{cause}; the next run is in {in_words}.", due)
    if record.state is State.BLOCKED:
        return Why("it waits for other tasks to end.")
    if record.state is State.RUNNING:
        asked = " and has been asked to cancel" if record.cancel_reason is not None else ""
        since = span(now - (record.started_at or now))
        return Why(f"it is running{asked}: on {record.worker} for {since}, lease {record.lease}.")
    ended = f"{when(record.finished_at):%Y-%m-%d %H:%M:%S} UTC"
    if record.state is State.COMPLETED:
        return Why(f"it has completed, at {ended}.")
    note = f": {record.note}" if record.note else ""
    error = f", {record.failure.type}: {record.failure.message}" if record.failure else ""
    replay = " Replay it to run it again." if record.state is State.DEAD else ""
    return Why(f"it is {record.state} (reason {record.reason}{note}{error}) since {ended}.{replay}")


async def explain_pending(engine: Engine, record: TaskRecord, now: Instant) -> Why:
    queue = next((q for q in await engine.queues() if q.name == record.queue), QueueRecord(name=record.queue))
    if queue.state is QueueState.PAUSED:
        return Why(f"queue {record.queue!r} is paused: nothing is handed out until it is resumed.")
    workers = [w for w in await engine.workers() if w.state in (WorkerState.ACTIVE, WorkerState.PAUSED)]
    if (trouble := no_worker(record, workers)) is not None:
        return Why(trouble)
    counts = (await engine.counts())[record.queue]
    limit = queue.settings.max_concurrent
    if limit is not None and counts[State.RUNNING] >= limit:
        return Why(
            f"queue {record.queue!r} runs {number(counts[State.RUNNING], 'task')}, its max_concurrent; "
            "it waits for one to end."
        )
    position = await engine.position(record.id, now=now)
    if position is None:
        return Why("it is just being claimed.")
    points = effective(record.rank, record.lane, queue.settings, now)
    ahead = f"more than {position.ahead:,} tasks go" if position.more else f"{number(position.ahead, 'task')} go"
    ahead += "es" if position.ahead == 1 else ""
    rate = rate_text(queue.settings)
    if position.ahead == 0:
        return Why(
            f"it is next in queue {record.queue!r} (effective priority {points:.1f}){rate}: it waits for a free slot."
        )
    return Why(f"{ahead} before it in queue {record.queue!r} (its effective priority is {points:.1f}){rate}.")


def no_worker(record: TaskRecord, workers: list[WorkerRecord]) -> str | None:
    """What is missing if no worker that is there could run this task."""
    serving = [w for w in workers if record.queue in w.queues]
    if not serving:
        return f"no worker serves queue {record.queue!r}: start one with `dibs worker`."
    knowing = [w for w in serving if w.names is None or record.name in w.names]
    if not knowing:
        return f"no worker of queue {record.queue!r} knows the task {record.name!r}: deploy code that defines it."
    capable = [w for w in knowing if set(record.requires) <= set(w.capabilities)]
    if not capable:
        return f"it requires {', '.join(record.requires)}, and no worker of queue {record.queue!r} offers that."
    if all(w.state is WorkerState.PAUSED for w in capable):
        return f"all workers that could run it are paused: {', '.join(w.id for w in capable)}."
    return None


def rate_text(settings: QueueSettings) -> str:
    return "" if settings.rate is None else f", and at most {settings.rate:g} start per second"


def number(count: int, thing: str) -> str:
    """How many of something."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def span(duration: int) -> str:
    """A duration in the words of people."""
    seconds = max(0.0, duration / SECOND)
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 48 * 60 else f"{minutes / 1440:.1f} days"
