"""Follow-ups: what a verb can't do within its budget is durable, and claims continue it to the end."""

from __future__ import annotations

from dibs.core.graph import FOLLOW_UP_BUDGET, Rule
from dibs.core.states import State
from dibs.core.task import Edit, Outcome, Settlement
from dibs.core.times import HOUR
from dibs.engines.values import (
    Cancel,
    CancelWorkflow,
    Changed,
    ClaimRequest,
    Purge,
    Replay,
    ReplayWorkflow,
)
from dibs.testing.conformance.harness import QUEUE, Harness, edges, lease_of

BLOCKED, PENDING = State.BLOCKED, State.PENDING
COMPLETED, CANCELLED, DEAD = State.COMPLETED, State.CANCELLED, State.DEAD

MANY = 2 * FOLLOW_UP_BUDGET + 500
LINKS = FOLLOW_UP_BUDGET + 100
"""A chain that one verb can't follow to its end. Engines go link by link, so a longer one would only take longer."""

STEPS = 10
"""Claims within which any follow-up of this size must be done."""


async def fan_out(harness: Harness, rule: Rule = Rule.CANCEL) -> tuple[str, list[str]]:
    """A task that is more followed than one verb can follow up."""
    need = await harness.add(queue="needs")
    return need, await harness.add_many(MANY, after=edges(need, rule=rule))


async def test_a_wide_fan_out_is_unblocked_in_bounded_steps(harness: Harness) -> None:
    need, followers = await fan_out(harness)
    await harness.finish(need)
    counts = await harness.counts()
    assert counts[BLOCKED] >= MANY - FOLLOW_UP_BUDGET
    assert counts[BLOCKED] + counts.get(PENDING, 0) == MANY
    assert await harness.run_follow_ups(STEPS) >= 1
    assert await harness.counts() == {PENDING: MANY}
    assert await harness.states(followers[0], followers[-1]) == [PENDING, PENDING]
    assert await harness.followers(need) == []


async def test_a_claim_says_that_there_is_more_to_do(harness: Harness) -> None:
    need, _ = await fan_out(harness)
    await harness.add(delay=HOUR)
    task = await harness.take(need)
    await harness.settle(task)
    steps = 0
    while (answer := await harness.claims(0)).next_due_in == 0:
        steps += 1
        assert steps < STEPS
    assert answer.next_due_in == HOUR
    assert (await harness.counts())[PENDING] == MANY


async def test_a_claim_gives_while_it_goes_on(harness: Harness) -> None:
    need, followers = await fan_out(harness)
    await harness.finish(need)
    claimed: list[str] = []
    for _ in range(STEPS):
        claimed += await harness.claim_ids(MANY)
    assert sorted(claimed) == followers


async def test_another_engine_on_the_store_goes_on_with_it(harness: Harness) -> None:
    need, _ = await fan_out(harness)
    await harness.finish(need)
    sibling = harness.engine.sibling()
    await sibling.open()
    try:
        for sequence in range(STEPS):
            request = ClaimRequest(worker="sibling", sequence=sequence, queues=("nowhere",), limit=1)
            if (await sibling.claim(request, now=harness.now)).next_due_in != 0:
                break
    finally:
        await sibling.close()
    assert await harness.counts() == {PENDING: MANY}


async def test_a_failure_reaches_everybody(harness: Harness) -> None:
    need, followers = await fan_out(harness)
    last = await harness.follow(followers[-1], queue="last")
    await harness.finish(need, Outcome.PERMANENT)
    await harness.run_follow_ups(STEPS)
    assert await harness.counts() == {CANCELLED: MANY}
    assert (await harness.record(followers[-1])).note == f"{need} is dead"
    assert await harness.state(last) is CANCELLED


async def test_everybody_is_told_of_the_same_end(harness: Harness) -> None:
    """Even when it is undone while they are being told."""
    need, followers = await fan_out(harness, Rule.FAIL)
    await harness.finish(need, Outcome.PERMANENT)
    assert await harness.engine.act([Replay(need)], now=harness.now) == [Changed.DONE]
    await harness.run_follow_ups(STEPS)
    assert await harness.counts() == {DEAD: MANY}
    assert (await harness.record(followers[-1])).note == f"{need} is dead"


async def test_the_end_outlives_the_task(harness: Harness) -> None:
    need, _ = await fan_out(harness, Rule.RUN)
    await harness.finish(need, Outcome.PERMANENT)
    assert await harness.engine.act([Purge(need)], now=harness.now) == [Changed.DONE]
    await harness.run_follow_ups(STEPS)
    assert await harness.counts() == {PENDING: MANY}


