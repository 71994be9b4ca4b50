"""`app.tasks`: find tasks, and act on one or on all that match."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypedDict, Unpack

from msgspec import Struct, structs

from dibs.client.blocking import Admin, blocking
from dibs.client.error_groups import ErrorGroups, grouped
from dibs.client.graph import pages
from dibs.client.info import CANT_CHANGE, HistoryLine, TaskInfo, history_line, ranked_info, task_info, unknown_task
from dibs.client.options import Priority, Span, check_known, check_metadata
from dibs.client.steps import Progress, Steps, step_info
from dibs.core.graph import Rule
from dibs.core.ids import check_id
from dibs.core.options import (
    KEY_LIMIT,
    NAME_LIMIT,
    PAGE_LIMIT,
    check_flag,
    check_kind,
    check_name,
    check_note,
    check_number,
    check_reference,
    check_text,
    is_several,
    nearest,
    shown,
)
from dibs.core.priority import parse_priority
from dibs.core.states import State
from dibs.core.task import Edit, TaskRecord
from dibs.core.times import Instant, duration, instant
from dibs.engines.steps import ActOnAll, query_for
from dibs.engines.values import VISIT_LIMIT, Act, Cancel, Changed, Purge, Query, Replay, UnreadableTask
from dibs.errors import InvalidOption, QueueDraining, Unreadable, WrongState
from dibs.runtime.environment import actor
from dibs.runtime.hub import Hub

__all__ = [
    "Acted",
    "Bulk",
    "Cancelled",
    "Count",
    "Filter",
    "Prerequisite",
    "TaskPage",
    "Tasks",
    "ranked_infos",
    "read_task",
]

BATCH = 500
"""Tasks read at once."""


class Filter(Struct, frozen=True, kw_only=True):
    """Which tasks: all given conditions must hold. `text` is searched in arguments, errors and notes."""

    state: str | Sequence[str] = ()
    """One state, or several: any of them."""
    queue: str | Sequence[str] = ()
    """One queue, or several."""
    name: str | Sequence[str] = ()
    """One task name, or several, in full."""
    priority_min: int | str = 0
    """The lowest priority as submitted, 0 to 100 or a name."""
    priority_max: int | str = 100
    """The highest."""
    created_after: datetime | None = None
    """Enqueued at this time or later."""
    created_before: datetime | None = None
    """Enqueued before this time."""
    ended_after: datetime | None = None
    """Completed, cancelled or dead since this time."""
    ended_before: datetime | None = None
    """Ended before this time."""
    metadata: Mapping[str, Any] = {}
    """Labels that it must have, with these values."""
    key: str | None = None
    """Its idempotency key."""
    worker: str | None = None
    """The worker that runs it, or ran it last."""
    workflow: str | None = None
    """The id of its workflow."""
    tenant: str | None = None
    """Its tenant."""
    partition: str | None = None
    """Its partition."""
    text: str = ""
    """A text that occurs in its arguments, its error or its note."""


class TaskPage(Struct, frozen=True):
    """One page, newest first. `cursor` is for the next page; None: that was all. `visited`: tasks looked at for it."""

    tasks: list[TaskInfo]
    """Newest first."""
    cursor: str | None
    """For `cursor=` of the next page; None: that was all."""
    visited: int = 0
    """How many tasks were looked at for this page."""


class Count(Struct, frozen=True):
    """How many match; `more`: counting stopped after so many rows that there may be more."""

    count: int
    """How many were found."""
    more: bool
    """Whether counting stopped before the end."""

    def __str__(self) -> str:
        return f"{self.count:,} or more" if self.more else f"{self.count:,}"


class Cancelled(StrEnum):
    """What became of a cancel. As a truth value: whether it had any effect."""

    DONE = "cancelled"
    """It had not started."""
    REQUESTED = "asked to stop"
    """It was running: it ends when its function notices, or completes before that."""
    ENDED_BEFORE = "had ended before"
    """There was nothing to cancel."""

    def __bool__(self) -> bool:
        return self is not Cancelled.ENDED_BEFORE


CANCELLED = {
    Changed.DONE: Cancelled.DONE,
    Changed.REQUESTED: Cancelled.REQUESTED,
    Changed.WRONG_STATE: Cancelled.ENDED_BEFORE,
}


class Prerequisite(Struct, frozen=True, kw_only=True):
    """What a task waits for, or waited for if it is no longer open. `name` and `state` are None once it was pruned."""

    id: str
    """The task that is waited for."""
    name: str | None
    """None once it was pruned."""
    state: State | None
    """None once it was pruned."""
    rule: Rule
    """What becomes of the dependent if this one does not complete: cancel, fail or run."""
    is_open: bool
    """Whether it is still waited for."""


class Acted(Struct, frozen=True, omit_defaults=True):
    """What a bulk action did; as a dry run, or if it was not waited for, how many tasks match.

    `step` is the id by which `app.steps` knows it. `more`: counting stopped before the end.
    """

    matched: int
    """Tasks that the act came to or, if it was not waited for, that were counted beforehand."""
    changed: int
    """Those that it changed."""
    dry_run: bool
    """Whether nothing was done."""
    step: str | None = None
    """The id under which `app.steps` knows it."""
    more: bool = False
    """Whether counting stopped before the end."""


class Bulk(TypedDict, total=False):
    """How to act on all that match: only count them (`dry_run`), or not wait for the end (`wait=False`).

    `progress` is called with how far it has come.
    """

    dry_run: bool
    """Only count what matches."""
    wait: bool
    """False: return at once; the leading worker goes on."""
    progress: Progress
    """Called with a `StepInfo` as it goes on."""


class Changes(TypedDict, total=False):
    """What an edit changes; None leaves it as it is."""

    priority: Priority | None
    """0 to 100 or a name."""
    delay: Span | None
    """Seconds from now before which it does not start; 0: it may start now."""
    at: datetime | None
    """The time, with a time zone, before which it does not start."""
    deadline: datetime | Span | None
    """When it should be done, as a time or in seconds from now."""
    expires: datetime | Span | None
    """When it is cancelled if it has not started, as a time or in seconds from now."""
    metadata: Mapping[str, Any] | None
    """Labels, in place of all that it has."""


class Tasks(Admin):
    """Reading and changing tasks."""

    async def aget(self, task_id: str) -> TaskInfo:
        """One task."""
        record = await self._ask(read_record(self.hub, task_id))
        (info,) = await self._ask(ranked_infos(self.hub, [record]))
        return info

    get = blocking(aget)

    async def ahistory(self, task_id: str) -> list[HistoryLine]:
        """What happened to a task besides clean runs, oldest first, the newest 100."""
        wanted = check_reference(task_id, "a task's id")
        entries = await self._ask(self.hub.engine.history(wanted))
        return [history_line(entry) for entry in entries]

    history = blocking(ahistory)

    async def aneeds(self, task_id: str) -> list[Prerequisite]:
        """What a task waits or waited for, in the order given at its enqueue."""
        (edges,) = await self._ask(self.hub.engine.edges([check_reference(task_id, "a task's id")]))
        needs, found = edges.needs, list[TaskRecord | UnreadableTask | None]()
        for start in range(0, len(needs), BATCH):
            found += await self._ask(self.hub.engine.get([need.id for need in needs[start : start + BATCH]]))
        return [
            Prerequisite(
                id=need.id,
                name=None if record is None else record.name,
                state=None if record is None else record.state,
                rule=need.rule,
                is_open=need.is_open,
            )
            for need, record in zip(needs, found, strict=True)
        ]

    needs = blocking(aneeds)

    async def adependents(self, task_id: str, limit: int = 100) -> list[TaskInfo]:
        """Tasks that wait for this one, oldest first."""
        wanted, most = check_reference(task_id, "a task's id"), check_number(limit, "limit", 1, PAGE_LIMIT)
        (edges,) = await self._ask(self.hub.engine.edges([wanted], followers=most))
        found = await self._ask(self.hub.engine.get(edges.followers))
        return [task_info(record, self.hub.codec) for record in found if record is not None]

    dependents = blocking(adependents)

    async def asearch(self, filter: Filter = Filter(), *, limit: int = 50, cursor: str | None = None) -> TaskPage:
        """A page of matching tasks, newest first. It may be short and still have a cursor: each search is bounded."""
        query = make_query(filter, check_number(limit, "limit", 1, PAGE_LIMIT), cursor)
        page = await self._ask(self.hub.engine.search(query))
        return TaskPage(await self._ask(ranked_infos(self.hub, page.tasks)), page.cursor, page.visited)

    search = blocking(asearch)

    async def acount(self, filter: Filter = Filter()) -> Count:
        """How many match: exact if only states and queues are asked for, else in a bounded number of rows."""
        return await self._ask(self._count(make_query(filter, BATCH, None)))

    async def _count(self, query: Query) -> Count:
        if self._counts_tell(query):
            return Count(await self._counted(query), False)
        found, visited, more = 0, 0, False
        async for page in pages(self.hub.engine, query):
            found, visited, more = found + len(page.tasks), visited + page.visited, page.cursor is not None
            if visited >= VISIT_LIMIT:
                break
        return Count(found, more)

    def _counts_tell(self, query: Query) -> bool:
        """Whether only states, queues and names are asked for, and tasks created by now, which all are."""
        rest = structs.replace(query, states=(), queues=(), names=(), created_before=None, limit=BATCH)
        is_open = query.created_before is None or query.created_before > self.hub.clock.now()
        return is_open and rest == Query(limit=BATCH)

    async def _counted(self, query: Query) -> int:
        kinds = (await self.hub.engine.counts()).kinds
        return sum(
            n
            for kind in kinds
            if (not query.queues or kind.queue in query.queues) and (not query.names or kind.name in query.names)
            for state, n in kind.states.items()
            if not query.states or state in query.states
        )

    count = blocking(acount)

    async def aerror_groups(self, filter: Filter = Filter()) -> ErrorGroups:
        """Dead tasks that match, by task, reason and error, the most frequent first; the newest 20,000 are read."""
        return await grouped(self._newest(structs.replace(filter, state=State.DEAD)))

    async def _newest(self, filter: Filter) -> AsyncIterator[TaskInfo]:
        cursor: str | None = None
        while True:
            page = await self.asearch(filter, limit=BATCH, cursor=cursor)
            for info in page.tasks:
                yield info
            cursor = page.cursor
            if cursor is None:
                return

    error_groups = blocking(aerror_groups)

    async def acancel(self, task_id: str, reason: str = "") -> Cancelled:
        """End a waiting task, ask a running one to stop: "cancelled" or "asked to stop".

        "had ended before" is false.
        """
        wanted, note = check_reference(task_id, "a task's id"), check_note(reason, "reason")
        return CANCELLED[await self._act(Cancel(wanted, note))]

    cancel = blocking(acancel)

    async def _act(self, act: Act, wrong_state: str | None = None) -> Changed:
        """The answer to an act on one task, or its error; `wrong_state` says what is wrong with the task's state."""
        (answer,) = await self._ask(self.hub.engine.act([act], actor=actor(), now=self._now))
        if answer is Changed.UNKNOWN:
            raise unknown_task(act.id)
        if answer is Changed.UNREADABLE:
            raise Unreadable(CANT_CHANGE.format(act.id))
        if answer is Changed.WRONG_STATE and wrong_state is not None:
            raise WrongState(f"task {act.id} {wrong_state}.")
        if answer is Changed.DRAINING:
            raise QueueDraining(f"task {act.id} can't be replayed: its queue is draining.")
        return answer

    async def aedit(self, task_id: str, **changes: Unpack[Changes]) -> bool:
        """Change a waiting task; False if nothing changed."""
        edit = make_edit(check_reference(task_id, "a task's id"), changes, self.hub.clock.now())
        return await self._act(edit, "is not waiting: only waiting tasks can be edited") is Changed.DONE

    edit = blocking(aedit)

    async def areplay(self, task_id: str, *, queue: str | None = None, reset: bool = True) -> bool:
        """Run a dead task again; `reset=False` keeps its count of attempts and losses."""
        wanted, into = check_reference(task_id, "a task's id"), checked_queue(queue)
        act = Replay(wanted, into, check_flag(reset, "reset"))
        return await self._act(act, "is not dead: only dead tasks can be replayed") is Changed.DONE

    replay = blocking(areplay)

    async def apurge(self, task_id: str) -> bool:
        """Delete an ended task for good, or one that can't be read."""
        wanted = check_reference(task_id, "a task's id")
        return await self._act(Purge(wanted), "has not ended: cancel it first") is Changed.DONE

    purge = blocking(apurge)

    async def acancel_matching(self, filter: Filter, *, reason: str = "", **how: Unpack[Bulk]) -> Acted:
        """Cancel all unfinished tasks that match, part by part. If this is interrupted, the leading worker goes on."""
        return await self._act_on_all(filter, Cancel("", check_note(reason, "reason")), **how)

    cancel_matching = blocking(acancel_matching)

    async def aedit_matching(
        self,
        filter: Filter,
        *,
        dry_run: bool = False,
        wait: bool = True,
        progress: Progress | None = None,
        **changes: Unpack[Changes],
    ) -> Acted:
        """Change all waiting tasks that match as `edit` does one, like `cancel_matching`."""
        edit = make_edit("", changes, self.hub.clock.now())
        if edit == Edit(id=""):
            raise InvalidOption(f"nothing to change: give one of {', '.join(Changes.__annotations__)}.")
        return await self._act_on_all(filter, edit, dry_run, wait, progress)

    edit_matching = blocking(aedit_matching)

    async def areplay_matching(
        self, filter: Filter, *, queue: str | None = None, reset: bool = True, **how: Unpack[Bulk]
    ) -> Acted:
        """Replay all dead tasks that match, like `cancel_matching`. Those that die again are left alone."""
        return await self._act_on_all(filter, Replay("", checked_queue(queue), check_flag(reset, "reset")), **how)

    replay_matching = blocking(areplay_matching)

    async def apurge_matching(self, filter: Filter, **how: Unpack[Bulk]) -> Acted:
        """Delete all ended tasks that match, like `cancel_matching`."""
        return await self._act_on_all(filter, Purge(""), **how)

    purge_matching = blocking(apurge_matching)

    async def _act_on_all(
        self, filter: Filter, act: ActOnAll, dry_run: bool = False, wait: bool = True, progress: Progress | None = None
    ) -> Acted:
        """Act on what matches now; tasks created later are left alone."""
        check_flag(wait, "wait")
        query = make_query(filter, BATCH, None)
        if check_flag(dry_run, "dry_run"):
            wanted = query_for(act, query, self.hub.clock.now())
            found = await self._ask(self._count(wanted)) if wanted.states else Count(0, False)
            return Acted(found.count, 0, dry_run, more=found.more)
        asked = self.hub.engine.act_on(self.hub.new_id(), query, act, actor=actor(), now=self._now)
        step = step_info(await self._ask(asked))
        if not wait:
            return Acted(step.matched, step.changed, dry_run, step.id, step.more)
        done = await Steps(self.hub).afinish(step.id, progress)
        return Acted(done.visited, done.changed, dry_run, done.id)


