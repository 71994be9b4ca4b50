"""fire: what schedules have due is enqueued, each fire once, and they move on in the same step."""

from __future__ import annotations

from msgspec import structs

from dibs.core.recurrence import CatchUp, Overlap, Recurrence, upcoming
from dibs.core.schedules import GRACE, fire_id, jitter_of
from dibs.core.states import State
from dibs.core.task import Outcome, QueueState
from dibs.core.times import DAY, HOUR, MINUTE, SECOND, when
from dibs.engines.figures import Counter
from dibs.engines.topics import work_topic
from dibs.engines.values import FIRE_BATCH, Changed, Fired
from dibs.testing.conformance.harness import QUEUE, Harness
from dibs.testing.conformance.schedule_help import HOURLY, NIGHTLY, TEMPLATE, delete, pause, put, schedule
from dibs.testing.conformance.subscribe import notifies
from dibs.testing.tasks import changed


async def fire(harness: Harness) -> Fired:
    return await harness.engine.fire(now=harness.now)


async def test_nothing_is_due(harness: Harness) -> None:
    assert await fire(harness) == Fired([], 0, None)
    await put(harness)
    await put(harness, "later", Recurrence(every=DAY))
    assert await fire(harness) == Fired([], 0, HOUR)
    harness.later(HOUR - 1)
    assert await fire(harness) == Fired([], 0, 1)
    assert await harness.counts() == {}


async def test_a_fire_is_a_task(harness: Harness) -> None:
    task = changed(TEMPLATE, args=b'{"n":1}', priority=73, headers={"h": "x"}, tenant="acme", partition="p")
    await put(harness, task=task)
    nominal = harness.now + HOUR
    harness.later(HOUR + SECOND)
    assert await fire(harness) == Fired([fire_id("s", nominal)], 0, HOUR - SECOND)
    record = await harness.record(fire_id("s", nominal))
    assert (record.state, record.queue, record.name, record.args) == (State.PENDING, QUEUE, "report", b'{"n":1}')
    assert (record.spec.priority, record.spec.tenant, record.spec.partition) == (73, "acme", "p")
    moment = when(nominal)
    assert moment is not None
    assert record.spec.headers == {"h": "x", "schedule": "s", "fire-time": moment.isoformat()}
    assert (record.created_at, record.ready_at) == (harness.now, harness.now)
    assert await harness.counter(Counter.ENQUEUED) == 1


async def test_the_schedule_moves_on(harness: Harness) -> None:
    await put(harness)
    before = await schedule(harness)
    harness.later(HOUR)
    await fire(harness)
    assert await schedule(harness) == structs.replace(
        before,
        next_fire_at=harness.now + HOUR,
        last_fire_at=harness.now,
        last_task=fire_id("s", harness.now),
        fired=1,
    )
    assert len(await harness.engine.audit()) == 1, "nobody did this"


async def test_again_does_nothing(harness: Harness) -> None:
    await put(harness)
    harness.later(HOUR)
    await fire(harness)
    before = await schedule(harness)
    assert await fire(harness) == Fired([], 0, HOUR)
    assert await schedule(harness) == before
    assert await harness.counts() == {State.PENDING: 1}


async def test_a_fire_keeps_to_its_nominal_times(harness: Harness) -> None:
    await put(harness)
    start = harness.now
    for turn in range(1, 4):
        harness.later(start + turn * HOUR + 7 * SECOND - harness.now)
        (task_id,) = (await fire(harness)).tasks
        assert task_id == fire_id("s", start + turn * HOUR)
    await put(harness, "nightly", NIGHTLY)
    first, second = upcoming(NIGHTLY, harness.now, 2)
    await delete(harness)
    harness.later(first - harness.now)
    assert await fire(harness) == Fired([fire_id("nightly", first)], 0, second - first)


