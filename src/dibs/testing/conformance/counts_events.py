"""counters: totals that only grow, by queue, and by name and tier where the task is known."""

from __future__ import annotations

from collections import Counter as Tally

from dibs.core.graph import Rule
from dibs.core.settings import Tier
from dibs.core.states import State
from dibs.core.task import Edit, Failure, Outcome, QueueState
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.figures import OTHER_ERRORS, Counter, KindCounts
from dibs.engines.values import Cancel, Purge, Query, Replay
from dibs.testing.conformance.harness import QUEUE, Harness


async def kinds(harness: Harness) -> dict[tuple[str, str, Tier], KindCounts]:
    return {(each.queue, each.name, each.tier): each for each in (await harness.engine.counts()).kinds}


async def check_kinds(harness: Harness) -> None:
    """The counts by kind equal what a look at every task finds, and add up to those by queue."""
    counts = await harness.engine.counts()
    found = (await harness.engine.search(Query(limit=1_000))).records
    tiers = {30: Tier.LOW, 45: Tier.MEDIUM, 50: Tier.MEDIUM, 70: Tier.HIGH, 90: Tier.CRITICAL, 100: Tier.CRITICAL}
    seen = Tally((each.queue, each.name, tiers[each.spec.priority], each.state) for each in found)
    assert seen == {(k.queue, k.name, k.tier, state): n for k in counts.kinds for state, n in k.states.items()}
    for queue, counters in counts.counters.items():
        of_kinds: Tally[Counter] = Tally()
        for kind in counts.kinds:
            if kind.queue == queue:
                of_kinds.update(kind.counters)
        rest = {Counter.DUPLICATES, Counter.REJECTED, Counter.LIMITED}
        assert of_kinds == {counter: n for counter, n in counters.items() if counter not in rest}


async def fail(harness: Harness, outcome: Outcome = Outcome.FAILED, **facts: object) -> None:
    """Claim the next task, and let its attempt fail."""
    (task,) = await harness.claim()
    await harness.settle(task, outcome, **facts)


async def test_by_name_and_tier(harness: Harness) -> None:
    await harness.add_many(2, name="send", priority=30)
    await harness.add(name="send", priority=90)
    await harness.add(name="index", priority=45, delay=HOUR)
    assert await kinds(harness) == {
        (QUEUE, "index", Tier.MEDIUM): KindCounts(
            queue=QUEUE,
            name="index",
            tier=Tier.MEDIUM,
            states={State.SCHEDULED: 1},
            counters={Counter.ENQUEUED: 1},
        ),
        (QUEUE, "send", Tier.CRITICAL): KindCounts(
            queue=QUEUE,
            name="send",
            tier=Tier.CRITICAL,
            states={State.PENDING: 1},
            counters={Counter.ENQUEUED: 1},
        ),
        (QUEUE, "send", Tier.LOW): KindCounts(
            queue=QUEUE, name="send", tier=Tier.LOW, states={State.PENDING: 2}, counters={Counter.ENQUEUED: 2}
        ),
    }


async def test_kinds_add_up_after_every_move(harness: Harness) -> None:
    """Tasks keep the tier of the priority that they were submitted with, or edited to."""
    for priority in (30, 45, 50, 70, 90, 100):
        await harness.add_many(3, priority=priority, name=f"of-{priority % 20}")
    need = await harness.add(priority=30)
    await harness.follow(need, priority=100)  # from now on it is ranked by 100, and still a low one
    await check_kinds(harness)
    tasks = await harness.claim(12)
    await check_kinds(harness)
    for number, task in enumerate(tasks):
        await harness.settle(task, list(Outcome)[number % len(Outcome)], delay=SECOND)
        await check_kinds(harness)
    harness.later(HOUR)
    left = await harness.claim(4)
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    assert await harness.counter(Counter.LOSSES) == len(left) == 4
    await check_kinds(harness)
    page = (await harness.engine.search(Query(limit=1_000))).records
    waiting = [each.id for each in page if each.state in (State.PENDING, State.SCHEDULED)]
    await harness.engine.act([Edit(id=each, priority=90) for each in waiting[:3]], now=harness.now)
    await harness.engine.act([Cancel(each) for each in waiting[3:5]], now=harness.now)
    await check_kinds(harness)
    dead = [each.id for each in page if each.state is State.DEAD]
    await harness.engine.act([Replay(each, queue="other") for each in dead], now=harness.now)
    await check_kinds(harness)
    await harness.engine.delete_queue(QUEUE, force=True, now=harness.now)
    await check_kinds(harness)


