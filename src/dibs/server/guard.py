"""An engine as one caller may use it: every verb is authorised here, whatever route it came by.

Before a verb: its scope, its queues, who acts, for which client, as which worker, and whether a lease is the caller's.
After it: tasks of other queues are left out, and payloads are redacted for callers that may not see them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from msgspec import Struct, structs

from dibs.core.task import Lease, NewTask, Outcome, Settlement, TaskRecord
from dibs.engines.base import Engine, Subscription
from dibs.engines.events import Event
from dibs.engines.http.protocol import VERBS, Scope, Verb
from dibs.engines.topics import TopicKind, parse_topic, worker_topic
from dibs.engines.values import (
    CancelWorkflow,
    Claimed,
    EnqueueAnswer,
    ExtendAnswer,
    ExtendOutcome,
    Query,
    Replay,
    ReplayWorkflow,
    SettleAnswer,
    SettleOutcome,
    UnreadableTask,
)
from dibs.errors import Closed, NotAllowed, UnknownSchedule, UnknownTask
from dibs.runtime.coalesce import Coalescer
from dibs.runtime.hub import Hub
from dibs.server.caller import Caller
from dibs.server.visibility import AFTER, is_step_of, shown_event

__all__ = ["BEFORE", "RUN", "UNGUARDED", "Guard", "Owners", "guarded_hub"]

Before = Callable[["Guard", Any], Awaitable[Any]]

MOST_OWNERS = 100_000
TOPICS: dict[str, Scope] = {
    TopicKind.WORK: Scope.CONSUME,
    TopicKind.WORKER: Scope.CONSUME,
    TopicKind.ROOM: Scope.PRODUCE,
    TopicKind.ENDED: Scope.READ,
    TopicKind.EVENTS: Scope.READ,
}
"""What a caller needs to be woken by a topic."""
NOT_YOURS = "another worker holds this lease"


class Owners:
    """Which worker was given a lease, for as long as it is remembered; the store knows it for ever."""

    def __init__(self) -> None:
        self._by_lease: OrderedDict[Lease, str] = OrderedDict()

    def add(self, claimed: Claimed, worker: str) -> None:
        for task in claimed.tasks:
            self._by_lease[Lease(task.id, task.lease)] = worker
        while len(self._by_lease) > MOST_OWNERS:
            self._by_lease.popitem(last=False)

    def of(self, lease: Lease) -> str | None:
        return self._by_lease.get(lease)


class Listening:
    """A subscription on the engine's loop, for callers on another one."""

    def __init__(self, hub: Hub, subscription: Subscription) -> None:
        self._hub = hub
        self._subscription = subscription

    async def wait(self, timeout: float) -> bool:
        return await self._hub.runner.arun(self._subscription.wait(timeout))

    def close(self) -> None:
        with suppress(Closed):
            self._hub.runner.call_soon(self._subscription.close)