async def test_due_ones_in_order_of_their_time_then_of_their_name(harness: Harness) -> None:
    await put(harness, "late", Recurrence(every=2 * HOUR))
    for name in ("b", "a"):
        await put(harness, name)
    start = harness.now
    harness.later(3 * HOUR)
    fired = await fire(harness)
    assert fired.tasks == [
        fire_id("a", start + 3 * HOUR),
        fire_id("b", start + 3 * HOUR),
        fire_id("late", start + 2 * HOUR),
    ]


async def test_so_many_at_a_time(harness: Harness) -> None:
    for number in range(FIRE_BATCH + 5):
        await put(harness, f"s{number:03}")
    harness.later(HOUR)
    first = await fire(harness)
    assert (len(first.tasks), first.next_due_in) == (FIRE_BATCH, 0)
    second = await fire(harness)
    assert (len(second.tasks), second.next_due_in) == (5, HOUR)


async def test_jitter_comes_on_top(harness: Harness) -> None:
    recurrence = Recurrence(every=HOUR, jitter=30 * MINUTE)
    await put(harness, recurrence=recurrence)
    harness.later(HOUR)
    (task_id,) = (await fire(harness)).tasks
    record = await harness.record(task_id)
    wait = jitter_of(recurrence, "s", harness.now)
    assert 0 < wait <= 30 * MINUTE
    assert (record.state, record.due_at) == (State.SCHEDULED, harness.now + wait)
    assert (await schedule(harness)).next_fire_at == harness.now + HOUR


async def test_deadline_and_expiry_count_from_when_a_task_may_start(harness: Harness) -> None:
    recurrence = Recurrence(every=HOUR, jitter=30 * MINUTE)
    await put(harness, recurrence=recurrence, task=changed(TEMPLATE, deadline=HOUR, expires_at=MINUTE))
    nominal = harness.now + HOUR
    harness.later(HOUR + SECOND)
    (task_id,) = (await fire(harness)).tasks
    start = nominal + jitter_of(recurrence, "s", nominal)
    record = await harness.record(task_id)
    assert (record.due_at, record.spec.deadline, record.spec.expires_at) == (start, start + HOUR, start + MINUTE)


async def test_missed_fires_become_one(harness: Harness) -> None:
    await put(harness)
    start = harness.now
    harness.later(5 * HOUR + MINUTE)
    assert await fire(harness) == Fired([fire_id("s", start + 5 * HOUR)], 4, HOUR - MINUTE)
    record = await schedule(harness)
    assert (record.fired, record.skipped, record.last_fire_at) == (1, 4, start + 5 * HOUR)


async def test_missed_fires_are_skipped(harness: Harness) -> None:
    await put(harness, recurrence=Recurrence(every=HOUR, catch_up=CatchUp.SKIP))
    start = harness.now
    harness.later(5 * HOUR + GRACE)
    assert await fire(harness) == Fired([], 5, HOUR - GRACE)
    record = await schedule(harness)
    assert (record.fired, record.skipped, record.last_fire_at, record.last_task) == (0, 5, None, None)
    assert record.next_fire_at == start + 6 * HOUR
    harness.later(HOUR - GRACE)
    assert (await fire(harness)).tasks == [fire_id("s", start + 6 * HOUR)]


async def test_missed_fires_are_all_caught_up(harness: Harness) -> None:
    await put(harness, recurrence=Recurrence(every=HOUR, catch_up=CatchUp.ALL, catch_up_limit=3))
    start = harness.now
    harness.later(5 * HOUR)
    fires = [start + turn * HOUR for turn in (3, 4, 5)]
    assert await fire(harness) == Fired([fire_id("s", at) for at in fires], 2, HOUR)
    record = await schedule(harness)
    assert (record.fired, record.skipped, record.last_task) == (3, 2, fire_id("s", fires[-1]))
    assert await harness.counts() == {State.PENDING: 3}


async def test_overlap_is_skipped_while_the_last_task_is_unfinished(harness: Harness) -> None:
    await put(harness, recurrence=Recurrence(every=HOUR, overlap=Overlap.SKIP))
    harness.later(HOUR)
    (first,) = (await fire(harness)).tasks
    for _ in range(2):
        harness.later(HOUR)
        assert await fire(harness) == Fired([], 1, HOUR)
    record = await schedule(harness)
    assert (record.fired, record.skipped, record.last_task) == (1, 2, first)
    await harness.finish(first, Outcome.PERMANENT)
    harness.later(HOUR)
    assert (await fire(harness)).tasks == [fire_id("s", harness.now)]


