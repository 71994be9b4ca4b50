"""Calls that change something, at least one per verb, each with what it and its repeat must answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from msgspec import Struct, structs

from dibs.core.policy import TERM
from dibs.core.recurrence import Recurrence
from dibs.core.schedules import ScheduleState, fire_id
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import Edit, LeasedTask, NewTask, Outcome, QueueState, Settlement, WorkerState
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.base import Engine
from dibs.engines.figures import Minute
from dibs.engines.values import (
    Act,
    Cancel,
    CancelWorkflow,
    Changed,
    EnqueueOutcome,
    ExtendOutcome,
    Extension,
    NewWorkflow,
    Purge,
    Query,
    Replay,
    ReplayWorkflow,
    SettleOutcome,
)
from dibs.testing.conformance.harness import Harness, edges, lease_of

__all__ = ["CALLS", "Call", "Prepare"]


class Call(Struct, frozen=True):
    """A call as its caller makes it and, if it has had no answer, repeats it: `send(engine, is_repeat)`.

    What it gives is the part of the answer that the seam promises. `first` is that of the call that takes effect,
    `again` that of every later one.
    """

    verb: str
    send: Callable[[Engine, bool], Coroutine[Any, Any, object]]
    first: object
    again: object


Prepare = Callable[[Harness, str], Awaitable[Call]]
"""Prepares a store for a call. The name is for its queue, worker and schedule: none that exists yet."""


async def start(harness: Harness, name: str) -> LeasedTask:
    """A running task in a queue of its own, whose worker has the same name."""
    await harness.add(queue=name)
    (task,) = await harness.claim(queues=(name,), worker=name)
    return task


async def enqueue(harness: Harness, name: str) -> Call:
    tasks = [harness.new(queue=name, key=name), harness.new(queue=name, delay=HOUR)]
    tasks.append(harness.new(queue=name, after=edges(tasks[0].id)))

    async def send(engine: Engine, _: bool) -> object:
        return [answer.outcome for answer in await engine.enqueue(tasks, now=harness.now)]

    return Call("enqueue", send, [EnqueueOutcome.ENQUEUED] * 3, [EnqueueOutcome.EXISTS] * 3)


async def enqueue_workflow(harness: Harness, name: str) -> Call:
    workflow = NewWorkflow(harness.new_id(), name)
    tasks = [harness.new(queue=name, workflow=workflow.id) for _ in range(2)]

    async def send(engine: Engine, _: bool) -> object:
        answers = await engine.enqueue(tasks, atomic=True, workflow=workflow, now=harness.now)
        return [answer.outcome for answer in answers]

    return Call("enqueue", send, [EnqueueOutcome.ENQUEUED] * 2, [EnqueueOutcome.EXISTS] * 2)


async def claim(harness: Harness, name: str) -> Call:
    ids = await harness.add_many(2, queue=name)
    request = harness.request(2, queues=(name,), worker=name)

    async def send(engine: Engine, is_repeat: bool) -> object:
        claimed = await engine.claim(structs.replace(request, repeat=is_repeat), now=harness.now)
        return [(task.id, leases.setdefault(task.id, task.lease) == task.lease) for task in claimed.tasks]

    leases: dict[str, int] = {}
    same = [(task_id, True) for task_id in ids]
    return Call("claim", send, same, same)


async def claim_limited(harness: Harness, name: str) -> Call:
    await harness.set_queue(name, max_concurrent=2, per_partition=1)
    ids = [await harness.add(queue=name, partition=partition) for partition in "aab"]
    request = harness.request(3, queues=(name,), worker=name)

    async def send(engine: Engine, is_repeat: bool) -> object:
        claimed = await engine.claim(structs.replace(request, repeat=is_repeat), now=harness.now)
        return [task.id for task in claimed.tasks]

    return Call("claim", send, [ids[0], ids[2]], [ids[0], ids[2]])


async def extend(harness: Harness, name: str) -> Call:
    task = await start(harness, name)
    extension = Extension(lease_of(task), by=HOUR, progress=0.5, message="half")

    async def send(engine: Engine, _: bool) -> object:
        return [(answer.outcome, answer.expires_at) for answer in await engine.extend([extension], now=harness.now)]

    held = [(ExtendOutcome.HELD, harness.now + HOUR)]
    return Call("extend", send, held, held)


def settled(outcome: Outcome, state: State) -> Prepare:
    async def settle(harness: Harness, name: str) -> Call:
        task = await start(harness, name)
        await harness.add(queue=name, after=edges(task.id))
        settlement = Settlement(lease=lease_of(task), outcome=outcome, delay=HOUR)

        async def send(engine: Engine, _: bool) -> object:
            return [(answer.outcome, answer.state) for answer in await engine.settle([settlement], now=harness.now)]

        return Call("settle", send, [(SettleOutcome.DONE, state)], [(SettleOutcome.ALREADY, state)])

    return settle


async def beat(harness: Harness, name: str) -> Call:
    minute = Minute(minute=harness.now // MINUTE, worker=name, queue=name, tier="high", completed=1)
    sign = harness.new_beat(name, queues=(name,), minutes=[minute])

    async def send(engine: Engine, _: bool) -> object:
        return await engine.beat(sign, now=harness.now)

    return Call("beat", send, WorkerState.ACTIVE, WorkerState.ACTIVE)


async def leave(harness: Harness, name: str) -> Call:
    await harness.beat(name)

    async def send(engine: Engine, _: bool) -> object:
        await engine.leave(name, now=harness.now)
        return None

    return Call("leave", send, None, None)


def acting(act: Act, harness: Harness, first: Changed, again: Changed) -> Call:
    async def send(engine: Engine, _: bool) -> object:
        return await engine.act([act], actor="ada", now=harness.now)

    return Call("act", send, [first], [again])


async def act_cancel(harness: Harness, name: str) -> Call:
    task_id = await harness.add(queue=name)
    return acting(Cancel(task_id), harness, Changed.DONE, Changed.WRONG_STATE)


async def act_cancel_running(harness: Harness, name: str) -> Call:
    task = await start(harness, name)
    return acting(Cancel(task.id), harness, Changed.REQUESTED, Changed.REQUESTED)


async def act_edit(harness: Harness, name: str) -> Call:
    task_id = await harness.add(queue=name)
    return acting(Edit(id=task_id, priority=90), harness, Changed.DONE, Changed.UNCHANGED)


async def act_replay(harness: Harness, name: str) -> Call:
    task = await start(harness, name)
    await harness.settle(task, Outcome.PERMANENT)
    return acting(Replay(task.id), harness, Changed.DONE, Changed.WRONG_STATE)


async def act_purge(harness: Harness, name: str) -> Call:
    task = await start(harness, name)
    await harness.settle(task)
    return acting(Purge(task.id), harness, Changed.DONE, Changed.UNKNOWN)


async def act_cancel_workflow(harness: Harness, name: str) -> Call:
    workflow = await harness.begin(harness.new(queue=name), harness.new(queue=name))
    return acting(CancelWorkflow(workflow), harness, Changed.DONE, Changed.UNCHANGED)


async def act_replay_workflow(harness: Harness, name: str) -> Call:
    first = harness.new(queue=name)
    workflow = await harness.begin(first, harness.new(queue=name, after=edges(first.id)))
    (task,) = await harness.claim(queues=(name,), worker=name)
    await harness.settle(task, Outcome.PERMANENT)
    return acting(ReplayWorkflow(workflow), harness, Changed.DONE, Changed.UNCHANGED)


async def set_queue(harness: Harness, name: str) -> Call:
    await harness.add(queue=name, priority=10)
    settings = QueueSettings(version=1, max_depth=9)

    async def send(engine: Engine, _: bool) -> object:
        record = await engine.set_queue(name, settings, expected=1, actor="ada", now=harness.now)
        return record and (record.settings.version, record.settings.max_depth)

    return Call("set_queue", send, (2, 9), (2, 9))


async def set_queue_state(harness: Harness, name: str) -> Call:
    await harness.add(queue=name)

    async def send(engine: Engine, _: bool) -> object:
        return await engine.set_queue_state(name, QueueState.PAUSED, actor="ada", now=harness.now)

    return Call("set_queue_state", send, Changed.DONE, Changed.UNCHANGED)


async def delete_queue(harness: Harness, name: str) -> Call:
    await harness.add_many(2, queue=name)

    async def send(engine: Engine, _: bool) -> object:
        return await engine.delete_queue(name, force=True, actor="ada", now=harness.now)

    return Call("delete_queue", send, Changed.DONE, Changed.UNKNOWN)


def hourly(name: str) -> tuple[str, Recurrence, NewTask]:
    return name, Recurrence(every=HOUR), NewTask(id="", queue=name, name="report")


async def set_schedule(harness: Harness, name: str) -> Call:
    async def send(engine: Engine, _: bool) -> object:
        return await engine.set_schedule(*hourly(name), declared=True, actor="ada", now=harness.now)

    return Call("set_schedule", send, Changed.DONE, Changed.UNCHANGED)


async def set_schedule_state(harness: Harness, name: str) -> Call:
    await harness.engine.set_schedule(*hourly(name), declared=False, now=harness.now)

    async def send(engine: Engine, _: bool) -> object:
        return await engine.set_schedule_state(name, ScheduleState.PAUSED, actor="ada", now=harness.now)

    return Call("set_schedule_state", send, Changed.DONE, Changed.UNCHANGED)


async def set_worker_state(harness: Harness, name: str) -> Call:
    await harness.beat(name)

    async def send(engine: Engine, _: bool) -> object:
        return await engine.set_worker_state(name, WorkerState.PAUSED, actor="ada", now=harness.now)

    return Call("set_worker_state", send, Changed.DONE, Changed.UNCHANGED)


async def rescue(harness: Harness, name: str) -> Call:
    task = await start(harness, name)
    harness.later(HOUR)

    async def send(engine: Engine, _: bool) -> object:
        return task.id in (await engine.rescue(now=harness.now)).ids

    return Call("rescue", send, True, False)


async def fire(harness: Harness, name: str) -> Call:
    await harness.engine.set_schedule(*hourly(name), declared=False, now=harness.now)
    (schedule,) = [each for each in await harness.engine.schedules() if each.name == name]
    harness.now = max(harness.now, schedule.next_fire_at)
    own = fire_id(name, schedule.next_fire_at)

    async def send(engine: Engine, _: bool) -> object:
        return own in (await engine.fire(now=harness.now)).tasks

    return Call("fire", send, True, False)


async def lead(harness: Harness, name: str) -> Call:
    harness.later(TERM)

    async def send(engine: Engine, _: bool) -> object:
        term = await engine.lead(name, now=harness.now)
        return term and (term.worker, term.expires_at)

    return Call("lead", send, (name, harness.now + TERM), (name, harness.now + TERM))


async def resign(harness: Harness, name: str) -> Call:
    harness.later(TERM)
    term = await harness.lead(name)

    async def send(engine: Engine, _: bool) -> object:
        await engine.resign(term)
        return None

    return Call("resign", send, None, None)


async def chore(harness: Harness, name: str) -> Call:
    await harness.set_queue(name, keep=SECOND)
    task = await start(harness, name)
    await harness.settle(task)
    harness.later(49 * HOUR)
    term = await harness.lead(name)

    async def send(engine: Engine, _: bool) -> object:
        record = await engine.chore("prune_finished", term, now=harness.now)
        return record.refused

    return Call("chore", send, False, False)


async def act_on(harness: Harness, name: str) -> Call:
    await harness.add(queue=name)
    step = harness.new_id()

    async def send(engine: Engine, _: bool) -> object:
        record = await engine.act_on(step, Query(queues=(name,)), Cancel(""), actor="ada", now=harness.now)
        return record.id, record.matched, record.changed

    return Call("act_on", send, (step, 1, 0), (step, 1, 0))


async def advance(harness: Harness, name: str) -> Call:
    await harness.add(queue=name)
    step = harness.new_id()
    await harness.engine.act_on(step, Query(queues=(name,)), Cancel(""), actor="ada", now=harness.now)

    async def send(engine: Engine, _: bool) -> object:
        record = await engine.advance(step, now=harness.now)
        return record is not None and record.changed

    return Call("advance", send, 1, 1)


PREPARATIONS: tuple[Any, ...] = (
    enqueue,
    enqueue_workflow,
    claim,
    claim_limited,
    extend,
    beat,
    leave,
    act_cancel,
    act_cancel_running,
    act_edit,
    act_replay,
    act_purge,
    act_cancel_workflow,
    act_replay_workflow,
    act_on,
    advance,
    set_queue,
    set_queue_state,
    delete_queue,
    set_schedule,
    set_schedule_state,
    set_worker_state,
    rescue,
    fire,
    lead,
    resign,
    chore,
)

CALLS: dict[str, Prepare] = {
    **{prepare.__name__: prepare for prepare in PREPARATIONS},
    "settle_completed": settled(Outcome.COMPLETED, State.COMPLETED),
    "settle_failed": settled(Outcome.FAILED, State.RETRYING),
    "settle_permanent": settled(Outcome.PERMANENT, State.DEAD),
}
"""By name."""
