"""`app.queues`, `app.tasks` and `app.workers`."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from dibs import Dibs, Filter, State
from dibs.client import tasks as tasks_module
from dibs.client.steps import StepInfo
from dibs.client.tasks import Acted
from dibs.core.task import QueueState, WorkerState
from dibs.errors import (
    InvalidOption,
    QueueDraining,
    QueueNotEmpty,
    UnknownQueue,
    UnknownStep,
    UnknownTask,
    UnknownWorker,
    WrongState,
)
from dibs.testing import ManualClock

from .conftest import TIMEOUT


@pytest.fixture
def shop(still: Dibs) -> Dibs:
    """An app with a task called `work`."""

    @still.task(name="work")
    def work(number: int = 0) -> int:
        return number

    @still.task(name="other")
    def other(text: str) -> None: ...

    return still


def add(app: Dibs, count: int = 1, **options: object) -> list[str]:
    task = app.task_named("work").using(**options)  # type: ignore[arg-type]
    return [task.enqueue(number).id for number in range(count)]


def bury(app: Dibs, error: str = "broken") -> str:
    (claim,) = app.claim()
    app.settle(claim, "permanent", error=error)
    return claim.id


# Queues.


def test_a_queue_exists_from_its_first_task_on(shop: Dibs) -> None:
    assert shop.queues.list() == []
    add(shop, 2, queue="mail")
    (info,) = shop.queues.list()
    assert (info.name, info.state, info.counts[State.PENDING]) == ("mail", QueueState.ACTIVE, 2)
    assert str(info.bound).startswith("10 min per point of priority")


def test_settings_change_one_by_one(shop: Dibs) -> None:
    shop.queues.set("mail", aging=timedelta(minutes=5), max_depth=10, retries=7)
    info = shop.queues.set("mail", max_depth=None, policy="tiers", tiers={"low": {"retries": 1}})
    assert info.settings.aging == 300_000_000
    assert info.settings.max_depth is None
    assert info.settings.defaults.retries == 7
    assert shop.queues.get("mail").settings == info.settings


def test_a_paused_queue_hands_out_nothing(shop: Dibs) -> None:
    add(shop)
    assert shop.queues.pause("default") is True
    assert shop.queues.pause("default") is False
    assert shop.claim() == []
    assert shop.queues.resume("default") is True
    assert len(shop.claim()) == 1


def test_a_draining_queue_takes_nothing_in(shop: Dibs) -> None:
    dead = add(shop)[0]
    bury(shop)
    shop.queues.drain("default")
    assert shop.queues.get("default").state is QueueState.DRAINING
    with pytest.raises(QueueDraining):
        add(shop)
    with pytest.raises(QueueDraining, match="can't be replayed: its queue is draining"):
        shop.tasks.replay(dead)


def test_a_queue_with_tasks_is_only_deleted_by_force(shop: Dibs) -> None:
    (task,) = add(shop)
    with pytest.raises(QueueNotEmpty, match="Drain it first, or delete it with force"):
        shop.queues.delete("default")
    shop.queues.delete("default", force=True)
    info = shop.tasks.get(task)
    assert (info.state, info.reason) == (State.DEAD, "queue")
    assert shop.tasks.replay(task, queue="elsewhere") is True
    assert shop.tasks.get(task).queue == "elsewhere"


def test_queues_that_are_not_there(shop: Dibs) -> None:
    acts = [shop.queues.get, shop.queues.pause, shop.queues.resume, shop.queues.drain, shop.queues.delete, shop.bound]
    for act in acts:
        with pytest.raises(UnknownQueue, match="no queue is called 'mial'"):
            act("mial")


def test_async_faces(shop: Dibs) -> None:
    async def use() -> list[object]:
        await shop.queues.aset("mail", max_depth=3)
        await shop.queues.apause("mail")
        handle = await shop.task_named("work").using(queue="mail").aenqueue()
        page = await shop.tasks.asearch(Filter(queue="mail"))
        count = await shop.tasks.acount()
        await shop.tasks.aedit(handle.id, priority=1)
        info = await handle.arefresh()
        why = await shop.awhy(handle.id)
        stats = await shop.astats("mail")
        return [
            (await shop.queues.aget("mail")).state,
            len(page.tasks),
            str(count),
            info.priority,
            str(why),
            stats.counts[State.PENDING],
            len(await shop.apeek("mail")),
            (await shop.aposition(handle.id))[0],
            await handle.acancel(),
            [line.event for line in await handle.ahistory()],
            await shop.workers.alist(),
        ]

    paused = "queue 'mail' is paused: nothing is handed out until it is resumed."
    expected = [QueueState.PAUSED, 1, "1", 1, paused, 1, 1, 0, "cancelled", ["edited", "cancelled"], []]
    assert asyncio.run(use()) == expected


# Tasks: finding them.


def test_search_by_everything(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.task_named("other").using(
        queue="mail", priority=80, key="k", metadata={"tenant": 3}, tenant="t", per="p"
    ).enqueue("needle")
    middle = dibs_clock.advance(60)
    dibs_clock.advance(60)
    add(shop, 2, delay=5)
    searches = {
        "state": Filter(state="pending"),
        "states": Filter(state=["pending", "running"]),
        "queue": Filter(queue="mail"),
        "name": Filter(name=["other"]),
        "priority": Filter(priority_min=60),
        "names of priorities": Filter(priority_min="high", priority_max="critical"),
        "time": Filter(created_before=middle),
        "metadata": Filter(metadata={"tenant": 3}),
        "key": Filter(key="k"),
        "tenant": Filter(tenant="t"),
        "partition": Filter(partition="p"),
        "text": Filter(text="needle"),
    }
    found = {what: [task.name for task in shop.tasks.search(each).tasks] for what, each in searches.items()}
    assert found == {key: ["other"] for key in searches}
    assert len(shop.tasks.search(Filter(created_after=middle)).tasks) == 2
    assert shop.tasks.count(Filter(state="scheduled")).count == 2


def test_counting_stops_after_so_many_rows(shop: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of states and queues are exact at any number; others end at a budget of rows, whatever matches."""
    add(shop, 30)
    monkeypatch.setattr(tasks_module, "VISIT_LIMIT", 10)
    monkeypatch.setattr(tasks_module, "BATCH", 5)
    assert str(shop.tasks.count()) == "30"
    assert str(shop.tasks.count(Filter(state="pending", queue="default"))) == "30"
    assert str(shop.tasks.count(Filter(priority_min=1))) == "5 or more"
    assert str(shop.tasks.count(Filter(priority_min=99))) == "0"
    assert shop.tasks.cancel_matching(Filter(), dry_run=True) == Acted(30, 0, True)
    assert shop.tasks.cancel_matching(Filter(priority_min=1), dry_run=True) == Acted(5, 0, True, more=True)


