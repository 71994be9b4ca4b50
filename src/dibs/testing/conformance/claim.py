"""claim: what is due becomes pending, and the most urgent tasks that the worker can run are leased, once each."""

from __future__ import annotations

from msgspec import structs

from dibs.core.settings import Defaults
from dibs.core.states import State
from dibs.core.task import Outcome, QueueState
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.figures import Counter
from dibs.engines.values import ClaimRequest
from dibs.testing.conformance.harness import QUEUE, WORKER, Harness, lease_of

GIVEN = ("id", "queue", "name", "args", "spec")


async def test_gives_the_task_with_all_that_it_needs(harness: Harness) -> None:
    task = harness.new(
        args=b'{"n":1}',
        priority=60,
        deadline=harness.now + DAY,
        metadata={"a": 1},
        headers={"h": "x"},
        parent=harness.new_id(),
        partition="p",
        tenant="t",
        workflow=harness.new_id(),
        takes=True,
    )
    await harness.enqueue(task)
    ready_at = harness.now
    harness.later(SECOND)
    (leased,) = await harness.claim()
    for name in GIVEN:
        assert getattr(leased, name) == getattr(task, name)
    assert leased.lease > 0
    assert (leased.attempts, leased.losses, leased.attempt) == (0, 0, 1)
    assert (leased.claimed_at, leased.ready_at) == (harness.now, ready_at)
    assert leased.lease_expires_at == harness.now + leased.options.lease


async def test_records_who_runs_it(harness: Harness) -> None:
    task_id = await harness.add()
    (leased,) = await harness.claim(worker="someone", sequence=41)
    record = await harness.record(task_id)
    assert (record.state, record.worker, record.sequence) == (State.RUNNING, "someone", 41)
    assert record.lease == leased.lease
    assert record.started_at == harness.now
    assert record.lease_expires_at == harness.now + record.options.lease


async def test_lease_of_the_claim_beats_that_of_the_task(harness: Harness) -> None:
    await harness.add(options=Defaults(lease=70 * SECOND))
    await harness.add(options=Defaults(lease=70 * SECOND))
    (by_task,) = await harness.claim()
    (by_claim,) = await harness.claim(lease=5 * SECOND)
    assert by_task.lease_expires_at == harness.now + 70 * SECOND
    assert by_claim.lease_expires_at == harness.now + 5 * SECOND


async def test_urgent_first_then_first_come(harness: Harness) -> None:
    priorities = [10, 90, 50, 90, 50, 100, 0]
    ids = [await harness.add(priority=priority) for priority in priorities]
    expected = [ids[5], ids[1], ids[3], ids[2], ids[4], ids[0], ids[6]]
    assert await harness.claim_ids(3) == expected[:3]
    assert await harness.claim_ids(10) == expected[3:]
    assert await harness.claim_ids(10) == []


async def test_waiting_makes_up_for_priority(harness: Harness) -> None:
    patient = await harness.add(priority=40)
    harness.later(10 * 600 * SECOND - 1)
    just_in_time = await harness.add(priority=50)
    harness.later(2)
    too_late = await harness.add(priority=50)
    assert await harness.claim_ids(3) == [just_in_time, patient, too_late]


async def test_ties_go_by_id(harness: Harness) -> None:
    first, second, third = harness.new(), harness.new(), harness.new()
    await harness.enqueue(third, first, second)
    assert await harness.claim_ids(3) == [first.id, second.id, third.id]


async def test_limit_is_kept(harness: Harness) -> None:
    await harness.add_many(5)
    assert len(await harness.claim(2)) == 2
    assert await harness.counts() == {State.PENDING: 3, State.RUNNING: 2}


async def test_a_leased_task_is_given_to_nobody_else(harness: Harness) -> None:
    await harness.start()
    assert await harness.claim(10, worker="other") == []
    harness.later(DAY)
    assert await harness.claim(10, worker="other") == []


async def test_unknown_queue_gives_nothing_and_stays_unknown(harness: Harness) -> None:
    assert await harness.claim(10, queues=("nowhere",)) == []
    assert await harness.engine.queues() == []


async def test_lease_numbers_grow(harness: Harness) -> None:
    task = await harness.start()
    for _ in range(4):
        before = task.lease
        await harness.settle(task, Outcome.RELEASED)
        task = await harness.take(task.id)
        assert task.lease > before


async def test_scheduled_task_is_claimed_when_due(harness: Harness) -> None:
    task_id = await harness.add(delay=MINUTE)
    harness.later(MINUTE - 1)
    assert await harness.claim() == []
    harness.later(1)
    (leased,) = await harness.claim()
    assert (leased.id, leased.ready_at) == (task_id, harness.now)