async def read_record(hub: Hub, task_id: str) -> TaskRecord | UnreadableTask:
    wanted = check_reference(task_id, "a task's id")
    (record,) = await hub.engine.get([wanted])
    if record is None:
        raise unknown_task(wanted)
    return record


async def read_task(hub: Hub, task_id: str) -> TaskInfo:
    """One task without its effective priority, for which its queue must be read too."""
    return task_info(await read_record(hub, task_id), hub.codec)


async def ranked_infos(hub: Hub, records: Sequence[TaskRecord | UnreadableTask]) -> list[TaskInfo]:
    """The public form of tasks, with effective priorities. Queues are read only if a task is pending."""
    is_pending = any(record.state is State.PENDING for record in records)
    queues = {queue.name: queue for queue in await hub.engine.queues()} if is_pending else {}
    now = hub.clock.now()
    return [ranked_info(record, hub.codec, queues, now) for record in records]


def make_edit(task_id: str, changes: Changes, now: Instant) -> Edit:
    """The stored form of changes, checked."""
    check_known(changes, Changes.__annotations__, "an edit")
    priority, metadata = changes.get("priority"), changes.get("metadata")
    deadline, expires = changes.get("deadline"), changes.get("expires")
    return Edit(
        id=task_id,
        priority=None if priority is None else parse_priority(priority),
        due_at=due_at(changes.get("delay"), changes.get("at"), now),
        deadline=moment(deadline, "deadline", now),
        expires_at=moment(expires, "expires", now),
        metadata=None if metadata is None else check_metadata(metadata),
    )


