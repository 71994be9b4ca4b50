"""after: a task waits for others until they have ended, and each edge says what their end means for it."""

from __future__ import annotations

from dibs.core.graph import Edge, Rule
from dibs.core.states import Reason, State
from dibs.core.task import EndedBy, HistoryEvent, Outcome
from dibs.core.times import DAY
from dibs.engines.figures import Counter
from dibs.engines.port import at_once
from dibs.engines.values import EnqueueOutcome, Feature, Position, Purge, Query
from dibs.testing.conformance.harness import Harness, edges

__all__ = ["AFTERWARDS", "ENDS"]

BLOCKED, PENDING = State.BLOCKED, State.PENDING

COMPLETED, CANCELLED, DEAD = State.COMPLETED, State.CANCELLED, State.DEAD

UNKNOWN = EnqueueOutcome.UNKNOWN

ENDS = (Outcome.COMPLETED, Outcome.PERMANENT, Outcome.CANCELLED)

AFTERWARDS = {
    Rule.CANCEL: (PENDING, CANCELLED, CANCELLED),
    Rule.FAIL: (PENDING, DEAD, DEAD),
    Rule.RUN: (PENDING, PENDING, PENDING),
    Rule.IF_FAILED: (CANCELLED, PENDING, PENDING),
}
"""What becomes of a dependent after each of the ends."""


async def test_a_task_waits_for_another(harness: Harness) -> None:
    need = await harness.add()
    (answer,) = await harness.engine.enqueue([harness.new(after=edges(need))], now=harness.now)
    assert (answer.outcome, answer.state) == (EnqueueOutcome.ENQUEUED, BLOCKED)
    record = await harness.record(answer.id)
    assert (record.state, record.created_at, record.ready_at, record.due_at) == (BLOCKED, harness.now, None, None)
    assert await harness.counts() == {BLOCKED: 1, PENDING: 1}
    assert await harness.claim_ids(5) == [need]


async def test_every_rule_on_every_end_that_has_already_been(harness: Harness) -> None:
    for rule, states in AFTERWARDS.items():
        for outcome, state in zip(ENDS, states, strict=True):
            need = await harness.ended(outcome, queue="needs")
            new = harness.new(after=edges(need, rule=rule))
            (answer,) = await harness.engine.enqueue([new], now=harness.now)
            assert (answer.outcome, answer.id, answer.state) == (EnqueueOutcome.ENQUEUED, new.id, state), (
                rule,
                outcome,
            )
            assert await harness.state(new.id) is state
            assert await harness.is_open(new.id) == [False]


async def test_refused_at_the_door_it_is_stored_all_the_same(harness: Harness) -> None:
    need = await harness.ended(Outcome.PERMANENT)
    follower = await harness.follow(need, key="k")
    record = await harness.record(follower)
    assert (record.state, record.reason, record.note) == (CANCELLED, Reason.DEPENDENCY, f"{need} is dead")
    assert record.ended_by == EndedBy(need, State.DEAD)
    assert (record.created_at, record.finished_at, record.lease) == (harness.now, harness.now, 0)
    assert await harness.events(follower) == [HistoryEvent.CANCELLED]
    assert await harness.counts() == {CANCELLED: 1, DEAD: 1}
    assert await harness.counter(Counter.ENQUEUED) == 2
    assert await harness.outcomes(harness.new(key="k")) == [EnqueueOutcome.DUPLICATE]


async def test_refused_at_the_door_it_holds_its_key_for_the_window_only(harness: Harness) -> None:
    need = await harness.ended(Outcome.PERMANENT)
    for window, outcome in ((0, EnqueueOutcome.ENQUEUED), (DAY, EnqueueOutcome.DUPLICATE)):
        ended = harness.new(after=edges(need), key=f"{window}", window=window)
        assert await harness.outcomes(ended, harness.new(key=f"{window}")) == [EnqueueOutcome.ENQUEUED, outcome]
        assert await harness.outcomes(harness.new(key=f"{window}")) == [EnqueueOutcome.DUPLICATE]


async def test_completed_prerequisites_count_as_done(harness: Harness) -> None:
    done, open_one = await harness.ended(), await harness.add()
    follower = await harness.follow(done, open_one, done)
    assert await harness.state(follower) is BLOCKED
    assert await harness.is_open(follower) == [False, True, False]
    assert await harness.state(await harness.follow(done)) is PENDING


async def test_the_first_edge_that_says_no_decides(harness: Harness) -> None:
    failed = await harness.ended(Outcome.PERMANENT)
    waiting = await harness.add()
    for rules, state in (((Rule.CANCEL, Rule.FAIL), CANCELLED), ((Rule.RUN, Rule.FAIL, Rule.CANCEL), DEAD)):
        after = (Edge(waiting), *(Edge(failed, rule) for rule in rules))
        follower = await harness.add(after=after)
        assert await harness.state(follower) is state
        assert await harness.is_open(follower) == [False] * len(after)


async def test_two_edges_to_the_same_task(harness: Harness) -> None:
    need = await harness.add()
    both = (Edge(need, Rule.RUN), Edge(need, Rule.FAIL))
    follower = await harness.add(after=both)
    assert await harness.is_open(follower) == [True, True]
    await harness.finish(need, Outcome.PERMANENT)
    assert await harness.state(follower) is DEAD
    other = await harness.add()
    follower = await harness.add(after=(Edge(other), Edge(other, Rule.RUN)))
    await harness.finish(other)
    assert await harness.state(follower) is PENDING