def test_pages_go_from_new_to_old(shop: Dibs) -> None:
    ids = add(shop, 25)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = shop.tasks.search(limit=10, cursor=cursor)
        seen += [task.id for task in page.tasks]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == sorted(ids, reverse=True)


def test_an_unknown_state_is_refused(shop: Dibs) -> None:
    with pytest.raises(InvalidOption, match=r"no state is called 'pendign'\. Did you mean 'pending'\?"):
        shop.tasks.search(Filter(state="pendign"))


# Tasks: one at a time.


def test_edit_changes_a_waiting_task(shop: Dibs, dibs_clock: ManualClock) -> None:
    (task,) = add(shop)
    deadline = dibs_clock.time + timedelta(hours=2)
    assert shop.tasks.edit(task, priority="critical", deadline=deadline, metadata={"a": 1}) is True
    assert shop.tasks.edit(task, priority=90) is False
    assert shop.tasks.edit(task, delay=30) is True
    info = shop.tasks.get(task)
    assert (info.priority, info.deadline, info.metadata) == (90, deadline, {"a": 1})
    assert (info.state, info.due_at) == (State.SCHEDULED, dibs_clock.time + timedelta(seconds=30))
    with pytest.raises(InvalidOption, match="delay and at both say when"):
        shop.tasks.edit(task, delay=1, at=deadline)


def test_cancel_one(shop: Dibs) -> None:
    (task,) = add(shop)
    assert shop.tasks.cancel(task, "wrong customer") == "cancelled"
    assert not shop.tasks.cancel(task)
    info = shop.tasks.get(task)
    assert (info.state, info.reason, info.note) == (State.CANCELLED, "user", "wrong customer")


def test_cancel_asks_a_running_task(shop: Dibs) -> None:
    (task,) = add(shop)
    (claim,) = shop.claim()
    assert shop.tasks.cancel(task, "stop") == "asked to stop"
    assert shop.tasks.get(task).cancel_requested
    shop.extend(claim)
    assert claim.cancelled
    shop.settle(claim, "cancelled")
    assert shop.tasks.get(task).state is State.CANCELLED


