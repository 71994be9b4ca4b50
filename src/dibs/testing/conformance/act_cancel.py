"""cancel: waiting tasks end, running ones are asked to, and the first act wins."""

from __future__ import annotations

from dibs.core.states import Reason, State
from dibs.core.task import HistoryEvent, Outcome
from dibs.core.times import HOUR, SECOND
from dibs.engines.values import Cancel, Changed, SettleOutcome
from dibs.testing.conformance.harness import Harness

CANCELLED, REQUESTED = Changed.DONE, Changed.REQUESTED
ENDED, UNKNOWN = Changed.WRONG_STATE, Changed.UNKNOWN


async def cancel(harness: Harness, *ids: str) -> list[Changed]:
    return await harness.engine.act([Cancel(each, "not needed") for each in ids], actor="ada", now=harness.now)


async def test_every_waiting_state_ends(harness: Harness) -> None:
    retrying = await harness.start()
    await harness.settle(retrying, Outcome.FAILED, delay=HOUR)
    pending, scheduled = await harness.add(), await harness.add(delay=HOUR)
    harness.later(SECOND)
    ids = [pending, scheduled, retrying.id]
    assert await cancel(harness, *ids) == [CANCELLED] * 3
    for task_id in ids:
        record = await harness.record(task_id)
        assert (record.state, record.reason, record.note) == (State.CANCELLED, Reason.USER, "not needed")
        assert (record.finished_at, record.due_at) == (harness.now, None)
        entry = (await harness.engine.history(task_id))[-1]
        assert (entry.event, entry.actor, entry.note) == (HistoryEvent.CANCELLED, "ada", "not needed")
    assert await harness.counts() == {State.CANCELLED: 3}


async def test_cancelled_task_never_runs(harness: Harness) -> None:
    ids = [await harness.add(), await harness.add(delay=SECOND)]
    await cancel(harness, *ids)
    harness.later(HOUR)
    answer = await harness.claims(5)
    assert (answer.tasks, answer.next_due_in) == ([], None)


async def test_running_task_is_asked(harness: Harness) -> None:
    task = await harness.start()
    assert await cancel(harness, task.id) == [REQUESTED]
    record = await harness.record(task.id)
    assert (record.state, record.cancel_reason) == (State.RUNNING, "not needed")
    (entry,) = await harness.engine.history(task.id)
    assert (entry.event, entry.actor) == (HistoryEvent.CANCEL_REQUESTED, "ada")


async def test_repeat_adds_nothing(harness: Harness) -> None:
    task, waiting = await harness.start(), await harness.add()
    await cancel(harness, task.id, waiting)
    harness.later(SECOND)
    assert await cancel(harness, task.id, waiting) == [REQUESTED, ENDED]
    assert len(await harness.engine.history(task.id)) == 1
    assert len(await harness.engine.history(waiting)) == 1
    assert len(await harness.engine.audit()) == 1


async def test_a_request_without_a_note_is_one(harness: Harness) -> None:
    task = await harness.start()
    await harness.engine.act([Cancel(task.id)], now=harness.now)
    await harness.settle(task, Outcome.RELEASED)
    assert await harness.state(task.id) is State.CANCELLED


async def test_ended_and_unknown_tasks(harness: Harness) -> None:
    completed, dead = await harness.ended(), await harness.ended(Outcome.PERMANENT)
    assert await cancel(harness, dead, harness.new_id(), completed) == [ENDED, UNKNOWN, ENDED]
    assert [await harness.state(completed), await harness.state(dead)] == [State.COMPLETED, State.DEAD]


async def test_twice_in_one_call(harness: Harness) -> None:
    task_id = await harness.add()
    assert await cancel(harness, task_id, task_id) == [CANCELLED, ENDED]
    assert await harness.counts() == {State.CANCELLED: 1}


async def test_completion_that_arrives_first_wins(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task)
    assert await cancel(harness, task.id) == [ENDED]
    assert await harness.state(task.id) is State.COMPLETED


async def test_completion_after_the_request_wins(harness: Harness) -> None:
    task = await harness.start()
    await cancel(harness, task.id)
    assert await harness.settle(task) is SettleOutcome.DONE
    assert await cancel(harness, task.id) == [ENDED]


async def test_cancel_before_the_claim_wins(harness: Harness) -> None:
    first, second = await harness.add(), await harness.add()
    await cancel(harness, first)
    assert await harness.claim_ids(5) == [second]


async def test_nothing_is_nothing(harness: Harness) -> None:
    assert await cancel(harness) == []
    assert await harness.engine.audit() == []