async def test_without_a_loop_it_waits_as_well(harness: Harness) -> None:
    if Feature.INLINE not in harness.engine.features:
        return
    need, failed = await harness.add(), await harness.ended(Outcome.PERMANENT, queue="needs")
    waits = harness.new(after=edges(need))
    batch = [waits, harness.new(after=edges(failed)), harness.new(after=edges(harness.new_id()))]
    async with harness.blocking() as engine:
        answers = [at_once(engine.enqueue([new], now=harness.now))[0] for new in batch]
    assert [answer.state for answer in answers] == [BLOCKED, CANCELLED, None]
    assert answers[2].outcome is UNKNOWN
    await harness.finish(need)
    assert await harness.state(waits.id) is PENDING


async def test_within_a_batch(harness: Harness) -> None:
    first = harness.new()
    second = harness.new(after=edges(first.id))
    third = harness.new(after=edges(first.id, second.id))
    for atomic in (True, False):
        answers = await harness.engine.enqueue([first, second, third], atomic=atomic, now=harness.now)
        assert [answer.state for answer in answers] == [PENDING, BLOCKED, BLOCKED]
    for task in (first, second, third):
        await harness.finish(task.id)
    assert await harness.counts() == {COMPLETED: 3}


async def test_unknown_prerequisites_are_refused(harness: Harness) -> None:
    there, missing = await harness.add(), harness.new_id()
    new = harness.new(after=edges(there, missing))
    (answer,) = await harness.engine.enqueue([new], now=harness.now)
    assert (answer.outcome, answer.id) == (UNKNOWN, missing)
    assert await harness.engine.get([new.id]) == [None]
    assert await harness.followers(there) == []
    assert (await harness.counter(Counter.ENQUEUED), await harness.counter(Counter.REJECTED)) == (1, 0)


async def test_a_task_can_not_wait_for_itself_or_for_later_ones(harness: Harness) -> None:
    task_id = harness.new_id()
    (answer,) = await harness.engine.enqueue([harness.new(id=task_id, after=edges(task_id))], now=harness.now)
    assert (answer.outcome, answer.id) == (UNKNOWN, task_id)
    later = harness.new()
    assert await harness.outcomes(harness.new(after=edges(later.id)), later) == [UNKNOWN, EnqueueOutcome.ENQUEUED]


async def test_what_an_earlier_item_was_refused_is_unknown(harness: Harness) -> None:
    await harness.set_queue("full", max_depth=1)
    await harness.add(queue="full", key="k")
    full, duplicate = harness.new(queue="full"), harness.new(queue="full", key="k")
    assert await harness.outcomes(full, duplicate, harness.new(after=edges(full.id))) == [
        EnqueueOutcome.FULL,
        EnqueueOutcome.DUPLICATE,
        UNKNOWN,
    ]
    assert await harness.outcomes(duplicate, harness.new(after=edges(duplicate.id))) == [
        EnqueueOutcome.DUPLICATE,
        UNKNOWN,
    ]


async def test_unknown_spoils_an_atomic_batch(harness: Harness) -> None:
    first = harness.new()
    batch = [first, harness.new(after=edges(first.id)), harness.new(after=edges(harness.new_id()))]
    assert await harness.outcomes(*batch, atomic=True) == [EnqueueOutcome.ABANDONED, EnqueueOutcome.ABANDONED, UNKNOWN]
    assert await harness.counts() == {}
    assert [each.needs for each in await harness.engine.edges([batch[1].id])] == [[]]


async def test_prerequisites_are_looked_at_after_the_id_and_before_the_key(harness: Harness) -> None:
    need = await harness.ended()
    task = harness.new(after=edges(need), key="k")
    await harness.enqueue(task)
    await harness.engine.act([Purge(need)], now=harness.now)
    assert await harness.outcomes(task, harness.new(after=edges(need), key="k")) == [EnqueueOutcome.EXISTS, UNKNOWN]


async def test_repeats_and_keys_tell_that_it_is_blocked(harness: Harness) -> None:
    need = await harness.add()
    task = harness.new(after=edges(need), key="k")
    batch = [task, task, harness.new(key="k")]
    exists, duplicate = EnqueueOutcome.EXISTS, EnqueueOutcome.DUPLICATE
    for first in (EnqueueOutcome.ENQUEUED, exists):
        answers = await harness.engine.enqueue(batch, now=harness.now)
        assert [(answer.outcome, answer.state) for answer in answers] == [
            (first, BLOCKED),
            (exists, BLOCKED),
            (duplicate, BLOCKED),
        ]
    assert await harness.is_open(task.id) == [True]


async def test_purged_and_pruned_prerequisites_are_unknown(harness: Harness) -> None:
    await harness.set_queue(keep=86_400)
    purged, pruned = await harness.ended(), await harness.ended()
    follower = await harness.follow(purged, pruned)
    await harness.engine.act([Purge(purged)], now=harness.now)
    harness.later(3 * DAY)
    await harness.all_chores()
    for need in (purged, pruned):
        (answer,) = await harness.engine.enqueue([harness.new(after=edges(need))], now=harness.now)
        assert (answer.outcome, answer.id) == (UNKNOWN, need)
    assert await harness.state(follower) is PENDING
    assert [need.id for need in await harness.needs(follower)] == [
        purged,
        pruned,
    ]


async def test_blocked_tasks_count_for_no_depth(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    need = await harness.add()
    first, second = await harness.follow(need), await harness.follow(need)
    await harness.finish(need)
    await harness.finish(first)
    assert await harness.state(second) is PENDING
    assert await harness.outcomes(harness.new(), harness.new(after=edges(second))) == [
        EnqueueOutcome.FULL,
        EnqueueOutcome.ENQUEUED,
    ]


async def test_a_blocked_task_is_found_but_stands_in_no_line(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need)
    assert await harness.peek() == [need]
    assert await harness.position(follower) is None
    assert await harness.position(need) == Position(0)
    page = await harness.engine.search(Query(states=(BLOCKED,)))
    assert [record.id for record in page.tasks] == [follower]