async def test_overlap_is_allowed_otherwise(harness: Harness) -> None:
    await put(harness)
    for _ in range(3):
        harness.later(HOUR)
        assert len((await fire(harness)).tasks) == 1
    assert await harness.counts() == {State.PENDING: 3}


async def test_paused_schedules_do_not_fire(harness: Harness) -> None:
    await put(harness)
    await pause(harness)
    harness.later(DAY)
    assert await fire(harness) == Fired([], 0, None)
    await pause(harness, False)
    assert await fire(harness) == Fired([], 0, HOUR)
    harness.later(HOUR)
    assert len((await fire(harness)).tasks) == 1
    assert (await schedule(harness)).skipped == 0


async def test_deleted_schedules_leave_their_tasks(harness: Harness) -> None:
    await put(harness)
    harness.later(HOUR)
    (task_id,) = (await fire(harness)).tasks
    assert await delete(harness) is Changed.DONE
    harness.later(DAY)
    assert (await fire(harness)).tasks == []
    assert await harness.claim_ids(5) == [task_id]


async def test_draining_queue_makes_it_wait(harness: Harness) -> None:
    await harness.set_queue()
    await put(harness)
    await put(harness, "other", task=changed(TEMPLATE, queue="other"))
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    before = await schedule(harness)
    harness.later(HOUR)
    assert (await fire(harness)).tasks == [fire_id("other", harness.now)], "others are not held up"
    assert await schedule(harness) == before
    await harness.engine.set_queue_state(QUEUE, QueueState.ACTIVE, now=harness.now)
    harness.later(MINUTE)
    assert (await fire(harness)).tasks == [fire_id("s", before.next_fire_at)]


async def test_full_queue_makes_it_wait(harness: Harness) -> None:
    await harness.set_queue(max_depth=2)
    blocker = await harness.add()
    await put(harness, recurrence=Recurrence(every=HOUR, catch_up=CatchUp.ALL))
    before = await schedule(harness)
    harness.later(2 * HOUR)
    assert (await fire(harness)).tasks == [], "two are due, and there is room for one: none"
    assert await schedule(harness) == before
    await harness.finish(blocker)
    assert len((await fire(harness)).tasks) == 2


async def test_paused_queue_takes_it(harness: Harness) -> None:
    await harness.set_queue()
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    await put(harness)
    harness.later(HOUR)
    assert len((await fire(harness)).tasks) == 1


async def test_schedules_are_no_client_that_could_be_too_fast(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=0.001, enqueue_burst=1)
    await put(harness, recurrence=Recurrence(every=MINUTE, catch_up=CatchUp.ALL))
    harness.later(10 * MINUTE)
    assert len((await fire(harness)).tasks) == 10


async def test_a_fire_can_not_happen_twice(harness: Harness) -> None:
    """Even when the schedule is made again: the task of a nominal time has one id."""
    await put(harness)
    start = harness.now
    harness.later(HOUR)
    await fire(harness)
    await delete(harness)
    harness.now = start
    await put(harness)
    harness.later(HOUR)
    assert (await fire(harness)).tasks == [fire_id("s", harness.now)]
    assert await harness.counts() == {State.PENDING: 1}
    assert await harness.counter(Counter.ENQUEUED) == 1


async def test_it_notifies(harness: Harness) -> None:
    await put(harness)
    harness.later(HOUR)
    assert await notifies(harness, work_topic(QUEUE), fire(harness))


async def test_a_new_recurrence_catches_up_nothing(harness: Harness) -> None:
    await put(harness, recurrence=HOURLY)
    harness.later(5 * HOUR)
    await put(harness, recurrence=Recurrence(every=2 * HOUR))
    assert await fire(harness) == Fired([], 0, 2 * HOUR)