class Guard:
    """The engine of a hub, for one caller. It has the verbs of the protocol, and can be subscribed to."""

    def __init__(self, hub: Hub, caller: Caller, owners: Owners) -> None:
        self.hub = hub
        self.caller = caller
        self.owners = owners
        self.features = hub.features
        for verb in VERBS.values():
            setattr(self, verb.name, partial(self._called, verb))

    async def _called(self, verb: Verb, *values: Any, now: object = None, **given: Any) -> Any:
        """As the seam has it. `now` is the server's own."""
        return await self.run(verb, verb.arguments(*values, **given))

    async def run(self, verb: Verb, given: Any) -> Any:
        """One verb with its arguments, if this caller may."""
        self.caller.require(verb.scope)
        before, after = BEFORE.get(verb.name), AFTER.get(verb.name)
        if before is not None:
            given = await before(self, given)
        run = RUN.get(verb.name)
        answer = await (self.ask(verb.name, given) if run is None else run(self, given))
        return answer if after is None else after(self.caller, answer)

    async def ask(self, verb: str, given: Struct) -> Any:
        """Ask the engine itself."""
        arguments = {name: getattr(given, name) for name in given.__struct_fields__}
        if verb in TIMED:
            arguments["now"] = self.hub.clock.store_now()
        return await getattr(self.hub.engine, verb)(**arguments)

    async def call(self, name: str, *values: Any) -> Any:
        """A verb, from whatever loop."""
        return await self.hub.runner.arun(self.run(VERBS[name], VERBS[name].arguments(*values)))

    async def release(self, leases: Sequence[Lease]) -> None:
        """Hand tasks back whose worker was gone before it was told."""
        note = "the worker was gone before it was told"
        await self.call("settle", [Settlement(lease=each, outcome=Outcome.RELEASED, note=note) for each in leases])

    # What is not on the wire.

    def subscribe(self, topics: Collection[str]) -> Subscription:
        """As the seam has it: on the engine's loop."""
        return self.hub.engine.subscribe([self.topic(topic) for topic in topics])

    async def listen(self, topics: Collection[str]) -> Subscription:
        """The same from whatever loop."""

        async def begun() -> Subscription:
            return self.subscribe(topics)

        return Listening(self.hub, await self.hub.runner.arun(begun()))

    def topic(self, topic: str) -> str:
        """A topic as the store knows it. A worker hears of itself only, and a limited caller of its queues."""
        kind, about = parse_topic(topic)
        self.caller.require(TOPICS.get(kind))
        if kind == TopicKind.WORKER:
            return worker_topic(self.caller.worker(about))
        if about:
            self.caller.require_queues([about])
        return topic

    # What is asked to decide.

    async def known(self, ids: Sequence[str]) -> list[TaskRecord | UnreadableTask | None]:
        """Tasks of the caller's queues."""
        found = await self.hub.engine.get(ids)
        return [None if each is None or not self.caller.serves(each.queue) else each for each in found]

    async def owned(self, leases: Sequence[Lease], worker: str | None = None) -> list[bool]:
        """Whether each of these leases was given to this caller, or to this worker of it.

        One that nobody is known to hold is for the engine to refuse.
        """
        if not self.caller.name and worker is None:
            return [True] * len(leases)
        unknown = [lease for lease in leases if self.owners.of(lease) is None]
        records = await self.hub.runner.arun(self.hub.engine.get([lease.id for lease in unknown])) if unknown else []
        found = {
            lease: record.worker
            for lease, record in zip(unknown, records, strict=True)
            if isinstance(record, TaskRecord) and record.lease == lease.number
        }
        owners = [self.owners.of(lease) or found.get(lease) for lease in leases]
        if worker is not None:
            return [owner is None or owner == self.caller.worker(worker) for owner in owners]
        return [owner is None or self.caller.owns(owner) for owner in owners]

    def narrowed(self, query: Query) -> Query:
        """A search in the caller's queues."""
        if query.text and not self.caller.sees_payloads:
            raise NotAllowed(f"the token {self.caller.name!r} may not search in payloads: it needs the scope payloads.")
        if self.caller.queues is None:
            return query
        self.caller.require_queues(query.queues)
        return structs.replace(query, queues=query.queues or tuple(sorted(self.caller.queues)))

    def shown_event(self, event: Event) -> Event:
        return shown_event(self.caller, event)


# Before: the arguments as they may be used.


async def before_enqueue(guard: Guard, given: Any) -> Any:
    guard.caller.require_queues(task.queue for task in given.tasks)
    await check_needs(guard, given.tasks, None if given.workflow is None else given.workflow.id)
    return structs.replace(given, tasks=[named(guard, task) for task in given.tasks])


async def check_needs(guard: Guard, tasks: Sequence[NewTask], workflow: str | None = None) -> None:
    """A limited caller's tasks wait for tasks of its own queues only, and join no workflow but the one they begin."""
    if guard.caller.queues is None:
        return
    if any(task.spec.workflow not in (None, workflow) for task in tasks):
        guard.caller.require_all_queues()
    own = {task.id for task in tasks}
    needs = sorted({edge.id for task in tasks for edge in task.after} - own)
    for task_id, found in zip(needs, await guard.known(needs) if needs else [], strict=True):
        if found is None:
            raise UnknownTask(f"no task has the id {task_id}.")


