"""replay: the dead run again, as if new, but under lease numbers that go on."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import HistoryEvent, Outcome, QueueState
from dibs.core.times import HOUR, SECOND
from dibs.engines.figures import Counter
from dibs.engines.values import Cancel, Changed, Replay
from dibs.testing.conformance.harness import QUEUE, Harness


async def test_starts_again(harness: Harness) -> None:
    task_id = await harness.ended(Outcome.PERMANENT, priority=60)
    harness.later(HOUR)
    assert await harness.engine.act([Replay(task_id)], actor="ada", now=harness.now) == [Changed.DONE]
    record = await harness.record(task_id)
    assert (record.state, record.ready_at, record.due_at) == (State.PENDING, harness.now, None)
    assert (record.attempts, record.losses, record.reason, record.failure) == (0, 0, None, None)
    assert (record.finished_at, record.started_at, record.worker, record.note) == (None, None, None, "")
    assert await harness.events(task_id) == [HistoryEvent.DEAD, HistoryEvent.REPLAYED]
    assert (await harness.engine.history(task_id))[-1].actor == "ada"
    assert await harness.counts() == {State.PENDING: 1}
    assert await harness.counter(Counter.REPLAYED) == 1


async def test_lease_numbers_go_on(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task, Outcome.PERMANENT)
    await harness.engine.act([Replay(task.id)], now=harness.now)
    again = await harness.take(task.id)
    assert again.lease > task.lease


async def test_attempts_are_kept_on_request(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task, Outcome.FAILED)
    await harness.settle(await harness.take(task.id), Outcome.PERMANENT)
    assert await harness.engine.act([Replay(task.id, reset=False)], now=harness.now) == [Changed.DONE]
    assert (await harness.record(task.id)).attempts == 2


async def test_into_another_queue(harness: Harness) -> None:
    await harness.set_queue("strict", policy="strict")
    task_id = await harness.ended(Outcome.PERMANENT, priority=10)
    assert await harness.engine.act([Replay(task_id, queue="strict")], now=harness.now) == [Changed.DONE]
    assert (await harness.record(task_id)).queue == "strict"
    other = await harness.add(queue="strict", priority=20)
    assert await harness.claim_ids(5, queues=("strict",)) == [other, task_id]
    assert await harness.counts() == {}
    assert await harness.counts("strict") == {State.RUNNING: 2}


async def test_into_a_new_queue(harness: Harness) -> None:
    task_id = await harness.ended(Outcome.PERMANENT)
    assert await harness.engine.act([Replay(task_id, queue="new")], now=harness.now) == [Changed.DONE]
    assert await harness.queue("new") is not None
    assert await harness.claim_ids(5, queues=("new",)) == [task_id]


async def test_draining_queue_refuses(harness: Harness) -> None:
    await harness.set_queue("draining")
    task_id = await harness.ended(Outcome.PERMANENT)
    await harness.engine.set_queue_state("draining", QueueState.DRAINING, now=harness.now)
    assert await harness.engine.act([Replay(task_id, queue="draining")], now=harness.now) == [Changed.DRAINING]
    assert await harness.state(task_id) is State.DEAD
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    assert await harness.engine.act([Replay(task_id)], now=harness.now) == [Changed.DRAINING]


async def test_only_the_dead(harness: Harness) -> None:
    running, completed = await harness.start(), await harness.ended()
    pending, cancelled = await harness.add(), await harness.add()
    await harness.engine.act([Cancel(cancelled)], now=harness.now)
    ids = [running.id, completed, pending, cancelled, harness.new_id()]
    assert await harness.engine.act([Replay(each) for each in ids], now=harness.now) == [Changed.WRONG_STATE] * 4 + [
        Changed.UNKNOWN
    ]


async def test_repeat_changes_nothing(harness: Harness) -> None:
    task_id = await harness.ended(Outcome.PERMANENT)
    assert await harness.engine.act([Replay(task_id), Replay(task_id)], now=harness.now) == [
        Changed.DONE,
        Changed.WRONG_STATE,
    ]
    before = await harness.record(task_id)
    harness.later(SECOND)
    assert await harness.engine.act([Replay(task_id)], now=harness.now) == [Changed.WRONG_STATE]
    assert await harness.record(task_id) == before


async def test_full_queue_takes_it(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    task_id = await harness.ended(Outcome.PERMANENT)
    await harness.add()
    assert await harness.engine.act([Replay(task_id)], now=harness.now) == [Changed.DONE]


async def test_old_cancel_request_is_forgotten(harness: Harness) -> None:
    task = await harness.start()
    await harness.engine.act([Cancel(task.id)], now=harness.now)
    await harness.settle(task, Outcome.PERMANENT)
    await harness.engine.act([Replay(task.id)], now=harness.now)
    again = await harness.take(task.id)
    await harness.settle(again, Outcome.RELEASED)
    assert await harness.state(task.id) is State.PENDING