async def test_promotes_what_is_due_in_all_queues(harness: Harness) -> None:
    elsewhere = await harness.add(queue="elsewhere", delay=MINUTE)
    later = await harness.add(queue="elsewhere", delay=HOUR)
    harness.later(MINUTE)
    await harness.claim()
    record = await harness.record(elsewhere)
    assert (record.state, record.due_at, record.ready_at) == (State.PENDING, None, harness.now)
    assert await harness.state(later) is State.SCHEDULED


async def test_late_promotion_has_waited_since_its_due_time(harness: Harness) -> None:
    due_early = await harness.add(delay=MINUTE)
    harness.later(2 * MINUTE)
    fresh = await harness.add()
    assert await harness.claim_ids(2) == [due_early, fresh]


async def test_promotion_is_bounded_and_by_due_time(harness: Harness) -> None:
    late = await harness.add_many(100, delay=2 * SECOND)
    early = await harness.add_many(1_000, delay=SECOND)
    harness.later(MINUTE)
    await harness.claim(1, queues=("nowhere",))
    assert await harness.counts() == {State.PENDING: 1_000, State.SCHEDULED: 100}
    assert await harness.state(late[0]) is State.SCHEDULED
    assert await harness.state(early[-1]) is State.PENDING
    await harness.claim(1, queues=("nowhere",))
    assert await harness.counts() == {State.PENDING: 1_100}


async def test_tells_when_the_next_task_falls_due(harness: Harness) -> None:
    assert (await harness.claims()).next_due_in is None
    await harness.add(delay=HOUR, queue="elsewhere")
    await harness.add(delay=DAY)
    assert (await harness.claims()).next_due_in == HOUR
    harness.later(MINUTE)
    assert (await harness.claims()).next_due_in == HOUR - MINUTE


async def test_retrying_task_falls_due_too(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task, Outcome.FAILED, delay=MINUTE)
    answer = await harness.claims()
    assert (answer.tasks, answer.next_due_in) == ([], MINUTE)
    harness.later(MINUTE)
    answer = await harness.claims()
    assert [leased.id for leased in answer.tasks] == [task.id]
    assert answer.next_due_in is None


async def test_counts_claims(harness: Harness) -> None:
    await harness.add_many(3)
    await harness.claim(2)
    assert await harness.counter(Counter.CLAIMED) == 2


async def test_paused_queue_gives_nothing_but_promotes(harness: Harness) -> None:
    await harness.add(delay=SECOND)
    other = await harness.add(queue="other")
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    harness.later(SECOND)
    assert await harness.claim_ids(5, queues=(QUEUE, "other")) == [other]
    assert await harness.counts() == {State.PENDING: 1}
    await harness.engine.set_queue_state(QUEUE, QueueState.ACTIVE, now=harness.now)
    assert len(await harness.claim(5)) == 1


async def test_draining_queue_gives_what_it_has(harness: Harness) -> None:
    await harness.add_many(2)
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    assert len(await harness.claim(5)) == 2


async def test_unknown_names_neither_block_nor_vanish(harness: Harness) -> None:
    strange = await harness.add_many(300, name="strange", priority=100)
    known = await harness.add_many(2, name="known", priority=0)
    assert await harness.claim_ids(5, names=("known", "also known")) == known
    assert await harness.claim_ids(5, names=("known",)) == []
    assert await harness.claim_ids(500, names=("strange",)) == strange


async def test_no_name_known_gives_nothing(harness: Harness) -> None:
    await harness.add()
    assert await harness.claim(5, names=()) == []
    assert len(await harness.claim(5, names=None)) == 1


async def test_requirements_must_all_be_offered(harness: Harness) -> None:
    both = await harness.add_many(100, requires=("gpu", "host:a"), priority=100)
    gpu = await harness.add(requires=("gpu",), priority=90)
    plain = await harness.add(priority=10)
    assert await harness.claim_ids(500, names=None) == [plain]
    assert await harness.claim_ids(500, capabilities=("gpu", "spare")) == [gpu]
    assert await harness.claim_ids(500, capabilities=("host:a",)) == []
    assert await harness.claim_ids(500, capabilities=("host:a", "gpu")) == both


async def test_kinds_are_merged_by_rank(harness: Harness) -> None:
    facts: list[tuple[int, str, tuple[str, ...]]] = [
        (50, "a", ()),
        (90, "b", ("gpu",)),
        (70, "a", ("gpu",)),
        (60, "b", ()),
        (90, "a", ()),
        (95, "c", ()),
    ]
    ids = [await harness.add(priority=p, name=name, requires=requires) for p, name, requires in facts]
    claimed = await harness.claim_ids(10, names=("a", "b"), capabilities=("gpu",))
    assert claimed == [ids[1], ids[4], ids[2], ids[3], ids[0]]


async def test_queues_are_merged_by_effective_priority(harness: Harness) -> None:
    a_50 = await harness.add(queue="a", priority=50)
    b_90 = await harness.add(queue="b", priority=90)
    harness.later(SECOND)
    a_70 = await harness.add(queue="a", priority=70)
    b_60 = await harness.add(queue="b", priority=60)
    assert await harness.claim_ids(10, queues=("a", "b")) == [b_90, a_70, b_60, a_50]


