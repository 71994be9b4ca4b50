"""act: all kinds of acts in one call, done in their order; what each kind does is in the modules beside this one."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Edit, HistoryEvent, Outcome
from dibs.core.times import HOUR, SECOND
from dibs.engines.values import Act, Cancel, CancelWorkflow, Changed, Purge, Replay, ReplayWorkflow
from dibs.testing.conformance.harness import Harness


async def test_nothing(harness: Harness) -> None:
    assert await harness.engine.act([], now=harness.now) == []
    assert await harness.engine.audit() == []


async def test_each_has_its_answer_in_the_order_asked(harness: Harness) -> None:
    running, dead = await harness.start(), await harness.ended(Outcome.PERMANENT, queue="dead")
    waiting, workflow = await harness.add(), await harness.begin(harness.new(queue="flow"))
    acts: list[Act] = [
        Purge(dead),
        Cancel(running.id),
        Edit(id=waiting, priority=60),
        Replay(dead),
        CancelWorkflow(workflow),
        ReplayWorkflow(workflow),
        Edit(id=waiting, priority=60),
        Cancel(waiting, "no"),
        Cancel(harness.new_id()),
    ]
    assert await harness.engine.act(acts, actor="ada", now=harness.now) == [
        Changed.DONE,
        Changed.REQUESTED,
        Changed.DONE,
        Changed.UNKNOWN,
        Changed.DONE,
        Changed.UNCHANGED,
        Changed.UNCHANGED,
        Changed.DONE,
        Changed.UNKNOWN,
    ]
    assert await harness.state(waiting) is State.CANCELLED
    assert await harness.engine.get([dead]) == [None]


async def test_later_acts_see_what_earlier_ones_did(harness: Harness) -> None:
    task_id, dead = await harness.add(), await harness.ended(Outcome.PERMANENT, queue="dead")
    acts: list[Act] = [
        Cancel(task_id),
        Purge(task_id),
        Replay(dead),
        Edit(id=dead, priority=90),
        Cancel(dead),
        Cancel(dead),
    ]
    answers = [Changed.DONE] * 5 + [Changed.WRONG_STATE]
    assert await harness.engine.act(acts, now=harness.now) == answers
    assert await harness.engine.get([task_id]) == [None]
    assert (await harness.record(dead)).spec.priority == 90
    assert await harness.counts() == {}
    assert await harness.counts("dead") == {State.CANCELLED: 1}


async def test_acts_of_one_kind_are_one_entry_in_the_audit_log(harness: Harness) -> None:
    first, second, third = await harness.add_many(3)
    acts: list[Act] = [
        Edit(id=first, priority=60),
        Edit(id=second, priority=70),
        Cancel(first),
        Cancel(second),
        Cancel(third, "no"),
    ]
    await harness.engine.act(acts, actor="ada", now=harness.now)
    told = [(entry.act, entry.target, entry.detail) for entry in reversed(await harness.engine.audit())]
    assert told == [("edit", "2 tasks", ""), ("cancel", "2 tasks", ""), ("cancel", third, "no")]


async def test_what_waits_is_released_in_their_order(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need)
    assert await harness.engine.act([Cancel(need), Purge(need)], now=harness.now) == [Changed.DONE] * 2
    await harness.run_follow_ups()
    assert await harness.state(follower) is State.CANCELLED


async def test_an_act_is_a_change(harness: Harness) -> None:
    """A record tells when it was last changed, also where it shows no other time."""
    task_id = await harness.add()
    for act in (Edit(id=task_id, priority=60), Edit(id=task_id, due_at=harness.now + HOUR)):
        harness.later(SECOND)
        await harness.engine.act([act], now=harness.now)
        assert (await harness.record(task_id)).updated_at == harness.now
    running, dead = await harness.start(), await harness.ended(Outcome.PERMANENT, queue="dead")
    harness.later(SECOND)
    await harness.engine.act([Cancel(running.id), Replay(dead)], now=harness.now)
    assert [record.updated_at for record in await harness.records([running.id, dead])] == [harness.now] * 2


async def test_what_ends_no_run_tells_no_start(harness: Harness) -> None:
    running, waiting = await harness.start(), await harness.add()
    await harness.engine.act([Cancel(running.id), Edit(id=waiting, priority=60), Cancel(waiting)], now=harness.now)
    entries = [*await harness.engine.history(running.id), *await harness.engine.history(waiting)]
    assert [(entry.event, entry.started_at) for entry in entries] == [
        (HistoryEvent.CANCEL_REQUESTED, None),
        (HistoryEvent.EDITED, None),
        (HistoryEvent.CANCELLED, None),
    ]
