"""extend: a current lease is kept, whatever the time; nobody else's is."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.policy import RESCUE_BATCH
from dibs.core.states import State
from dibs.core.task import Lease, LeasedTask, Outcome
from dibs.core.times import HOUR, MINUTE, SECOND, Duration
from dibs.engines.values import Cancel, ExtendAnswer, ExtendOutcome, Extension
from dibs.testing.conformance.harness import Harness, lease_of

DAY_LONG = 24 * HOUR


async def extend(harness: Harness, lease: LeasedTask | Lease, by: Duration = MINUTE, ran: Duration = 0) -> ExtendAnswer:
    lease = lease_of(lease) if isinstance(lease, LeasedTask) else lease
    return (await harness.engine.extend([Extension(lease, by, ran=ran)], now=harness.now))[0]


async def extend_all(
    harness: Harness, tasks: Sequence[LeasedTask], by: Duration = MINUTE, **facts: object
) -> list[ExtendOutcome]:
    asked = [Extension(lease_of(task), by, **facts) for task in tasks]  # type: ignore[arg-type]
    return [answer.outcome for answer in await harness.engine.extend(asked, now=harness.now)]


async def ends(harness: Harness, tasks: Sequence[LeasedTask]) -> list[int | None]:
    """In how many seconds their leases end."""
    records = await harness.records([task.id for task in tasks])
    found = [record.lease_expires_at for record in records]
    return [None if end is None else (end - harness.now) // SECOND for end in found]


async def start_many(harness: Harness, count: int) -> list[LeasedTask]:
    """Running tasks whose leases have been extended together, by a minute."""
    await harness.add_many(count)
    tasks = await harness.claim(count)
    assert await extend_all(harness, tasks) == [ExtendOutcome.HELD] * count
    return tasks


async def test_keeps_a_lease(harness: Harness) -> None:
    task = await harness.start()
    harness.later(20 * SECOND)
    answer = await extend(harness, task)
    assert (answer.outcome, answer.expires_at) == (ExtendOutcome.HELD, harness.now + MINUTE)
    assert (await harness.record(task.id)).lease_expires_at == harness.now + MINUTE


async def test_kept_lease_is_not_rescued(harness: Harness) -> None:
    task = await harness.start()
    harness.later(29 * SECOND)
    await extend(harness, task, by=30 * SECOND)
    harness.later(29 * SECOND)
    assert (await harness.engine.rescue(now=harness.now)).ids == []
    harness.later(SECOND)
    assert (await harness.engine.rescue(now=harness.now)).ids == [task.id]


async def test_repeat_changes_nothing(harness: Harness) -> None:
    task = await harness.start()
    assert await extend(harness, task) == await extend(harness, task)
    assert await harness.engine.history(task.id) == []


async def test_carries_progress(harness: Harness) -> None:
    task = await harness.start()
    extension = Extension(lease_of(task), MINUTE, progress=0.25, message="a quarter")
    await harness.engine.extend([extension], now=harness.now)
    record = await harness.record(task.id)
    assert (record.progress, record.progress_message) == (0.25, "a quarter")


async def test_a_beat_without_progress_leaves_it(harness: Harness) -> None:
    task = await harness.start()
    extension = Extension(lease_of(task), MINUTE, progress=0.5, message="half")
    await harness.engine.extend([extension], now=harness.now)
    await extend(harness, task)
    record = await harness.record(task.id)
    assert (record.progress, record.progress_message) == (0.5, "half")


async def test_progress_belongs_to_its_run(harness: Harness) -> None:
    task = await harness.start()
    await harness.engine.extend([Extension(lease_of(task), MINUTE, 0.5, "half")], now=harness.now)
    await harness.settle(task, Outcome.RELEASED)
    record = await harness.record(task.id)
    assert (record.progress, record.progress_message) == (None, "")


async def test_another_number_is_lost(harness: Harness) -> None:
    task = await harness.start()
    before = await harness.record(task.id)
    for number in (task.lease - 1, task.lease + 1):
        answer = await extend(harness, Lease(task.id, number))
        assert answer.outcome is ExtendOutcome.LOST
    assert await harness.record(task.id) == before


async def test_unknown_task_is_lost(harness: Harness) -> None:
    assert (await extend(harness, Lease(harness.new_id(), 1))).outcome is ExtendOutcome.LOST


async def test_settled_run_is_lost(harness: Harness) -> None:
    for outcome in Outcome:
        task = await harness.start(queue=outcome.value)
        await harness.settle(task, outcome)
        assert (await extend(harness, task)).outcome is ExtendOutcome.LOST


async def test_expired_lease_that_nobody_took_is_kept(harness: Harness) -> None:
    task = await harness.start()
    harness.later(HOUR)
    answer = await extend(harness, task)
    assert (answer.outcome, answer.expires_at) == (ExtendOutcome.HELD, harness.now + MINUTE)
    assert (await harness.engine.rescue(now=harness.now)).ids == []


async def test_zombie_learns_that_it_lost(harness: Harness) -> None:
    zombie = await harness.start()
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    assert (await extend(harness, zombie)).outcome is ExtendOutcome.LOST
    (heir,) = await harness.claim(worker="heir")
    assert (await extend(harness, zombie)).outcome is ExtendOutcome.LOST
    record = await harness.record(heir.id)
    assert (record.state, record.lease_expires_at) == (State.RUNNING, heir.lease_expires_at)


async def test_tells_of_cancellation_and_keeps_the_lease(harness: Harness) -> None:
    task = await harness.start()
    await harness.engine.act([Cancel(task.id, "changed my mind")], now=harness.now)
    harness.later(SECOND)
    answer = await extend(harness, task)
    assert answer == ExtendAnswer(ExtendOutcome.CANCEL, harness.now + MINUTE, "changed my mind")
    assert (await harness.record(task.id)).lease_expires_at == harness.now + MINUTE


async def test_a_run_of_a_day_is_exhausted(harness: Harness) -> None:
    task = await harness.start()
    harness.later(DAY_LONG - SECOND)
    answer = await extend(harness, task, ran=DAY_LONG - SECOND)
    assert (answer.outcome, answer.expires_at) == (ExtendOutcome.HELD, harness.now + SECOND)
    harness.later(SECOND)
    assert (await extend(harness, task, ran=DAY_LONG)).outcome is ExtendOutcome.EXHAUSTED
    assert (await harness.record(task.id)).lease_expires_at == harness.now


async def test_a_clock_that_was_set_exhausts_no_run(harness: Harness) -> None:
    """How long a run has lasted is said by who runs it: the store's clock may go days ahead in a moment."""
    task = await harness.start()
    harness.later(3 * DAY_LONG)
    answer = await extend(harness, task, ran=SECOND)
    assert (answer.outcome, answer.expires_at) == (ExtendOutcome.HELD, harness.now + MINUTE)
    assert (await harness.record(task.id)).lease_expires_at == harness.now + MINUTE


