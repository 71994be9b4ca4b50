"""rescue: a lease that ends without a word is a loss; the task runs again, or is dead after six."""

from __future__ import annotations

from dibs.core.policy import RESCUE_BATCH
from dibs.core.retry import after_loss, jitter
from dibs.core.states import Reason, State
from dibs.core.task import MAX_LOSSES, HistoryEvent, WorkerState
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.figures import Counter
from dibs.engines.values import Cancel, Rescued
from dibs.testing.conformance.harness import Harness


async def lose(harness: Harness, task_id: str) -> None:
    """Claim the task when it can be, and never speak of it again."""
    harness.later(HOUR)
    await harness.take(task_id)
    harness.later(HOUR)
    assert (await harness.engine.rescue(now=harness.now)).ids == [task_id]


async def test_leaves_live_leases_alone(harness: Harness) -> None:
    task = await harness.start()
    harness.later(30 * SECOND - 1)
    rescued = await harness.engine.rescue(now=harness.now)
    assert (rescued.ids, rescued.more) == ([], False)
    assert await harness.state(task.id) is State.RUNNING


async def test_first_loss_runs_again_at_once(harness: Harness) -> None:
    task = await harness.start()
    harness.later(30 * SECOND)
    assert (await harness.engine.rescue(now=harness.now)).ids == [task.id]
    record = await harness.record(task.id)
    assert (record.state, record.losses, record.attempts) == (State.PENDING, 1, 0)
    assert (record.worker, record.lease, record.lease_expires_at) == (None, task.lease, None)
    (entry,) = await harness.engine.history(task.id)
    assert (entry.event, entry.lease, entry.worker) == (HistoryEvent.LOST, task.lease, "worker-1")
    assert await harness.counter(Counter.LOSSES) == 1
    (again,) = await harness.claim()
    assert again.lease > task.lease
    assert (again.id, again.losses) == (task.id, 1)


async def test_later_losses_wait(harness: Harness) -> None:
    task_id = await harness.add()
    await lose(harness, task_id)
    await lose(harness, task_id)
    record = await harness.record(task_id)
    delay = after_loss(record.options, 2, jitter(task_id, record.losses)).delay
    assert (record.state, record.losses, record.due_at) == (State.RETRYING, 2, harness.now + delay)


async def test_the_sixth_loss_is_death(harness: Harness) -> None:
    task_id = await harness.add()
    for _ in range(MAX_LOSSES - 1):
        await lose(harness, task_id)
        assert await harness.state(task_id) in (State.PENDING, State.RETRYING)
    await lose(harness, task_id)
    record = await harness.record(task_id)
    assert (record.state, record.reason, record.losses) == (State.DEAD, Reason.LOST, MAX_LOSSES)
    assert (record.attempts, record.finished_at) == (0, harness.now)
    assert await harness.counts() == {State.DEAD: 1}
    assert await harness.events(task_id) == [HistoryEvent.LOST] * MAX_LOSSES


async def test_batch_mates_are_parted(harness: Harness) -> None:
    ids = await harness.add_many(20)
    for _ in range(2):
        harness.later(HOUR)
        assert len(await harness.claim(20)) == 20
        harness.later(HOUR)
        await harness.engine.rescue(now=harness.now)
    due = {record.due_at for record in await harness.records(ids)}
    assert len(due) > 10


async def test_asked_to_cancel_it_ends(harness: Harness) -> None:
    task = await harness.start()
    await harness.engine.act([Cancel(task.id, "stop")], now=harness.now)
    harness.later(HOUR)
    assert (await harness.engine.rescue(now=harness.now)).ids == [task.id]
    record = await harness.record(task.id)
    assert (record.state, record.reason, record.note) == (State.CANCELLED, Reason.USER, "stop")


