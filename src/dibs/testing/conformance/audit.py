"""audit: one entry per admin call that changed something, newest first."""

from __future__ import annotations

from typing import Any

from dibs.core.states import State
from dibs.core.task import Edit, Outcome, QueueState, WorkerState
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.values import AuditEntry, Cancel, Purge, Query, Replay
from dibs.testing.conformance.harness import QUEUE, Harness
from dibs.testing.conformance.schedule_help import NIGHTLY, delete, pause, put


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


async def last(harness: Harness) -> AuditEntry:
    return (await harness.engine.audit(1))[0]


async def changes(harness: Harness) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the newest entry says was before, and after."""
    entry = await last(harness)
    return entry.before, entry.after


async def test_pages_by_number(harness: Harness) -> None:
    ids = await harness.add_many(5)
    for task_id in ids:
        await harness.engine.act([Cancel(task_id)], now=harness.now)
    found, before = [], None
    while page := await harness.engine.audit(2, before=before):
        assert len(page) <= 2
        found += page
        before = page[-1].n
    assert [entry.target for entry in found] == list(reversed(ids))
    assert found == await harness.engine.audit()
    numbers = [entry.n for entry in found]
    assert numbers == sorted(set(numbers), reverse=True)
    assert await harness.engine.audit(before=numbers[-1]) == []


async def test_an_edit_tells_what_it_changed(harness: Harness) -> None:
    soon, late = harness.now + HOUR, harness.now + DAY
    task_id = await harness.add(priority=50, metadata={"a": 1}, deadline=soon, delay=MINUTE)
    due_at = (await harness.record(task_id)).due_at
    edit = Edit(id=task_id, priority=60, metadata={"b": [2]}, deadline=late, due_at=soon, expires_at=late)
    await harness.engine.act([edit], now=harness.now)
    before = {"priority": 50, "metadata": {"a": 1}, "deadline": soon, "due_at": due_at, "expires_at": None}
    after = {"priority": 60, "metadata": {"b": [2]}, "deadline": late, "due_at": soon, "expires_at": late}
    assert await changes(harness) == (before, after)
    await harness.engine.act([Edit(id=task_id, priority=60, deadline=soon)], now=harness.now)
    assert await changes(harness) == ({"deadline": late}, {"deadline": soon}), "the priority is as it was"
    assert (await last(harness)).ids == (task_id,)


async def test_of_several_tasks_it_tells_what_they_share(harness: Harness) -> None:
    ids = [await harness.add(priority=10), await harness.add(priority=20), await harness.add(priority=90)]
    await harness.engine.act([Edit(id=each, priority=90) for each in ids], now=harness.now)
    entry = await last(harness)
    assert (entry.target, entry.ids) == ("2 tasks", tuple(ids[:2])), "the third was so already"
    assert (entry.before, entry.after) == ({}, {"priority": 90})


async def test_it_names_at_most_a_hundred_tasks(harness: Harness) -> None:
    ids = await harness.add_many(130)
    await harness.engine.act([Cancel(each) for each in ids], now=harness.now)
    entry = await last(harness)
    assert (entry.target, entry.ids) == ("130 tasks", tuple(ids[:100]))
    assert (entry.before["state"], entry.after["state"]) == (State.PENDING, State.CANCELLED)


async def test_cancel_replay_and_purge_tell_the_states(harness: Harness) -> None:
    waiting, running = await harness.add(delay=HOUR), await harness.start()
    dead = await harness.ended(Outcome.PERMANENT, queue="dead")
    act = harness.engine.act
    await act([Cancel(waiting)], now=harness.now)
    assert await changes(harness) == (status(State.SCHEDULED), status(State.CANCELLED))
    await act([Cancel(running.id)], now=harness.now)
    assert await changes(harness) == (status(State.RUNNING), {**status(State.RUNNING), "cancel_requested": True})
    await act([Replay(dead, queue="other")], now=harness.now)
    assert await changes(harness) == (status(State.DEAD, "dead"), status(State.PENDING, "other"))
    await act([Purge(waiting)], now=harness.now)
    assert await changes(harness) == (status(State.CANCELLED), {})


def status(state: State, queue: str = QUEUE) -> dict[str, Any]:
    return {"state": state, "queue": queue}


async def test_a_queue_tells_the_settings_that_changed(harness: Harness) -> None:
    await harness.set_queue(max_depth=10, keep=60)
    assert await changes(harness) == ({"max_depth": None, "keep": 7 * DAY}, {"max_depth": 10, "keep": MINUTE})
    await harness.set_queue(max_depth=20, policy="tiers", per_task={"work": {"max_concurrent": 2}})
    before = {"max_depth": 10, "policy": "aging", "per_task": {}}
    after = {"max_depth": 20, "policy": "tiers", "per_task": {"work": {"max_concurrent": 2}}}
    assert await changes(harness) == (before, after)
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    assert await changes(harness) == ({"state": "active"}, {"state": "paused"})
    await harness.engine.delete_queue(QUEUE, now=harness.now)
    assert await changes(harness) == ({"state": "paused", "keep": MINUTE, **after}, {})


async def test_a_worker_tells_its_states(harness: Harness) -> None:
    await harness.beat("w")
    await harness.engine.set_worker_state("w", WorkerState.DRAINING, now=harness.now)
    assert await changes(harness) == ({"state": "active"}, {"state": "draining"})


async def test_a_schedule_tells_when_and_what(harness: Harness) -> None:
    await put(harness)
    made = {"state": "active", "recurrence": {"every": HOUR}, "task": "report", "queue": QUEUE}
    _, after = await changes(harness)
    assert after == {**made, "priority": 50, "args": "{}"}
    await put(harness, recurrence=NIGHTLY)
    nightly = {"cron": "30 2 * * *", "tz": "Europe/Zurich"}
    assert await changes(harness) == ({"recurrence": {"every": HOUR}}, {"recurrence": nightly})
    await pause(harness)
    assert await changes(harness) == ({"state": "active"}, {"state": "paused"})
    await delete(harness)
    before, after = await changes(harness)
    assert (before["recurrence"], before["state"], after) == (nightly, "paused", {})


async def test_an_act_on_all_that_match_tells_what_it_sets(harness: Harness) -> None:
    await harness.add()
    edit = Edit(id="", priority=70)
    await harness.engine.act_on(harness.new_id(), Query(), edit, actor="ada", now=harness.now)
    assert await changes(harness) == ({}, {"priority": 70})