async def test_answers_in_the_order_asked(harness: Harness) -> None:
    first, second, third = [await harness.start() for _ in range(3)]
    await harness.settle(second)
    await harness.engine.act([Cancel(third.id)], now=harness.now)
    tasks = [third, second, first]
    answers = await harness.engine.extend([Extension(lease_of(task), MINUTE) for task in tasks], now=harness.now)
    assert [answer.outcome for answer in answers] == [ExtendOutcome.CANCEL, ExtendOutcome.LOST, ExtendOutcome.HELD]


async def test_nothing_is_nothing(harness: Harness) -> None:
    assert await harness.engine.extend([], now=harness.now) == []


async def test_extended_lease_holds_its_slot(harness: Harness) -> None:
    await harness.set_queue(max_concurrent=1)
    await harness.add_many(2)
    (task,) = await harness.claim(5)
    harness.later(29 * SECOND)
    await extend(harness, task)
    harness.later(30 * SECOND)
    assert await harness.claim(5) == []


async def test_leases_that_are_extended_together_end_together(harness: Harness) -> None:
    tasks = await start_many(harness, 10)
    assert await ends(harness, tasks) == [60] * 10
    harness.later(50 * SECOND)
    assert await extend_all(harness, tasks) == [ExtendOutcome.HELD] * 10
    assert await ends(harness, tasks) == [60] * 10
    harness.later(59 * SECOND)
    assert (await harness.engine.rescue(now=harness.now)).ids == []
    harness.later(SECOND)
    assert sorted((await harness.engine.rescue(now=harness.now)).ids) == sorted(task.id for task in tasks)
    assert await extend_all(harness, tasks) == [ExtendOutcome.LOST] * 10


