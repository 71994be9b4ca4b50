"""queues: settings by compare-and-set, states, and deletion that loses nothing."""

from __future__ import annotations

from msgspec import structs

from dibs.core.settings import Defaults, Limit, Policy, QueueSettings, Tier
from dibs.core.states import Reason, State
from dibs.core.task import HistoryEvent, Outcome, QueueState
from dibs.core.times import HOUR, SECOND
from dibs.engines.values import Changed, EnqueueOutcome, Replay
from dibs.testing.conformance.harness import QUEUE, Harness

STRICT = QueueSettings(policy=Policy.STRICT)


async def test_settings_come_back(harness: Harness) -> None:
    settings = QueueSettings(
        policy=Policy.TIERS,
        tiers={Tier.LOW: Defaults(retries=9, timeout_growth=1.5)},
        defaults=Defaults(timeout=HOUR),
        max_depth=5,
        max_concurrent=6,
        rate=1.5,
        burst=7,
        per_task={"send": Limit(max_concurrent=3), "fetch": Limit(rate=0.5, burst=2)},
        per_partition=Limit(max_concurrent=1, rate=1.5),
        enqueue_rate=10.0,
        enqueue_burst=20,
        fair=True,
        weights={"acme": 2.0, "Müller & Söhne": 0.5},
    )
    record = await harness.engine.set_queue("q", settings, expected=0, now=harness.now)
    assert record is not None
    assert (record.settings, record.state, record.stale) == (settings, QueueState.ACTIVE, 0)
    assert await harness.engine.queues() == [record]


async def test_by_name(harness: Harness) -> None:
    for name in ("b", "a", "c"):
        await harness.set_queue(name)
    assert [record.name for record in await harness.engine.queues()] == ["a", "b", "c"]


async def test_version_counts_up(harness: Harness) -> None:
    for expected in range(3):
        settings = QueueSettings(max_depth=expected + 1, version=77)
        record = await harness.engine.set_queue(QUEUE, settings, expected=expected, now=harness.now)
        assert record is not None
        assert record.settings == structs.replace(settings, version=expected + 1)