def moment(value: datetime | Span | None, option: str, now: Instant) -> Instant | None:
    """A time, or seconds from now."""
    if value is None:
        return None
    return instant(value, option) if isinstance(value, datetime) else now + duration(value, option)


def due_at(delay: Span | None, at: datetime | None, now: Instant) -> Instant | None:
    if delay is not None and at is not None:
        raise InvalidOption("delay and at both say when: give one of them.")
    if delay is not None:
        return now + duration(delay, "delay")
    return None if at is None else instant(at, "at")


def checked_queue(queue: object) -> str | None:
    return None if queue is None else check_name(queue, "queue")


def make_query(filter: Filter, limit: int, cursor: str | None) -> Query:
    """The stored form of a filter, checked."""
    check_kind(filter, "a filter", Filter)
    return Query(
        states=tuple(parse_state(state) for state in one_or_more(filter.state, "state")),
        queues=one_or_more(filter.queue, "queue"),
        names=one_or_more(filter.name, "name"),
        priority_min=parse_priority(filter.priority_min),
        priority_max=parse_priority(filter.priority_max),
        created_after=None if filter.created_after is None else instant(filter.created_after, "created_after"),
        created_before=None if filter.created_before is None else instant(filter.created_before, "created_before"),
        ended_after=None if filter.ended_after is None else instant(filter.ended_after, "ended_after"),
        ended_before=None if filter.ended_before is None else instant(filter.ended_before, "ended_before"),
        metadata=check_metadata(filter.metadata),
        key=None if filter.key is None else check_text(filter.key, "key", KEY_LIMIT),
        worker=None if filter.worker is None else check_reference(filter.worker, "worker"),
        workflow=None if filter.workflow is None else check_reference(filter.workflow, "workflow"),
        tenant=None if filter.tenant is None else check_text(filter.tenant, "tenant", NAME_LIMIT),
        partition=None if filter.partition is None else check_text(filter.partition, "partition", NAME_LIMIT),
        text=check_note(filter.text, "text"),
        limit=limit,
        cursor=None if cursor is None else check_cursor(cursor),
    )


def check_cursor(cursor: object) -> str:
    """A cursor: the id of the last task that was read."""
    try:
        return check_id(cursor)
    except InvalidOption:
        raise InvalidOption(f"cursor must be one that an earlier page gave, not {shown(cursor)}.") from None


def one_or_more(value: object, what: str) -> tuple[str, ...]:
    """A text, or several."""
    if is_several(value) and not value and value != ():
        raise InvalidOption(f"{what} of a filter names nothing, and would mean everything: leave it out for all tasks.")
    return tuple(check_reference(each, what) for each in (value if is_several(value) else (value,)))


def parse_state(value: str) -> State:
    if value not in list(State):
        raise InvalidOption(f"no state is called {shown(value)}.{nearest(value, State)} States: {', '.join(State)}.")
    return State(value)
