"""set_queue: settings by compare-and-set, and what follows from new ones."""

from __future__ import annotations

from msgspec import structs

from dibs.core.settings import Defaults, Limit, Policy, QueueSettings, Tier
from dibs.core.task import QueueState
from dibs.core.times import HOUR
from dibs.engines.values import EnqueueOutcome
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


async def test_repeat_answers_the_record(harness: Harness) -> None:
    first = await harness.engine.set_queue(QUEUE, STRICT, expected=0, now=harness.now)
    again = await harness.engine.set_queue(QUEUE, STRICT, expected=0, now=harness.now)
    assert first == again
    assert len(await harness.engine.audit()) == 1


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
