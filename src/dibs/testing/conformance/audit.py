"""audit: one entry per admin call that changed something, newest first."""

from __future__ import annotations

from dibs.core.task import Edit, Outcome, QueueState, WorkerState
from dibs.core.times import SECOND
from dibs.engines.values import Cancel, Purge, Replay
from dibs.testing.conformance.harness import QUEUE, Harness


async def entries(harness: Harness) -> list[tuple[str, str, str]]:
    """Actor, first word of the act, and target, oldest first."""
    audit = await harness.engine.audit()
    return [(entry.actor, entry.act.replace("_", " ").split()[0], entry.target) for entry in reversed(audit)]


async def test_every_admin_verb_is_remembered(harness: Harness) -> None:
    engine = harness.engine
    pending, other, dead = (
        await harness.add(),
        await harness.add(),
        await harness.ended(Outcome.PERMANENT, queue="dead"),
    )
    await harness.beat("w")
    assert await entries(harness) == []
    await engine.act([Edit(id=pending, priority=60)], actor="ada", now=harness.now)
    await engine.act([Cancel(pending, "why"), Cancel(other, "why")], actor="bob", now=harness.now)
    await engine.act([Replay(dead)], actor="cyd", now=harness.now)
    await engine.act([Purge(pending)], actor="dan", now=harness.now)
    record = await harness.queue()
    assert record is not None
    await engine.set_queue(QUEUE, record.settings, expected=1, actor="eve", now=harness.now)
    await engine.set_queue_state(QUEUE, QueueState.PAUSED, actor="fay", now=harness.now)
    await engine.delete_queue(QUEUE, actor="gus", now=harness.now)
    await engine.set_worker_state("w", WorkerState.PAUSED, actor="hal", now=harness.now)
    assert await entries(harness) == [
        ("ada", "edit", pending),
        ("bob", "cancel", "2 tasks"),
        ("cyd", "replay", dead),
        ("dan", "purge", pending),
        ("eve", "set", QUEUE),
        ("fay", "set", QUEUE),
        ("gus", "delete", QUEUE),
        ("hal", "set", "w"),
    ]


async def test_one_entry_for_waiting_and_running_alike(harness: Harness) -> None:
    first, second = await harness.start(), await harness.start()
    waiting = await harness.add()
    await harness.engine.act([Cancel(first.id), Cancel(second.id), Cancel(waiting)], actor="ada", now=harness.now)
    assert await entries(harness) == [("ada", "cancel", "3 tasks")]


async def test_no_change_no_entry(harness: Harness) -> None:
    task_id = await harness.add()
    unknown = harness.new_id()
    await harness.engine.act([Cancel(unknown)], now=harness.now)
    await harness.engine.act([Edit(id=task_id, priority=50)], now=harness.now)
    await harness.engine.act([Replay(task_id)], now=harness.now)
    await harness.engine.act([Purge(task_id)], now=harness.now)
    await harness.engine.set_queue_state(QUEUE, QueueState.ACTIVE, now=harness.now)
    await harness.engine.delete_queue(QUEUE, now=harness.now)
    await harness.engine.set_worker_state("nobody", WorkerState.PAUSED, now=harness.now)
    assert await entries(harness) == []


async def test_newest_first_with_a_limit(harness: Harness) -> None:
    ids = await harness.add_many(5)
    for task_id in ids:
        harness.later(SECOND)
        await harness.engine.act([Cancel(task_id, "n")], actor="ada", now=harness.now)
    audit = await harness.engine.audit(2)
    assert [entry.target for entry in audit] == [ids[4], ids[3]]
    assert (audit[0].at, audit[0].detail) == (harness.now, "n")
    assert await harness.engine.audit(0) == []