async def test_what_ended_after_the_look_before_is_left_alone(harness: Harness) -> None:
    task = await harness.start()
    await harness.beat("worker-1", lives_for=30 * SECOND)
    harness.later(30 * SECOND)
    before = harness.now - 1
    harness.later(HOUR)
    rescued = await harness.engine.rescue(ended_by=before, not_after=harness.now, now=harness.now)
    assert rescued == Rescued(at=harness.now)
    assert await harness.state(task.id) is State.RUNNING
    rescued = await harness.engine.rescue(ended_by=before + 1, not_after=harness.now, now=harness.now)
    assert (rescued.ids, rescued.workers) == ([task.id], ["worker-1"])
    assert (await harness.engine.history(task.id))[0].at == harness.now


async def test_held_up_on_its_way_it_takes_nothing(harness: Harness) -> None:
    """The store's clock is later than its caller allowed for: all leases may have run out while nobody could beat."""
    task = await harness.start()
    await harness.beat("worker-1", lives_for=30 * SECOND)
    harness.later(HOUR)
    before = await harness.record(task.id)
    rescued = await harness.engine.rescue(ended_by=harness.now, not_after=harness.now - 1, now=harness.now)
    assert rescued == Rescued(at=harness.now, stalled=True)
    assert await harness.record(task.id) == before
    assert await harness.engine.history(task.id) == []
    assert {record.state for record in await harness.engine.workers()} == {WorkerState.ACTIVE}
    rescued = await harness.engine.rescue(ended_by=harness.now, not_after=harness.now, now=harness.now)
    assert (rescued.ids, rescued.stalled) == ([task.id], False)


async def test_says_what_became_of_each_task(harness: Harness) -> None:
    second = await harness.add()
    await lose(harness, second)
    first = await harness.add()
    harness.later(HOUR)
    assert len(await harness.claim(2)) == 2
    harness.later(HOUR)
    lost = {task.id: task for task in (await harness.engine.rescue(now=harness.now)).lost}
    for task_id, losses, state in ((first, 1, State.PENDING), (second, 2, State.RETRYING)):
        record, told = await harness.record(task_id), lost[task_id]
        assert (told.name, told.queue, told.worker) == (record.name, record.queue, "worker-1")
        assert (told.lease, told.losses, told.state) == (record.lease, losses, state)
        assert told.due_in == (None if record.due_at is None else record.due_at - harness.now)
    assert lost[second].due_in


async def test_repeat_finds_nothing(harness: Harness) -> None:
    task = await harness.start()
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    assert (await harness.engine.rescue(now=harness.now)).ids == []
    assert (await harness.record(task.id)).losses == 1


async def test_is_bounded_and_begins_with_the_longest_expired(harness: Harness) -> None:
    young = await harness.add_many(20)
    await harness.claim(20, lease=2 * SECOND)
    old = await harness.add_many(RESCUE_BATCH - 10)
    await harness.claim(RESCUE_BATCH, lease=SECOND)
    harness.later(MINUTE)
    first = await harness.engine.rescue(now=harness.now)
    assert (first.ids, first.more) == ([*old, *young[:10]], True)
    second = await harness.engine.rescue(now=harness.now)
    assert (second.ids, second.more) == (young[10:], False)
    assert await harness.counter(Counter.LOSSES) == RESCUE_BATCH + 10


async def test_lost_task_keeps_its_age(harness: Harness) -> None:
    task_id = await harness.add()
    harness.later(MINUTE)
    await harness.take(task_id)
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    assert (await harness.record(task_id)).ready_at == harness.now - MINUTE


async def test_frees_the_slot(harness: Harness) -> None:
    await harness.set_queue(max_concurrent=1)
    await harness.start()
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    assert len(await harness.claim(5)) == 1


async def test_worker_whose_record_expired_is_dead(harness: Harness) -> None:
    await harness.beat("gone", lives_for=MINUTE)
    harness.later(30 * SECOND)
    await harness.beat("alive", lives_for=DAY)
    assert (await harness.engine.rescue(now=harness.now)).workers == []
    harness.later(31 * SECOND)
    await harness.beat("alive", lives_for=DAY)
    assert "gone" in (await harness.engine.rescue(now=harness.now)).workers
    states = {record.id: record.state for record in await harness.engine.workers()}
    assert states["gone"] is WorkerState.DEAD
    assert states["alive"] is WorkerState.ACTIVE
    assert "gone" not in (await harness.engine.rescue(now=harness.now)).workers
