"""From a bound call to a durable task, or to the error that says why not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from msgspec import structs

from dibs.client.backpressure import queue_full
from dibs.client.options import Options
from dibs.core.task import NewTask
from dibs.core.times import SECOND
from dibs.engines.topics import room_topic
from dibs.engines.values import ACCEPTED, EnqueueAnswer, EnqueueOutcome, NewWorkflow
from dibs.errors import (
    DibsError,
    DuplicateTask,
    IdempotencyConflict,
    QueueDraining,
    RateLimited,
    UnknownTask,
)
from dibs.runtime.hub import Hub
from dibs.runtime.joining import ainside, inside

__all__ = ["aenqueue", "enqueue", "enqueue_many", "wait_for_room"]

RENEW_EVERY = 1800.0
"""Seconds after which a producer that waits for room renews the blob of its arguments, so that it is not swept."""

LOOK_AGAIN = 1.0
"""Seconds after which a producer that waits for room tries again without a notification: none is sure to arrive."""

NO_ROOM = (EnqueueOutcome.FULL, EnqueueOutcome.LIMITED)
"""Refusals that pass by themselves."""


def enqueue(hub: Hub, new: NewTask, options: Options) -> EnqueueAnswer:
    """Blocking; concurrent calls from many threads form batches."""
    if len(new.args) > hub.payloads.limit:
        new = hub.payloads.deposit(new)
    if options.connection is not None:
        return enqueue_in(hub, new, options)
    runner = hub.runner
    if asyncio._get_running_loop() is not None:
        return runner.run(aenqueue(hub, new, options))
    answer = hub.enqueue_at_once(new) or hub.enqueuer.submit_blocking(new)
    if answer.outcome in NO_ROOM and options.block:
        runner.serve()
        answer = runner.run(wait_for_room(hub, new, options.block))
    return answer if answer.outcome in ACCEPTED else runner.run(accepted(hub, answer, new))


async def aenqueue(hub: Hub, new: NewTask, options: Options) -> EnqueueAnswer:
    """On any loop; waits for room, or for its turn, if asked to."""
    new = await hub.payloads.adeposit(new)
    if options.connection is not None:
        return await aenqueue_in(hub, new, options)
    answer = await hub.enqueuer.submit(new)
    if answer.outcome in NO_ROOM and options.block:
        answer = await hub.runner.arun(wait_for_room(hub, new, options.block))
    return await accepted(hub, answer, new)


async def wait_for_room(hub: Hub, new: NewTask, block: float) -> EnqueueAnswer:
    """On the runner's loop: try again when there may be room, until the time is up.

    The first try comes before the first wait: there may have been room since the refusal, before this listened.
    """
    until = time.monotonic() + block
    renew_at = time.monotonic() + RENEW_EVERY
    waiting = structs.replace(new, waits=True)
    subscription = hub.engine.subscribe([room_topic(new.queue)])
    try:
        while True:
            answer = await hub.enqueuer.submit(waiting)
            left = until - time.monotonic()
            if answer.outcome not in NO_ROOM or left <= 0:
                return answer
            if answer.retry_in is not None:
                await asyncio.sleep(min(left, answer.retry_in / SECOND))
            else:
                await subscription.wait(min(left, LOOK_AGAIN))
            if time.monotonic() > renew_at:
                renew_at = time.monotonic() + RENEW_EVERY
                await asyncio.to_thread(hub.payloads.renew, new.args)
    finally:
        subscription.close()


async def enqueue_many(hub: Hub, tasks: Sequence[NewTask], workflow: NewWorkflow | None = None) -> list[EnqueueAnswer]:
    """All or nothing; the first refusal is raised.

    An id that exists with the same content is not a refusal: an earlier call has written the batch.
    """
    if not tasks:
        return []
    tasks = await hub.payloads.adeposit_all(tasks)
    answers = await hub.engine.enqueue(tasks, atomic=True, workflow=workflow, now=hub.clock.store_now())
    for new, answer in zip(tasks, answers, strict=True):
        if answer.outcome is not EnqueueOutcome.ENQUEUED:
            await accepted(hub, answer, new, sum(each.queue == new.queue for each in tasks))
    return answers


def enqueue_in(hub: Hub, new: NewTask, options: Options) -> EnqueueAnswer:
    """In the caller's own transaction, blocking."""
    now = hub.clock.store_now()
    answers = inside(hub, options.connection, lambda joined: joined.enqueue([new], now=now))
    return answers[0] if answers[0].outcome in ACCEPTED else hub.runner.run(accepted(hub, answers[0], new))


async def aenqueue_in(hub: Hub, new: NewTask, options: Options) -> EnqueueAnswer:
    """In the caller's own transaction, awaited on the caller's own loop."""
    now = hub.clock.store_now()
    answers = await ainside(hub, options.connection, lambda joined: joined.enqueue([new], now=now))
    return await accepted(hub, answers[0], new)


async def accepted(hub: Hub, answer: EnqueueAnswer, new: NewTask, number: int = 1) -> EnqueueAnswer:
    """The answer, or the error that it stands for. `number`: how many tasks its queue would have to take."""
    if answer.outcome is EnqueueOutcome.FULL:
        raise await hub.runner.arun(queue_full(hub, new.queue, number))
    error = refusal(answer, new)
    if error is not None:
        raise error
    return answer


def refusal(answer: EnqueueAnswer, new: NewTask) -> DibsError | None:
    outcome = answer.outcome
    if outcome is EnqueueOutcome.LIMITED:
        wait = (answer.retry_in or 0) / SECOND
        return RateLimited(
            f"client {new.client!r} enqueues faster than queue {new.queue!r} lets each client (its enqueue_rate). Try "
            f"again in {wait:.3g} s, or wait for it with using(block=seconds).",
            retry_after=wait,
        )
    if outcome is EnqueueOutcome.UNKNOWN:
        return UnknownTask(
            f"{new.name} would wait for task {answer.id}, which is not there: it was never enqueued, or has been "
            "pruned. Enqueue it first, or in the same batch."
        )
    if outcome is EnqueueOutcome.DRAINING:
        return QueueDraining(f"queue {new.queue!r} is draining and takes no new tasks until it is resumed.")
    if outcome is EnqueueOutcome.CONFLICT:
        return IdempotencyConflict(
            f"key {new.spec.key!r} in queue {new.queue!r} already stands for task {answer.id}, "
            "which has other arguments.",
            task_id=answer.id,
        )
    if outcome is EnqueueOutcome.TAKEN:
        return DuplicateTask(f"another task has the id {new.id} already.")
    return None
