"""`app.schedules`: recurring tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack
from zoneinfo import ZoneInfo

from msgspec import Struct, structs

from dibs.client.blocking import Admin, blocking
from dibs.client.handle import Handle
from dibs.client.info import readable, snapshot
from dibs.client.options import Options, RecurrenceOptions
from dibs.client.producer import aenqueue
from dibs.client.schedule_template import make_recurrence, template_of
from dibs.client.task import Task
from dibs.core.codec import Codec
from dibs.core.options import PAGE_LIMIT, check_kind, check_name, check_number, check_reference, nearest
from dibs.core.recurrence import CatchUp, Overlap, Recurrence, describe, upcoming
from dibs.core.schedules import UNPLANNABLE, ScheduleRecord, ScheduleState, task_of
from dibs.core.task import NewTask
from dibs.core.times import MINUTE, SECOND, Instant, when
from dibs.engines.unreadable import is_among
from dibs.engines.values import Changed
from dibs.errors import InvalidOption, NotAllowed, UnknownSchedule, Unreadable
from dibs.runtime.environment import actor

if TYPE_CHECKING:
    from dibs.client.app import Dibs

__all__ = ["Schedulable", "ScheduleInfo", "Schedules"]

SCHEDULE = "a schedule's name"
STALE = 15 * MINUTE
"""A schedule that no worker has declared for this long is no longer in the code that runs."""

Schedulable = Task[..., Any] | Callable[..., Any] | str
"""A task, a plain function of an allowed module, or a task's name."""


class ScheduleInfo(Struct, frozen=True, kw_only=True):
    """A schedule as it was when it was read. `words` says when it fires.

    `declared`: it is written in code; `stale`: no worker has declared it for 15 minutes, so it may be a leftover.
    """

    name: str
    """Its name."""
    words: str
    """When it fires, in words."""
    task: str
    """The name of its task."""
    queue: str
    """The queue of its tasks."""
    priority: int
    """The priority of its tasks."""
    args: Any
    """The arguments of its tasks, by name."""
    cron: str | None
    """The expression; None for an interval."""
    every: float | None
    """Seconds between two fires; None with cron."""
    tz: str
    """The time zone of cron."""
    jitter: float
    """Seconds by which starts are spread."""
    catch_up: CatchUp
    """What becomes of missed fires."""
    catch_up_limit: int
    """How many of them `all` catches up."""
    overlap: Overlap
    """Whether it fires while its last task is unfinished."""
    paused: bool
    """Whether it is paused."""
    next_fire_at: datetime | None
    """None while it is paused."""
    last_fire_at: datetime | None
    """The nominal time of its last fire."""
    last_task: str | None
    """The id of the last task."""
    fired: int
    """How many tasks it has enqueued."""
    skipped: int
    """How many fires got no task."""
    created_at: datetime | None
    """When it was made."""
    declared: bool
    """Whether it is written in code."""
    declared_at: datetime | None
    """When a worker last declared it."""
    stale: bool
    """No worker has declared it for 15 minutes: it may be a leftover."""


ScheduleInfos = list[ScheduleInfo]
Moments = list[datetime]
"""Named here, because inside the class `list` is a method."""