async def test_another_version_changes_nothing(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    for expected in (0, 2, 5):
        assert await harness.engine.set_queue(QUEUE, STRICT, expected=expected, now=harness.now) is None
    record = await harness.queue()
    assert record is not None
    assert record.settings == QueueSettings(max_depth=1)


async def test_new_queue_needs_expected_zero(harness: Harness) -> None:
    assert await harness.engine.set_queue("new", STRICT, expected=1, now=harness.now) is None
    assert await harness.engine.queues() == []


async def test_queue_of_a_first_task_has_version_one(harness: Harness) -> None:
    await harness.add()
    assert await harness.engine.set_queue(QUEUE, STRICT, expected=0, now=harness.now) is None
    assert await harness.engine.set_queue(QUEUE, STRICT, expected=1, now=harness.now) is not None


async def test_repeat_answers_the_record(harness: Harness) -> None:
    first = await harness.engine.set_queue(QUEUE, STRICT, expected=0, now=harness.now)
    again = await harness.engine.set_queue(QUEUE, STRICT, expected=0, now=harness.now)
    assert first == again
    assert len(await harness.engine.audit()) == 1


async def test_states(harness: Harness) -> None:
    await harness.add()
    for state in (QueueState.PAUSED, QueueState.DRAINING, QueueState.ACTIVE):
        assert await harness.engine.set_queue_state(QUEUE, state, now=harness.now) is Changed.DONE
        assert await harness.engine.set_queue_state(QUEUE, state, now=harness.now) is Changed.UNCHANGED
        record = await harness.queue()
        assert record is not None
        assert record.state is state
    assert await harness.engine.set_queue_state("nowhere", QueueState.PAUSED, now=harness.now) is Changed.UNKNOWN
    assert await harness.queue("nowhere") is None


async def test_settings_leave_the_state(harness: Harness) -> None:
    await harness.add()
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    assert (await harness.set_queue(max_depth=9)).state is QueueState.PAUSED


async def test_new_limits_apply_at_once(harness: Harness) -> None:
    await harness.add_many(5)
    await harness.set_queue(max_concurrent=2, max_depth=5)
    assert await harness.outcomes(harness.new()) == [EnqueueOutcome.FULL]
    assert len(await harness.claim(5)) == 2
    await harness.set_queue(max_concurrent=None, max_depth=None)
    assert await harness.outcomes(harness.new()) == [EnqueueOutcome.ENQUEUED]
    assert len(await harness.claim(5)) == 4


async def test_new_policy_ranks_new_tasks(harness: Harness) -> None:
    await harness.set_queue(policy="strict")
    low = await harness.add(priority=10)
    harness.later(1_000 * HOUR)
    high = await harness.add(priority=11)
    assert await harness.claim_ids(2) == [high, low]


async def test_policy_change_ranks_waiting_tasks_by_chore(harness: Harness) -> None:
    low = await harness.add(priority=10)
    harness.later(100 * HOUR)
    high = await harness.add(priority=11)
    late = await harness.add(priority=99, delay=HOUR)
    assert (await harness.set_queue(policy="strict")).stale > 0
    await harness.rerank()
    record = await harness.queue()
    assert record is not None
    assert record.stale == 0
    assert await harness.claim_ids(1) == [high]
    harness.later(HOUR)
    assert await harness.claim_ids(2) == [late, low]


async def test_other_settings_make_nothing_stale(harness: Harness) -> None:
    await harness.add()
    assert (await harness.set_queue(max_depth=5, keep=1, retries=9)).stale == 0
    assert (await harness.set_queue(per_partition=1, per_task={"work": 1}, weights={"a": 2})).stale == 0


async def test_empty_queue_is_deleted(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    assert await harness.engine.delete_queue(QUEUE, now=harness.now) is Changed.DONE
    assert await harness.engine.queues() == []
    assert await harness.engine.delete_queue(QUEUE, now=harness.now) is Changed.UNKNOWN


async def test_queue_with_only_ended_tasks_is_deleted_and_they_stay(harness: Harness) -> None:
    completed, dead = await harness.ended(), await harness.ended(Outcome.DEAD)
    assert await harness.engine.delete_queue(QUEUE, now=harness.now) is Changed.DONE
    assert await harness.queue() is None
    assert [await harness.state(completed), await harness.state(dead)] == [State.COMPLETED, State.DEAD]
    assert await harness.counts() == {State.COMPLETED: 1, State.DEAD: 1}


async def test_queue_with_tasks_is_not(harness: Harness) -> None:
    for facts in ({"delay": HOUR}, {"delay": 0}):
        await harness.add(**facts)
        assert await harness.engine.delete_queue(QUEUE, now=harness.now) is Changed.WRONG_STATE
    task = await harness.start(queue="running")
    assert await harness.engine.delete_queue("running", now=harness.now) is Changed.WRONG_STATE
    assert await harness.state(task.id) is State.RUNNING


async def test_force_makes_waiting_tasks_dead(harness: Harness) -> None:
    running = await harness.start()
    retrying = await harness.start()
    await harness.settle(retrying, Outcome.RETRY, delay=HOUR)
    waiting = [await harness.add(), await harness.add(delay=HOUR), retrying.id]
    harness.later(SECOND)
    assert await harness.engine.delete_queue(QUEUE, force=True, actor="ada", now=harness.now) is Changed.DONE
    for task_id in waiting:
        record = await harness.record(task_id)
        assert (record.state, record.reason, record.finished_at) == (State.DEAD, Reason.QUEUE, harness.now)
        assert (await harness.events(task_id))[-1] is HistoryEvent.DEAD
    assert await harness.queue() is None
    assert await harness.state(running.id) is State.RUNNING
    await harness.settle(running)
    assert await harness.state(running.id) is State.COMPLETED
    assert await harness.counts() == {State.DEAD: 3, State.COMPLETED: 1}
    harness.later(2 * HOUR)
    assert await harness.claim(9) == []


async def test_a_run_that_would_go_back_to_a_deleted_queue_is_dead(harness: Harness) -> None:
    failed, lost = await harness.start(), await harness.start()
    await harness.engine.delete_queue(QUEUE, force=True, now=harness.now)
    await harness.settle(failed, Outcome.RETRY, delay=HOUR)
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    for task_id in (failed.id, lost.id):
        record = await harness.record(task_id)
        assert (record.state, record.reason) == (State.DEAD, Reason.QUEUE)


async def test_the_dead_of_a_deleted_queue_run_elsewhere(harness: Harness) -> None:
    task_id = await harness.add()
    await harness.engine.delete_queue(QUEUE, force=True, now=harness.now)
    assert await harness.engine.act([Replay(task_id, queue="elsewhere")], now=harness.now) == [Changed.DONE]
    assert await harness.claim_ids(queues=("elsewhere",)) == [task_id]


async def test_deleted_queue_starts_over(harness: Harness) -> None:
    await harness.set_queue(policy="strict", max_depth=1)
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    await harness.engine.delete_queue(QUEUE, now=harness.now)
    await harness.add_many(3)
    record = await harness.queue()
    assert record is not None
    assert (record.settings, record.state) == (QueueSettings(), QueueState.ACTIVE)