def test_replay_and_purge_one(shop: Dibs) -> None:
    (task,) = add(shop)
    with pytest.raises(WrongState, match="only dead tasks can be replayed"):
        shop.tasks.replay(task)
    with pytest.raises(WrongState, match="has not ended: cancel it first"):
        shop.tasks.purge(task)
    bury(shop)
    assert shop.tasks.replay(task, reset=False) is True
    assert shop.tasks.get(task).failed_attempts == 1
    bury(shop)
    assert shop.tasks.purge(task) is True
    for act in (shop.tasks.get, shop.tasks.cancel, shop.tasks.replay, shop.tasks.purge, shop.why):
        with pytest.raises(UnknownTask):
            act(task)


# Tasks: all that match.


def test_cancel_all_that_match(shop: Dibs) -> None:
    add(shop, 600)
    add(shop, 3, queue="mail")
    wanted = Filter(queue="default")
    dry = shop.tasks.cancel_matching(wanted, dry_run=True)
    assert (dry.matched, dry.changed, dry.dry_run) == (600, 0, True)
    wet = shop.tasks.cancel_matching(wanted, reason="cleaning up")
    assert (wet.matched, wet.changed, wet.dry_run) == (600, 600, False)
    assert shop.queues.get("mail").counts[State.PENDING] == 3
    assert shop.tasks.cancel_matching(wanted).matched == 0


def test_progress_is_shown_while_waiting(shop: Dibs) -> None:
    add(shop, 600)
    seen: list[StepInfo] = []
    done = shop.tasks.cancel_matching(Filter(), progress=seen.append)
    assert [(step.matched, step.changed, step.is_done) for step in seen] == [(600, 500, False), (600, 600, True)]
    assert {step.id for step in seen} == {done.step}


def test_a_step_that_is_not_waited_for(shop: Dibs, dibs_clock: ManualClock) -> None:
    add(shop, 3)
    begun = shop.tasks.cancel_matching(Filter(), wait=False)
    assert (begun.matched, begun.changed, begun.dry_run) == (3, 0, False)
    assert begun.step is not None
    (listed,) = shop.steps.list()
    assert listed == shop.steps.get(begun.step)
    assert (listed.act, listed.queue, listed.asked_at, listed.is_done) == ("cancel", None, dibs_clock.time, False)
    done = shop.steps.finish(begun.step)
    assert (done.visited, done.changed, done.ended_at) == (3, 3, dibs_clock.time)
    assert shop.steps.get(begun.step) == done


def test_a_worker_goes_on_with_it(app: Dibs) -> None:
    @app.task(name="work")
    def work(number: int = 0) -> None: ...

    add(app, 3)
    app.queues.pause("default")
    begun = app.tasks.cancel_matching(Filter(), wait=False)
    assert begun.step is not None
    with app.worker():
        until = time.monotonic() + TIMEOUT
        while not app.steps.get(begun.step).is_done:
            assert time.monotonic() < until
            time.sleep(0.01)
    assert app.steps.get(begun.step).changed == 3


def test_unknown_steps(shop: Dibs) -> None:
    for step in ("nonsense", "0190163d-8694-739b-aea5-966c26f8ad91"):
        with pytest.raises(UnknownStep, match=step):
            shop.steps.get(step)
        with pytest.raises(UnknownStep, match=step):
            shop.steps.finish(step)


def test_edit_replay_and_purge_all_that_match(shop: Dibs, dibs_clock: ManualClock) -> None:
    add(shop, 4)
    dibs_clock.advance(1)
    assert shop.tasks.edit_matching(Filter(), priority="low").changed == 4
    for _ in range(3):
        bury(shop)
    dibs_clock.advance(1)
    assert shop.tasks.replay_matching(Filter(text="broken"), dry_run=True).matched == 3
    assert shop.tasks.replay_matching(Filter(text="broken")).changed == 3
    assert shop.tasks.purge_matching(Filter()).matched == 0
    bury(shop)
    dibs_clock.advance(1)
    assert shop.tasks.purge_matching(Filter(state=["dead", "pending"])).changed == 1
    assert shop.queues.get("default").counts == {**dict.fromkeys(State, 0), State.PENDING: 3}