async def test_completions_outlive_the_tasks(harness: Harness) -> None:
    for _ in range(3):
        await harness.ended()
    purged = await harness.ended()
    await harness.engine.act([Purge(purged)], now=harness.now)
    harness.later(60 * DAY)
    await harness.all_chores()
    assert await harness.counts() == {}
    assert await harness.counter(Counter.COMPLETIONS) == 4
    assert (await kinds(harness))[QUEUE, "work", Tier.MEDIUM].counters[Counter.COMPLETIONS] == 4


async def test_completions_in_bulk_and_one_by_one(harness: Harness) -> None:
    """A task for which others wait takes another way than the rest."""
    ids = await harness.add_many(5)
    await harness.follow(ids[0])
    for task in await harness.claim(5):
        await harness.settle(task)
    assert await harness.counter(Counter.COMPLETIONS) == 5


async def test_failures_and_retries(harness: Harness) -> None:
    await harness.add()
    await fail(harness)
    harness.later(HOUR)
    await fail(harness, timed_out=True)
    harness.later(HOUR)
    await fail(harness, Outcome.PERMANENT, timed_out=True)
    counters = (await harness.engine.counts()).counters[QUEUE]
    wanted = {
        Counter.FAILURES: 3,
        Counter.TIMEOUTS: 2,
        Counter.RETRIES: 2,
        Counter.TIMEOUT_RETRIES: 1,
        Counter.DEAD_PERMANENT: 1,
    }
    assert {counter: n for counter, n in counters.items() if counter in wanted} == wanted
    assert set(counters) == {*wanted, Counter.ENQUEUED, Counter.CLAIMED}


async def test_an_attempt_that_ends_cancelled_is_no_failure(harness: Harness) -> None:
    task = await harness.start()
    await harness.engine.act([Cancel(task.id)], now=harness.now)
    await harness.settle(task, Outcome.FAILED, timed_out=True, failure=Failure(type="E", message=""))
    counts = await harness.engine.counts()
    assert counts.counters[QUEUE] == {Counter.ENQUEUED: 1, Counter.CLAIMED: 1, Counter.CANCELLED_USER: 1}
    assert counts.errors == {}


async def test_runs_that_are_handed_back(harness: Harness) -> None:
    await harness.settle(await harness.start(), Outcome.RELEASED)
    (task,) = await harness.claim()
    await harness.settle(task, Outcome.SNOOZED, delay=SECOND)
    assert await harness.counter(Counter.RELEASES) == await harness.counter(Counter.SNOOZES) == 1
    assert await harness.counter(Counter.FAILURES) == await harness.counter(Counter.RETRIES) == 0


async def test_deaths_by_reason(harness: Harness) -> None:
    await harness.ended(Outcome.PERMANENT)
    need = await harness.add()
    await harness.follow(need, rule=Rule.FAIL, queue="after")
    await fail(harness, Outcome.PERMANENT)
    await harness.run_follow_ups()
    task = await harness.start(queue="lost")
    for _ in range(6):
        harness.later(DAY)
        await harness.engine.rescue(now=harness.now)
        harness.later(DAY)
        await harness.claim(queues=("lost",))
    assert await harness.state(task.id) is State.DEAD
    await harness.add(queue="gone")
    await harness.engine.delete_queue("gone", force=True, now=harness.now)
    assert await harness.counter(Counter.DEAD_PERMANENT) == 2
    assert await harness.counter(Counter.DEAD_DEPENDENCY, "after") == 1
    assert await harness.counter(Counter.DEAD_LOST, "lost") == 1
    assert await harness.counter(Counter.LOSSES, "lost") == 6
    assert await harness.counter(Counter.DEAD_QUEUE, "gone") == 1


async def test_exhausted_tasks(harness: Harness) -> None:
    await harness.add()
    for _ in range(20):
        for task in await harness.claim():
            await harness.settle(task, Outcome.FAILED)
        harness.later(HOUR)
    assert await harness.counts() == {State.DEAD: 1}
    retries = await harness.counter(Counter.RETRIES)
    assert await harness.counter(Counter.FAILURES) == retries + 1
    assert await harness.counter(Counter.DEAD_EXHAUSTED) == 1


async def test_cancellations_by_reason(harness: Harness) -> None:
    await harness.engine.act([Cancel(await harness.add())], now=harness.now)
    running = await harness.start()
    await harness.engine.act([Cancel(running.id)], now=harness.now)
    assert await harness.counter(Counter.CANCELLED_USER) == 1
    await harness.settle(running, Outcome.CANCELLED)
    await harness.add(expires_at=harness.now + SECOND)
    harness.later(MINUTE)
    assert await harness.claim() == []
    need = await harness.add()
    await harness.follow(need)
    await fail(harness, Outcome.PERMANENT)
    await harness.run_follow_ups()
    assert await harness.counter(Counter.CANCELLED_USER) == 2
    assert await harness.counter(Counter.CANCELLED_EXPIRED) == 1
    assert await harness.counter(Counter.CANCELLED_DEPENDENCY) == 1