async def test_merge_compares_what_ageing_made_of_priorities(harness: Harness) -> None:
    await harness.set_queue("fast", aging=1)
    fast = await harness.add(queue="fast", priority=10)
    await harness.add(queue="slow", priority=50)
    harness.later(41 * SECOND)
    assert await harness.claim_ids(1, queues=("slow", "fast")) == [fast]


async def test_equal_heads_go_by_ready_time_then_by_the_order_given(harness: Harness) -> None:
    await harness.set_queue("a", policy="strict")
    b = await harness.add(queue="b")
    a = await harness.add(queue="a")
    c = await harness.add(queue="c")
    assert await harness.claim_ids(3, queues=("c", "a", "b")) == [c, a, b]


async def test_beyond_a_hundred_the_longer_ready_goes_first(harness: Harness) -> None:
    await harness.set_queue("fast", aging=1)
    await harness.set_queue("strict", policy="strict")
    strict = await harness.add(queue="strict", priority=100)
    harness.later(1)
    fast = await harness.add(queue="fast", priority=100)
    harness.later(HOUR)
    assert await harness.claim_ids(2, queues=("fast", "strict")) == [strict, fast]


async def test_in_order_serves_queues_strictly_in_turn(harness: Harness) -> None:
    low = await harness.add_many(2, queue="first", priority=0)
    high = await harness.add_many(2, queue="second", priority=100)
    assert await harness.claim_ids(3, queues=("first", "second"), in_order=True) == [*low, high[0]]


async def test_in_order_goes_on_past_limits(harness: Harness) -> None:
    await harness.set_queue("first", max_concurrent=1)
    first = await harness.add_many(2, queue="first")
    second = await harness.add_many(2, queue="second")
    assert await harness.claim_ids(5, queues=("first", "second"), in_order=True) == [first[0], *second]


async def test_repeat_returns_the_same_leases(harness: Harness) -> None:
    await harness.add_many(5)
    request = harness.request(3)
    first = (await harness.engine.claim(request, now=harness.now)).tasks
    harness.later(SECOND)
    again = (await harness.engine.claim(structs.replace(request, repeat=True), now=harness.now)).tasks
    assert {lease_of(task) for task in again} == {lease_of(task) for task in first}
    assert {task.id: task for task in again} == {task.id: task for task in first}
    assert await harness.counts() == {State.PENDING: 2, State.RUNNING: 3}
    assert await harness.counter(Counter.CLAIMED) == 3


async def test_repeat_of_a_claim_that_never_arrived_claims(harness: Harness) -> None:
    ids = await harness.add_many(2)
    assert await harness.claim_ids(1, repeat=True) == [ids[0]]


async def test_repeat_returns_what_still_runs(harness: Harness) -> None:
    await harness.add_many(3)
    request = harness.request(2)
    first, second = (await harness.engine.claim(request, now=harness.now)).tasks
    await harness.settle(first)
    again = (await harness.engine.claim(structs.replace(request, repeat=True), now=harness.now)).tasks
    assert [lease_of(task) for task in again] == [lease_of(second)]


async def test_repeat_knows_its_own_worker_and_sequence(harness: Harness) -> None:
    await harness.add_many(3)
    (mine,) = await harness.claim(worker="a", sequence=1)
    (theirs,) = await harness.claim(worker="b", sequence=1, repeat=True)
    (next_one,) = await harness.claim(worker="a", sequence=2, repeat=True)
    assert len({mine.id, theirs.id, next_one.id}) == 3


async def test_a_run_does_not_age_a_task(harness: Harness) -> None:
    ran = await harness.start(priority=50)
    harness.later(HOUR)
    await harness.settle(ran, Outcome.RELEASED)
    harness.later(-1)
    waited = await harness.add(priority=50)
    harness.later(1)
    assert await harness.claim_ids(2) == [waited, ran.id]


async def test_waiting_before_a_run_is_kept(harness: Harness) -> None:
    task_id = await harness.add(priority=50)
    harness.later(MINUTE)
    leased = await harness.take(task_id)
    harness.later(HOUR)
    fresh = await harness.add(priority=50)
    await harness.settle(leased, Outcome.RELEASED)
    assert (await harness.record(task_id)).ready_at == harness.now - MINUTE
    assert await harness.claim_ids(2) == [task_id, fresh]


async def test_two_engines_on_one_store_share_it(harness: Harness) -> None:
    sibling = harness.engine.sibling()
    await sibling.open()
    try:
        await harness.add_many(2)
        request = ClaimRequest(worker="sibling", sequence=1, queues=(QUEUE,), limit=1)
        (theirs,) = (await sibling.claim(request, now=harness.now)).tasks
        (mine,) = await harness.claim(5, worker=WORKER)
        assert mine.id != theirs.id
    finally:
        await sibling.close()