def named(guard: Guard, task: NewTask) -> NewTask:
    """A token's name is the client that `enqueue_rate` counts."""
    return structs.replace(task, client=guard.caller.name) if guard.caller.name else task


async def before_claim(guard: Guard, given: Any) -> Any:
    request = given.request
    guard.caller.require_queues(request.queues)
    return structs.replace(given, request=structs.replace(request, worker=guard.caller.worker(request.worker)))


async def before_beat(guard: Guard, given: Any) -> Any:
    beat = given.beat
    guard.caller.require_queues(beat.queues)
    if not guard.caller.name:
        return given
    worker = guard.caller.worker(beat.id)
    minutes = [structs.replace(minute, worker=worker) for minute in beat.minutes if guard.caller.serves(minute.queue)]
    return structs.replace(given, beat=structs.replace(beat, id=worker, minutes=minutes))


async def before_leave(guard: Guard, given: Any) -> Any:
    return structs.replace(given, worker=guard.caller.worker(given.worker))


async def before_history(guard: Guard, given: Any) -> Any:
    if guard.caller.queues is not None and (await guard.known([given.task_id]))[0] is None:
        raise UnknownTask(f"no task has the id {given.task_id}.")
    return given


async def before_edges(guard: Guard, given: Any) -> Any:
    if guard.caller.queues is not None and None in await guard.known(given.ids):
        raise UnknownTask("there is no such task.")
    return given


async def before_search(guard: Guard, given: Any) -> Any:
    return structs.replace(given, query=guard.narrowed(given.query))


async def of_queue(guard: Guard, given: Any) -> Any:
    guard.caller.require_queues([given.queue])
    return given


async def of_named_queue(guard: Guard, given: Any) -> Any:
    guard.caller.require_queues([given.name])
    return acting(guard, given)


async def of_all_queues(guard: Guard, given: Any) -> Any:
    guard.caller.require_all_queues()
    return acting(guard, given) if "actor" in given.__struct_fields__ else given


def acting(guard: Guard, given: Any) -> Any:
    """Who acts: a token's name."""
    return structs.replace(given, actor=f"token {guard.caller.name}") if guard.caller.name else given


async def before_events(guard: Guard, given: Any) -> Any:
    if guard.caller.queues is None:
        return given
    request = given.request
    guard.caller.require_queues(request.queues)
    queues = request.queues or tuple(sorted(guard.caller.queues))
    return structs.replace(given, request=structs.replace(request, queues=queues))


async def before_act(guard: Guard, given: Any) -> Any:
    for act in given.acts:
        if isinstance(act, CancelWorkflow | ReplayWorkflow):
            guard.caller.require_all_queues()
        if isinstance(act, Replay) and act.queue is not None:
            guard.caller.require_queues([act.queue])
    if guard.caller.queues is not None:
        for act, task in zip(given.acts, await guard.known([act.id for act in given.acts]), strict=True):
            if task is None:
                raise UnknownTask(f"no task has the id {act.id}.")
    return acting(guard, given)


async def before_act_on(guard: Guard, given: Any) -> Any:
    if isinstance(given.act, Replay) and given.act.queue is not None:
        guard.caller.require_queues([given.act.queue])
    return acting(guard, structs.replace(given, query=guard.narrowed(given.query)))


async def before_advance(guard: Guard, given: Any) -> Any:
    if guard.caller.queues is not None:
        for step in await guard.hub.engine.steps([given.step]):
            if not is_step_of(guard.caller, step):
                raise NotAllowed(f"the token {guard.caller.name!r} may not go on with this step.")
    return given


async def before_set_schedule(guard: Guard, given: Any) -> Any:
    guard.caller.require_queues([given.task.queue])
    return await before_set_schedule_state(guard, structs.replace(given, task=named(guard, given.task)))


async def before_set_schedule_state(guard: Guard, given: Any) -> Any:
    if guard.caller.queues is not None:
        for schedule in await guard.hub.engine.schedules():
            if schedule.name == given.name and not guard.caller.serves(schedule.task.queue):
                raise UnknownSchedule(f"no schedule is called {given.name!r}.")
    return acting(guard, given)