async def test_a_task_that_ends_with_its_enqueue(harness: Harness) -> None:
    dead = await harness.ended(Outcome.PERMANENT)
    await harness.follow(dead)
    await harness.follow(dead, rule=Rule.FAIL)
    assert await harness.counter(Counter.ENQUEUED) == 3
    assert await harness.counter(Counter.CANCELLED_DEPENDENCY) == 1
    assert await harness.counter(Counter.DEAD_DEPENDENCY) == 1


async def test_promotions_between_tiers(harness: Harness) -> None:
    await harness.set_queue(policy="tiers", promote_low=600, promote_medium=1200)
    for priority in (30, 30, 50, 70, 90):
        await harness.add(priority=priority)
    harness.later(600 * SECOND)
    await harness.rerank()
    assert (await harness.counter(Counter.PROMOTED_MEDIUM), await harness.counter(Counter.PROMOTED_HIGH)) == (2, 0)
    harness.later(600 * SECOND)
    await harness.rerank()
    await harness.rerank()
    assert (await harness.counter(Counter.PROMOTED_MEDIUM), await harness.counter(Counter.PROMOTED_HIGH)) == (2, 3)
    found = await kinds(harness)
    assert found[QUEUE, "work", Tier.LOW].counters[Counter.PROMOTED_HIGH] == 2
    assert found[QUEUE, "work", Tier.LOW].states == {State.PENDING: 2}


async def test_a_tier_that_was_passed_is_counted(harness: Harness) -> None:
    await harness.set_queue(policy="tiers", promote_low=600, promote_medium=1200)
    await harness.add(priority=30)
    harness.later(HOUR)
    await harness.rerank()
    assert (await harness.counter(Counter.PROMOTED_MEDIUM), await harness.counter(Counter.PROMOTED_HIGH)) == (1, 1)


async def test_only_waiting_promotes(harness: Harness) -> None:
    """Neither an edit, nor another policy, nor an inherited urgency."""
    task_id = await harness.add(priority=30)
    await harness.set_queue(policy="tiers")
    await harness.rerank()
    await harness.engine.act([Edit(id=task_id, priority=50)], now=harness.now)
    await harness.follow(task_id, priority=70)
    assert (await harness.record(task_id)).inherited == 70
    assert (await harness.counter(Counter.PROMOTED_MEDIUM), await harness.counter(Counter.PROMOTED_HIGH)) == (0, 0)


async def test_refused_at_the_door(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=1, enqueue_burst=1)
    await harness.outcomes(*(harness.new(client="a") for _ in range(3)))
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    await harness.outcomes(harness.new(client="b"))
    assert (await harness.counter(Counter.LIMITED), await harness.counter(Counter.REJECTED)) == (2, 1)
    assert not any(Counter.LIMITED in kind.counters for kind in (await harness.engine.counts()).kinds)


async def test_errors_by_type(harness: Harness) -> None:
    await harness.add_many(3)
    for task, kind in zip(await harness.claim(3), ("ValueError", "OSError", "ValueError"), strict=True):
        await harness.settle(task, Outcome.PERMANENT, failure=Failure(type=kind, message="no"))
    assert (await harness.engine.counts()).errors == {QUEUE: {"ValueError": 2, "OSError": 1}}


async def test_types_of_errors_are_bounded(harness: Harness) -> None:
    """Whether they come together or one by one, in the end or after a chore."""
    await harness.add_many(40)
    for number, task in enumerate(await harness.claim(40)):
        await harness.settle(task, Outcome.PERMANENT, failure=Failure(type=f"Error{number}", message=""))
    await harness.all_chores()
    await harness.add_many(40)
    for number, task in enumerate(await harness.claim(40)):
        await harness.settle(task, Outcome.PERMANENT, failure=Failure(type=f"Error{number + 20}", message=""))
    errors = (await harness.engine.counts()).errors[QUEUE]
    assert len(errors) == 51
    assert sum(errors.values()) == 80
    assert errors[OTHER_ERRORS] == 10
    assert errors["Error20"] == 2


async def test_odd_types_of_errors(harness: Harness) -> None:
    await harness.add_many(2)
    odd = Failure(type="a\0b" + "x" * 500, message="")
    for task in await harness.claim(2):
        await harness.settle(task, Outcome.PERMANENT, failure=odd)
    ((kind, n),) = (await harness.engine.counts()).errors[QUEUE].items()
    assert (kind[:3], len(kind), n) == ("abx", 100, 2)