async def test_a_new_dependent_need_not_wait_for_the_others_to_be_told(harness: Harness) -> None:
    need, _ = await fan_out(harness)
    await harness.finish(need)
    assert await harness.state(await harness.follow(need, queue="later")) is PENDING


async def test_a_dependent_that_is_not_told_yet_can_be_cancelled(harness: Harness) -> None:
    need, followers = await fan_out(harness)
    await harness.finish(need)
    await harness.engine.act([Cancel(each) for each in followers], now=harness.now)
    await harness.run_follow_ups(STEPS)
    assert await harness.counts() == {CANCELLED: MANY}
    for task_id in (followers[0], followers[-1]):
        assert len(await harness.events(task_id)) == 1


async def test_a_wide_fan_in_runs_after_the_last(harness: Harness) -> None:
    needs = await harness.add_many(MANY, queue="needs")
    follower = await harness.follow(*needs)
    assert (await harness.engine.edges([needs[-1]], followers=100))[0].followers == [follower]
    tasks = await harness.claim(MANY, queues=("needs",))
    done = [Settlement(lease=lease_of(task), outcome=Outcome.COMPLETED) for task in tasks[:-1]]
    assert {answer.state for answer in await harness.engine.settle(done, now=harness.now)} == {COMPLETED}
    await harness.run_follow_ups(STEPS)
    assert await harness.state(follower) is BLOCKED
    assert sum(await harness.is_open(follower)) == 1
    await harness.settle(tasks[-1])
    assert await harness.state(follower) is PENDING


async def test_leaving_a_wide_fan_in_closes_every_edge(harness: Harness) -> None:
    needs = await harness.add_many(MANY, queue="needs", priority=10)
    follower = await harness.follow(*needs, priority=90)
    await harness.run_follow_ups(STEPS)
    assert (await harness.record(needs[-1])).inherited == 90
    await harness.engine.act([Cancel(follower)], now=harness.now)
    await harness.run_follow_ups(STEPS)
    assert not any(await harness.is_open(follower))
    assert {record.inherited for record in await harness.records(needs)} == {0}


async def test_a_long_chain_falls_to_its_end(harness: Harness) -> None:
    tasks = [harness.new()]
    for _ in range(LINKS):
        tasks.append(harness.new(queue="chain", after=edges(tasks[-1].id)))
    await harness.enqueue(*tasks)
    await harness.finish(tasks[0].id, Outcome.PERMANENT)
    await harness.run_follow_ups(STEPS)
    assert await harness.counts("chain") == {CANCELLED: LINKS}
    assert (await harness.record(tasks[-1].id)).note == f"{tasks[-2].id} is cancelled"


async def test_urgency_climbs_a_long_chain(harness: Harness) -> None:
    tasks = [harness.new(priority=10)]
    for _ in range(LINKS):
        tasks.append(harness.new(priority=10, after=edges(tasks[-1].id)))
    await harness.enqueue(*tasks)
    await harness.engine.act([Edit(id=tasks[-1].id, priority=90)], now=harness.now)
    await harness.run_follow_ups(STEPS)
    ids = [task.id for task in tasks[:-1]]
    assert {record.inherited for record in await harness.records(ids)} == {90}
    await harness.engine.act([Cancel(tasks[-1].id)], now=harness.now)
    await harness.run_follow_ups(STEPS)
    assert (await harness.record(tasks[0].id)).inherited == 10


async def test_a_large_workflow_is_cancelled_and_replayed(harness: Harness) -> None:
    need = harness.new(queue="needs")
    followers = [harness.new(after=edges(need.id, rule=Rule.FAIL)) for _ in range(MANY)]
    workflow_id = await harness.begin(need, *followers)
    await harness.finish(need.id, Outcome.PERMANENT)
    assert (await harness.engine.act([ReplayWorkflow(workflow_id)], now=harness.now))[0] is Changed.DONE
    await harness.run_follow_ups(STEPS)
    assert await harness.counts() == {BLOCKED: MANY}, "those that were still to die died first"
    assert await harness.state(need.id) is PENDING
    assert (await harness.engine.act([CancelWorkflow(workflow_id)], now=harness.now))[0] is Changed.DONE
    await harness.run_follow_ups(STEPS)
    assert await harness.counts() == {CANCELLED: MANY}
    assert (await harness.engine.act([CancelWorkflow(workflow_id)], now=harness.now))[0] is Changed.UNCHANGED


async def test_a_deleted_queue_is_an_end_for_many(harness: Harness) -> None:
    _, followers = await fan_out(harness)
    assert await harness.engine.delete_queue("needs", force=True, now=harness.now) is Changed.DONE
    await harness.run_follow_ups(STEPS)
    assert await harness.counts(QUEUE) == {CANCELLED: len(followers)}