class Schedules(Admin):
    """Reading and changing schedules."""

    def __init__(self, app: Dibs) -> None:
        super().__init__(app.hub)
        self.app = app

    async def alist(self) -> ScheduleInfos:
        """All schedules by name."""
        now = self.hub.clock.now()
        records = await self._ask(self.hub.engine.schedules())
        return [schedule_info(record, self.hub.codec, now) for record in records]

    list = blocking(alist)

    async def aget(self, name: str) -> ScheduleInfo:
        """One schedule."""
        return schedule_info(await self._record(name), self.hub.codec, self.hub.clock.now())

    get = blocking(aget)

    async def _record(self, name: str) -> ScheduleRecord:
        check_reference(name, SCHEDULE)
        records = await self._ask(self.hub.engine.schedules())
        for record in records:
            if record.name == name:
                return record
        with suppress(NotAllowed):  # to check a store may be more than this caller may
            if is_among(await self._ask(self.hub.engine.check()), "schedule", name):
                check_readable(Changed.UNREADABLE, name)
        raise UnknownSchedule(f"no schedule is called {name!r}.{nearest(name, [each.name for each in records])}")

    async def aset(
        self,
        name: str,
        task: Schedulable,
        *,
        cron: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **recurrence: Unpack[RecurrenceOptions],
    ) -> ScheduleInfo:
        """Create a schedule, or replace it. Options of its tasks come with the task: ``report.using(priority=70)``."""
        fires = make_recurrence(cron, recurrence)
        return await self.aput(name, fires, template_of(self.hub, self._task(task), args, kwargs))

    set = blocking(aset)

    async def aput(self, name: str, recurrence: Recurrence, template: NewTask) -> ScheduleInfo:
        """`aset` with a recurrence and a template that exist already."""
        check_name(name, SCHEDULE)
        check_kind(recurrence, "recurrence", Recurrence)
        check_kind(template, "template", NewTask)
        engine = self.hub.engine
        answer = await self._ask(
            engine.set_schedule(name, recurrence, template, declared=False, actor=actor(), now=self._now)
        )
        check_readable(answer, name)
        return await self.aget(name)

    put = blocking(aput)

    async def apause(self, name: str) -> bool:
        """Don't fire until resumed; fires missed by then are not caught up. False if it was paused."""
        return await self._change(name, ScheduleState.PAUSED)

    pause = blocking(apause)

    async def aresume(self, name: str) -> bool:
        """Fire again, from now on. False if it was not paused."""
        return await self._change(name, ScheduleState.ACTIVE)

    resume = blocking(aresume)

    async def _change(self, name: str, state: ScheduleState) -> bool:
        check_reference(name, SCHEDULE)
        answer = await self._ask(self.hub.engine.set_schedule_state(name, state, actor=actor(), now=self._now))
        if answer is Changed.UNKNOWN:
            await self._record(name)  # which knows the nearest name
        check_readable(answer, name)
        return answer is Changed.DONE

    async def adelete(self, name: str) -> None:
        """Delete a schedule; its tasks stay. If code declares it, it is back when a worker starts."""
        await self._change(name, ScheduleState.DELETED)

    delete = blocking(adelete)

    async def arun_now(self, name: str) -> Handle[Any]:
        """Enqueue its task now, besides its fires, also if it is paused."""
        record = await self._record(name)
        at_once = structs.replace(record, recurrence=structs.replace(record.recurrence, jitter=0))
        new = task_of(at_once, self.hub.clock.now(), self.hub.new_id())
        new = structs.replace(new, at=None, client=self.hub.client)
        answer = await aenqueue(self.hub, new, Options())
        return self.app._handle(answer.id, new.queue, self.hub.definitions.get(new.name))

    run_now = blocking(arun_now)

    async def aupcoming(self, name: str, count: int = 5) -> Moments:
        """When it fires next, on the clock of its zone, without jitter. Empty if it is paused."""
        check_number(count, "count", 1, PAGE_LIMIT)
        record = await self._record(name)
        if record.paused:
            return []
        try:
            zone = ZoneInfo(record.recurrence.tz)
            fires = [record.next_fire_at, *upcoming(record.recurrence, record.next_fire_at, count - 1)]
        except UNPLANNABLE as error:
            raise InvalidOption(f"schedule {name!r} can't be computed on this machine: {error}.") from error
        return [moment.astimezone(zone) for fire in fires if (moment := when(fire)) is not None]

    upcoming = blocking(aupcoming)

    def _task(self, task: Schedulable) -> Task[..., Any]:
        return self.app.task_named(task) if isinstance(task, str) else self.app._task_of(task)


def check_readable(answer: Changed, name: str) -> None:
    if answer is Changed.UNREADABLE:
        raise Unreadable(
            f"schedule {name!r} can't be read by this version, so it stays as it is. It was damaged, or written by a "
            f"newer Dibs: upgrade, repair its row, or delete it: dibs schedules remove {name}."
        )


def schedule_info(record: ScheduleRecord, codec: Codec, now: Instant) -> ScheduleInfo:
    recurrence, task = record.recurrence, record.task
    same = {name: getattr(recurrence, name) for name in ("cron", "tz", "catch_up", "catch_up_limit", "overlap")}
    return snapshot(
        ScheduleInfo,
        record,
        **same,
        words=describe(recurrence),
        task=task.name,
        queue=task.queue,
        priority=task.spec.priority,
        args=readable(task.args, codec),
        every=None if recurrence.every is None else recurrence.every / SECOND,
        jitter=recurrence.jitter / SECOND,
        next_fire_at=None if record.paused else when(record.next_fire_at),
        stale=record.declared and now - (record.declared_at or 0) > STALE,
    )