async def test_what_is_left_out_of_an_extension_ends_when_it_would_have(harness: Harness) -> None:
    tasks = await start_many(harness, 10)
    harness.later(20 * SECOND)
    await extend_all(harness, tasks[:6])
    assert await ends(harness, tasks) == [60] * 6 + [40] * 4
    harness.later(10 * SECOND)
    await extend_all(harness, tasks[6:8])
    await extend_all(harness, tasks[5:6], by=5 * SECOND)
    assert await ends(harness, tasks) == [50] * 5 + [5] + [60] * 2 + [30] * 2
    harness.later(30 * SECOND)
    rescued = (await harness.engine.rescue(now=harness.now)).ids
    assert rescued == [tasks[5].id, tasks[8].id, tasks[9].id]
    await extend_all(harness, tasks)
    assert await ends(harness, tasks) == [60] * 5 + [None] + [60] * 2 + [None] * 2


async def test_leases_of_one_call_may_be_extended_by_different_spans(harness: Harness) -> None:
    tasks = await start_many(harness, 12)
    spans = [MINUTE] * 5 + [2 * MINUTE] * 6 + [3 * MINUTE]
    asked = [Extension(lease_of(task), span) for task, span in zip(tasks, spans, strict=True)]
    for _ in range(2):
        harness.later(10 * SECOND)
        await harness.engine.extend(asked, now=harness.now)
        assert await ends(harness, tasks) == [60] * 5 + [120] * 6 + [180]
    await harness.engine.extend([*asked[::-1], *(Extension(lease_of(task), MINUTE) for task in tasks)], now=harness.now)
    assert await ends(harness, tasks) == [60] * 12


async def test_runs_that_were_extended_together_end_alone(harness: Harness) -> None:
    tasks = await start_many(harness, 10)
    for task, outcome in zip(tasks, (Outcome.COMPLETED, Outcome.RELEASED, Outcome.FAILED), strict=False):
        await harness.settle(task, outcome)
    await harness.engine.act([Cancel(tasks[3].id)], now=harness.now)
    harness.later(10 * SECOND)
    outcomes = await extend_all(harness, tasks)
    assert outcomes == [ExtendOutcome.LOST] * 3 + [ExtendOutcome.CANCEL] + [ExtendOutcome.HELD] * 6
    assert await ends(harness, tasks) == [None] * 3 + [60] * 7
    again = await harness.take(tasks[1].id)
    assert again.lease > tasks[1].lease
    harness.later(10 * SECOND)
    await extend_all(harness, tasks[3:])
    assert await ends(harness, [again, *tasks[3:]]) == [20] + [60] * 7
    assert (await harness.record(again.id)).state is State.RUNNING


async def test_one_of_many_reports_progress(harness: Harness) -> None:
    tasks = await start_many(harness, 10)
    harness.later(10 * SECOND)
    report = Extension(lease_of(tasks[4]), MINUTE, progress=0.5, message="half")
    others = [Extension(lease_of(task), MINUTE) for task in tasks if task is not tasks[4]]
    await harness.engine.extend([report, *others], now=harness.now)
    assert await ends(harness, tasks) == [60] * 10
    harness.later(10 * SECOND)
    await extend_all(harness, tasks)
    records = await harness.records([task.id for task in tasks])
    assert [record.progress for record in records] == [None] * 4 + [0.5] + [None] * 5
    assert await ends(harness, tasks) == [60] * 10


async def test_more_than_one_rescue_takes_are_rescued_in_turn(harness: Harness) -> None:
    tasks = await start_many(harness, RESCUE_BATCH + 10)
    late = await harness.start()
    harness.later(MINUTE)
    first = await harness.engine.rescue(now=harness.now)
    second = await harness.engine.rescue(now=harness.now)
    assert (len(first.ids), first.more, second.more) == (RESCUE_BATCH, True, False)
    assert sorted(first.ids + second.ids) == sorted([*(task.id for task in tasks), late.id])


async def test_what_was_extended_together_is_found_again_by_its_claim(harness: Harness) -> None:
    await harness.add_many(6)
    tasks = await harness.claim(6, sequence=7)
    harness.later(10 * SECOND)
    await extend_all(harness, tasks)
    harness.later(10 * SECOND)
    again = await harness.claim(6, sequence=7, repeat=True)
    assert [(task.id, task.lease) for task in again] == [(task.id, task.lease) for task in tasks]
    assert [task.lease_expires_at - harness.now for task in again] == [50 * SECOND] * 6