BEFORE: dict[str, Before] = {
    "enqueue": before_enqueue,
    "claim": before_claim,
    "beat": before_beat,
    "leave": before_leave,
    "history": before_history,
    "edges": before_edges,
    "search": before_search,
    "peek": of_queue,
    "standing": of_queue,
    "workflows": of_all_queues,
    "audit": of_all_queues,
    "events": before_events,
    "act": before_act,
    "act_on": before_act_on,
    "advance": before_advance,
    "set_queue": of_named_queue,
    "set_queue_state": of_named_queue,
    "delete_queue": of_named_queue,
    "set_schedule": before_set_schedule,
    "set_schedule_state": before_set_schedule_state,
    "set_worker_state": of_all_queues,
    "check": of_all_queues,
}


# Instead of asking the engine: lone items of many callers become one batch, and foreign leases are refused.


async def run_enqueue(guard: Guard, given: Any) -> list[EnqueueAnswer]:
    if given.atomic or given.workflow is not None or len(given.tasks) != 1:
        return cast(list[EnqueueAnswer], await guard.ask("enqueue", given))
    return [await guard.hub.enqueuer.submit(given.tasks[0])]


async def run_claim(guard: Guard, given: Any) -> Claimed:
    claimed: Claimed = await guard.ask("claim", given)
    guard.owners.add(claimed, given.request.worker)
    return claimed


async def run_settle(guard: Guard, given: Any) -> list[SettleAnswer]:
    owned = await guard.owned([each.lease for each in given.settlements])
    mine = [each for each, is_mine in zip(given.settlements, owned, strict=True) if is_mine]
    if len(mine) == 1:
        answers = iter([await guard.hub.settler.submit(mine[0])])
    else:
        answers = iter(await guard.ask("settle", structs.replace(given, settlements=mine)) if mine else [])
    return [next(answers) if is_mine else SettleAnswer(SettleOutcome.REFUSED) for is_mine in owned]


async def run_extend(guard: Guard, given: Any) -> list[ExtendAnswer]:
    owned = await guard.owned([each.lease for each in given.extensions])
    mine = [each for each, is_mine in zip(given.extensions, owned, strict=True) if is_mine]
    answers = iter(await guard.ask("extend", structs.replace(given, extensions=mine)) if mine else [])
    return [next(answers) if is_mine else ExtendAnswer(ExtendOutcome.LOST, reason=NOT_YOURS) for is_mine in owned]


RUN: dict[str, Callable[[Guard, Any], Awaitable[Any]]] = {
    "enqueue": run_enqueue,
    "claim": run_claim,
    "settle": run_settle,
    "extend": run_extend,
}


UNGUARDED = frozenset({"about"})
"""What says nothing of queues or tasks. Everything else is in one of the tables: a test counts."""

TIMED = frozenset(name for name in VERBS if "now" in getattr(Engine, name).__annotations__)


# The hub of a caller.


class GuardedEnqueuer:
    """The group commit of all callers, behind the guard of one."""

    def __init__(self, guard: Guard, enqueuer: Coalescer[NewTask, EnqueueAnswer]) -> None:
        self._guard = guard
        self._enqueuer = enqueuer

    async def submit(self, task: NewTask) -> EnqueueAnswer:
        self._guard.caller.require(Scope.PRODUCE)
        self._guard.caller.require_queues([task.queue])
        await check_needs(self._guard, [task])
        return await self._enqueuer.submit(named(self._guard, task))


class GuardedSettler:
    """The same for settlements."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def submit(self, settlement: Settlement) -> SettleAnswer:
        verb = VERBS["settle"]
        answers: list[SettleAnswer] = await self._guard.run(verb, verb.arguments([settlement]))
        return answers[0]


def guarded_hub(hub: Hub, caller: Caller, owners: Owners) -> Hub:
    """What a caller may do with an app."""
    guard = Guard(hub, caller, owners)
    client = caller.name or hub.client
    return hub.seen_through(cast(Engine, guard), client, GuardedEnqueuer(guard, hub.enqueuer), GuardedSettler(guard))
