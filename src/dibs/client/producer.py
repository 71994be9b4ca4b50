"""From a bound call to a durable task, or to the error that says why not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from dibs.client.options import Options
from dibs.core.task import NewTask
from dibs.core.times import SECOND
from dibs.engines.topics import ended_topic, work_topic
from dibs.engines.values import EnqueueAnswer, EnqueueOutcome, NewWorkflow
from dibs.errors import (
    DibsError,
    DuplicateTask,
    IdempotencyConflict,
    QueueDraining,
    QueueFull,
    RateLimited,
    UnknownTask,
)
from dibs.runtime.hub import Hub
from dibs.runtime.joining import ainside, inside

__all__ = ["aenqueue", "enqueue", "enqueue_many", "wait_for_room"]

RENEW_EVERY = 1800.0
"""Seconds after which a producer that waits for room renews the blob of its arguments, so that it is not swept."""

LOOK_AGAIN = 0.05
"""Claims make room without a notification, so a producer that waits for room looks again after this many seconds."""

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
        answer = runner.run(wait_for_room(hub, new, answer, options.block))
    return accepted(answer, new)


async def aenqueue(hub: Hub, new: NewTask, options: Options) -> EnqueueAnswer:
    """On any loop; waits for room, or for its turn, if asked to."""
    new = await hub.payloads.adeposit(new)
    if options.connection is not None:
        return await aenqueue_in(hub, new, options)
    answer = await hub.enqueuer.submit(new)
    if answer.outcome in NO_ROOM and options.block:
        answer = await hub.runner.arun(wait_for_room(hub, new, answer, options.block))
    return accepted(answer, new)


async def wait_for_room(hub: Hub, new: NewTask, answer: EnqueueAnswer, block: float) -> EnqueueAnswer:
    """On the runner's loop: try again until there is room, or the time is up."""
    until = time.monotonic() + block
    renew_at = time.monotonic() + RENEW_EVERY
    subscription = hub.engine.subscribe([ended_topic(new.queue), work_topic(new.queue)])
    try:
        while True:
            left = max(0.0, until - time.monotonic())
            if answer.retry_in is not None:
                await asyncio.sleep(min(left, answer.retry_in / SECOND))
            else:
                await subscription.wait(min(left, LOOK_AGAIN))
            if time.monotonic() > renew_at:
                renew_at = time.monotonic() + RENEW_EVERY
                await asyncio.to_thread(hub.payloads.renew, new.args)
            answer = await hub.enqueuer.submit(new)
            if answer.outcome not in NO_ROOM or time.monotonic() >= until:
                return answer
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
            accepted(answer, new)
    return answers


def enqueue_in(hub: Hub, new: NewTask, options: Options) -> EnqueueAnswer:
    """In the caller's own transaction, blocking."""
    now = hub.clock.store_now()
    answers = inside(hub, options.connection, lambda joined: joined.enqueue([new], now=now))
    return accepted(answers[0], new)


async def aenqueue_in(hub: Hub, new: NewTask, options: Options) -> EnqueueAnswer:
    """In the caller's own transaction, awaited on the caller's own loop."""
    now = hub.clock.store_now()
    answers = await ainside(hub, options.connection, lambda joined: joined.enqueue([new], now=now))
    return accepted(answers[0], new)


def accepted(answer: EnqueueAnswer, new: NewTask) -> EnqueueAnswer:
    """The answer, or the error that it stands for."""
    error = refusal(answer, new)
    if error is not None:
        raise error
    return answer


def refusal(answer: EnqueueAnswer, new: NewTask) -> DibsError | None:
    outcome = answer.outcome
    if outcome is EnqueueOutcome.FULL:
        return QueueFull(
            f"queue {new.queue!r} is full. Try again later, wait for room with using(block=seconds), "
            "or raise its max_depth.",
            retry_after=1.0,
        )
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