def test_what_is_done_is_audited(shop: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_ACTOR", "ada")
    (task,) = add(shop)
    shop.queues.pause("default")
    shop.tasks.cancel(task)
    entries = shop.hub.runner.run(shop.hub.engine.audit())
    assert [(entry.actor, entry.act, entry.target) for entry in entries[:2]] == [
        ("ada", "cancel", task),
        ("ada", "set queue paused", "default"),
    ]


# Workers.


def test_workers_can_be_seen_and_steered(app: Dibs) -> None:
    @app.task(name="work")
    def work() -> None: ...

    with app.worker(name="w1", concurrency=3, capabilities=["gpu"]):
        (info,) = app.workers.list()
        assert (info.id, info.state, info.concurrency, info.queues) == ("w1", WorkerState.ACTIVE, 3, ("default",))
        assert info.names == ("work",)
        assert "gpu" in info.capabilities
        assert app.workers.pause("w1") is True
        assert app.workers.pause("w1") is False
        assert app.workers.resume("w1") is True
    assert app.workers.list() == []


def test_a_drained_worker_leaves(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    worker = app.worker(name="w1").start()
    app.workers.drain("w1")
    report = worker.wait(TIMEOUT)
    assert report is not None
    assert report.code == 0


def test_workers_that_are_not_there(app: Dibs) -> None:
    for act in (app.workers.pause, app.workers.resume, app.workers.drain):
        with pytest.raises(UnknownWorker, match="no worker has the id 'w9'"):
            act("w9")


# The audit log, chores and dependents.


def test_the_audit_log_tells_who_did_what(shop: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_ACTOR", "ada")
    assert shop.audit() == []
    first, second = add(shop, 2)
    shop.tasks.cancel(first, "not wanted")
    shop.queues.pause("default")
    newest, oldest = shop.audit()
    assert (oldest.actor, oldest.act, oldest.target, oldest.detail) == ("ada", "cancel", first, "not wanted")
    assert newest.target == "default"
    assert newest.at == shop.tasks.get(second).created_at
    assert shop.audit(limit=1) == [newest]
    assert shop.audit(before=newest.n) == [oldest]
    assert (oldest.ids, oldest.before["state"], oldest.after["state"]) == ((first,), "pending", "cancelled")
    assert (newest.before, newest.after) == ({"state": "active"}, {"state": "paused"})
    with pytest.raises(InvalidOption, match="limit"):
        shop.audit(limit=0)
    with pytest.raises(InvalidOption, match="before"):
        shop.audit(before="yesterday")  # type: ignore[arg-type]


def test_chores_tell_of_their_last_run(still: Dibs, dibs_clock: ManualClock) -> None:
    before = still.chores()
    assert {(chore.at, chore.took, chore.done, chore.total, chore.more) for chore in before} == {(None, 0, 0, 0, False)}
    assert {(chore.late, chore.behind_since) for chore in before} == {(False, None)}
    until = time.monotonic() + TIMEOUT
    with still.worker():
        while any(chore.at is None for chore in still.chores()) and time.monotonic() < until:
            time.sleep(0.01)
    after = still.chores()
    assert [chore.name for chore in after] == [chore.name for chore in before]
    assert {chore.at for chore in after} == {dibs_clock.time}
    assert not any(chore.late for chore in after)
    dibs_clock.advance(180)
    assert all(chore.late for chore in still.chores()), "no worker leads"


def test_the_dependents_of_a_task(shop: Dibs) -> None:
    work = shop.task_named("work")
    first = work.enqueue(1)
    second, third = (work.using(after=[first]).enqueue(number) for number in (2, 3))
    assert [info.id for info in first.dependents()] == [second.id, third.id]
    assert [info.state for info in shop.tasks.dependents(first.id, limit=1)] == [State.BLOCKED]
    assert second.dependents() == shop.tasks.dependents("nobody") == []
    assert asyncio.run(first.adependents()) == first.dependents()


# What a task shows.


def test_effective_priority_is_shown_of_pending_tasks(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.queues.set("default", aging=60)
    (task,) = add(shop, priority=40)
    add(shop, delay=60)
    dibs_clock.advance(30)
    assert shop.tasks.get(task).effective_priority == 40.5
    assert [info.effective_priority for info in shop.tasks.search().tasks] == [None, 40.5]
    assert [info.effective_priority for info in shop.peek()] == [40.5]


def test_a_task_tells_when_it_was_changed(shop: Dibs, dibs_clock: ManualClock) -> None:
    (task,) = add(shop)
    made = dibs_clock.time
    assert shop.tasks.get(task).updated_at == made
    dibs_clock.advance(10)
    shop.tasks.edit(task, priority=7)
    assert shop.tasks.get(task).updated_at == made + timedelta(seconds=10)


def test_attempts_are_counted_and_numbered(shop: Dibs, dibs_clock: ManualClock) -> None:
    (task,) = add(shop)

    def told() -> tuple[int, int]:
        info = shop.tasks.get(task)
        return info.failed_attempts, info.attempt

    assert told() == (0, 0)
    (claim,) = shop.claim()
    assert told() == (0, 1)
    shop.settle(claim, "failed", error="no", after=1)
    assert told() == (1, 1)
    dibs_clock.advance(1)
    (claim,) = shop.claim()
    assert told() == (1, 2)
    shop.settle(claim)
    assert told() == (1, 2)


def test_history_says_when_each_run_started_and_how_long_it_took(shop: Dibs, dibs_clock: ManualClock) -> None:
    (task,) = add(shop)
    (claim,) = shop.claim()
    started = dibs_clock.time
    dibs_clock.advance(2.5)
    shop.settle(claim, "failed", error="no", after=60)
    shop.tasks.edit(task, delay=120, priority=3)
    failed, edited = shop.tasks.history(task)
    assert (failed.started_at, failed.ran, failed.at) == (started, 2.5, dibs_clock.time)
    assert (edited.started_at, edited.ran) == (None, None)
    assert edited.note == "priority=3, due_at=2026-01-01 12:02:02 UTC"


def test_a_note_is_left_in_the_words_of_its_author(shop: Dibs) -> None:
    (task,) = add(shop)
    shop.tasks.cancel(task, "see deadline=5")
    assert [line.note for line in shop.tasks.history(task)] == ["see deadline=5"]


def test_search_by_partition(shop: Dibs) -> None:
    (mine,) = add(shop, per="ada")
    add(shop, per="bob")
    add(shop)
    page = shop.tasks.search(Filter(partition="ada"))
    assert ([info.id for info in page.tasks], page.cursor) == ([mine], None)
    assert shop.tasks.cancel_matching(Filter(partition="ada")).changed == 1


def test_edit_all_that_match_in_every_way(shop: Dibs, dibs_clock: ManualClock) -> None:
    ids = add(shop, 3, queue="mail")
    (other,) = add(shop)
    later = dibs_clock.time + timedelta(hours=1)
    changes: dict[str, Any] = {"priority": "low", "delay": 60, "deadline": later, "expires": later}
    assert shop.tasks.edit_matching(Filter(queue="mail"), dry_run=True, **changes).matched == 3
    assert shop.tasks.edit_matching(Filter(queue="mail"), **changes, metadata={"a": 1}).changed == 3
    for info in (shop.tasks.get(task_id) for task_id in ids):
        assert (info.state, info.priority, info.metadata) == (State.SCHEDULED, 30, {"a": 1})
        assert (info.due_at, info.deadline, info.expires_at) == (dibs_clock.time + timedelta(minutes=1), later, later)
    assert shop.tasks.get(other).priority == 50
    assert shop.tasks.edit_matching(Filter(queue="mail"), at=dibs_clock.time).changed == 3
    assert shop.tasks.edit_matching(Filter(queue="mail"), deadline=60, expires=timedelta(hours=2)).changed == 3
    info = shop.tasks.get(ids[0])
    assert (info.deadline, info.expires_at) == (
        dibs_clock.time + timedelta(minutes=1),
        dibs_clock.time + timedelta(hours=2),
    )
    with pytest.raises(InvalidOption, match="nothing to change"):
        shop.tasks.edit_matching(Filter(queue="mail"))
    with pytest.raises(InvalidOption, match="delay and at"):
        shop.tasks.edit_matching(Filter(queue="mail"), delay=1, at=later)
    with pytest.raises(InvalidOption, match="priorty"):
        shop.tasks.edit_matching(Filter(queue="mail"), priorty=1)  # type: ignore[call-arg]


# The audit log.


def test_the_audit_log_can_be_filtered(shop: Dibs, dibs_clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = add(shop, 3)
    monkeypatch.setenv("DIBS_ACTOR", "ada")
    shop.tasks.edit(ids[0], priority=7)
    shop.tasks.cancel_matching(Filter())
    dibs_clock.advance(60)
    monkeypatch.setenv("DIBS_ACTOR", "bob")
    shop.queues.pause("default")
    assert {line.actor for line in shop.audit()} == {"ada", "bob"}
    assert {line.actor for line in shop.audit(actor="ada")} == {"ada"}
    assert [line.target for line in shop.audit(act="edit")] == [ids[0]]
    assert [line.act for line in shop.audit(since=dibs_clock.time)] == [shop.audit(1)[0].act]
    assert "edit" in [line.act for line in shop.audit(target=ids[0])]
    (newest,) = shop.audit(1)
    assert shop.audit(before=newest.n) == shop.audit()[1:]
    assert shop.audit(1, actor="ada", before=newest.n) == shop.audit(actor="ada")[:1]
    assert shop.audit(actor="eve") == []
