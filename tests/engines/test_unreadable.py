"""Rows that can't be read: they stay as they are, fail nothing, and are claimed once somebody can read them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dibs.core.graph import FOLLOW_UP_BUDGET, Edge
from dibs.core.ids import uuid7
from dibs.core.policy import RESCUE_BATCH
from dibs.core.recurrence import Recurrence
from dibs.core.schedules import ScheduleState
from dibs.core.settings import Limit, QueueSettings, Tier
from dibs.core.states import State
from dibs.core.task import Edit, Lease, LeasedTask, NewTask, Outcome, Settlement, TaskRecord
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines import unreadable
from dibs.engines.base import Engine
from dibs.engines.figures import Backlog, Minute
from dibs.engines.open import open_engine
from dibs.engines.postgres.engine import PostgresEngine
from dibs.engines.redis.engine import RedisEngine
from dibs.engines.sqlite.engine import SqliteEngine
from dibs.engines.values import (
    Beat,
    Cancel,
    Changed,
    Claimed,
    ClaimRequest,
    EnqueueOutcome,
    Level,
    NewWorkflow,
    Purge,
    Query,
    Replay,
    UnreadableTask,
)
from dibs.engines.verbs import retention
from dibs.errors import Unreadable
from dibs.testing.tasks import changed
from servers.damage import ENGINES, Damaged, OnSqlite, damaged

NOW = 1_760_000_000 * SECOND
numbers = count(1)

NEWER = '{"spec":{},"colour":"red"}'
"""Facts with a field that only a newer version knows."""


def new(**facts: Any) -> NewTask:
    number = next(numbers)
    plain = NewTask(id=uuid7(NOW // 1000 + number, 0, number), queue="default", name="work")
    return changed(plain, **facts)


class Store:
    """An engine, and the rows behind it."""

    def __init__(self, engine: Engine, rows: Damaged) -> None:
        self.engine = engine
        self.rows = rows
        self.now = NOW

    async def add(self, number: int = 1, **facts: Any) -> list[str]:
        tasks = [new(**facts) for _ in range(number)]
        await self.engine.enqueue(tasks, now=self.now)
        return [task.id for task in tasks]

    async def claim(self, limit: int = 100, **facts: Any) -> list[LeasedTask]:
        """Claim until nothing is left to be done at once."""
        found: list[LeasedTask] = []
        for _ in range(20):
            request = ClaimRequest(worker="w", sequence=next(numbers), queues=("default",), limit=limit, **facts)
            claimed = await self.engine.claim(request, now=self.now)
            found += claimed.tasks
            if claimed.next_due_in != 0 or len(found) >= limit:
                return found
        raise AssertionError("there is always something left to do")

    async def settle(self, tasks: list[LeasedTask], outcome: Outcome = Outcome.COMPLETED) -> None:
        reports = [Settlement(lease=Lease(task.id, task.lease), outcome=outcome) for task in tasks]
        await self.engine.settle(reports, now=self.now)

    async def state(self, task_id: str) -> State:
        (record,) = await self.engine.get([task_id])
        assert isinstance(record, TaskRecord)
        return record.state

    async def unreadable(self, task_id: str) -> UnreadableTask:
        (found,) = await self.engine.get([task_id])
        assert isinstance(found, UnreadableTask)
        return found

    async def spoil(self, task_id: str, table: str = "tasks", **columns: Any) -> None:
        """Write columns behind the engine's back; text becomes what the engine keeps JSON as."""
        stored = {name: self.rows.json(value) if name in JSON else value for name, value in columns.items()}
        assert await asyncio.to_thread(lambda: self.rows.set(table, f"id = '{task_id}'", **stored)) == 1

    async def look_at_everything(self) -> None:
        """Nothing that only looks fails, whatever is stored."""
        engine = self.engine
        page = await engine.search(Query(limit=1000))
        ids = [task.id for task in page.tasks]
        await engine.get(ids)
        await engine.edges(ids)
        for task_id in ids[:10]:
            await engine.history(task_id)
            await engine.edges([task_id], followers=100)
        for queue in ("default", "nowhere"):
            for task_id in ids[:10]:
                await engine.peek(queue, 10, until=task_id, now=self.now)
            await engine.standing(queue, ids[:10], tenants=100, now=self.now)
        for look in (engine.counts, engine.backlog, engine.queues, engine.workers, engine.schedules, engine.about):
            await look()
        await engine.workflows()
        await engine.audit()
        await engine.stats(None, 0, NOW)
        await engine.check()
        await engine.check(full=True)

    async def do_everything(self) -> None:
        """Nothing that goes on by itself fails, whatever is stored."""
        await self.engine.rescue(now=self.now)
        await self.engine.fire(now=self.now)
        await self.engine.beat(beat("w"), now=self.now)
        term = await self.engine.lead("w", now=self.now)
        assert term is not None
        for chore in (await self.engine.about()).chores:
            assert not (await self.engine.chore(chore.name, term, now=self.now)).refused
        await self.engine.resign(term)

    async def problems(self) -> list[str]:
        found = await self.engine.check(full=True)
        return [
            finding.detail for finding in found if finding.title == unreadable.TITLE and finding.level is Level.ERROR
        ]


JSON = {"facts", "progress", "args", "result", "settings", "record", "entry", "step"}


def beat(worker: str) -> Beat:
    minute = Minute(minute=NOW // MINUTE, worker=worker, queue="default", tier="medium", completed=1)
    return Beat(id=worker, host="here", pid=1, version="1", queues=("default",), names=None, minutes=[minute])


def store_of(engine: Engine) -> Any:
    """What an engine of any kind works with."""
    assert isinstance(engine, SqliteEngine | PostgresEngine | RedisEngine)
    return engine._opened()


@pytest.fixture(params=ENGINES)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs a test on a store of each engine. What is set aside is looked at again at once."""
    monkeypatch.setattr(unreadable, "LOOK_AGAIN", 0.0)
    with damaged(request.param, tmp_path) as rows:

        async def go(test: Callable[[Store], Awaitable[None]]) -> None:
            engine = open_engine(rows.url)
            await engine.open()
            try:
                await test(Store(engine, rows))
            finally:
                await engine.close()

        yield lambda test: asyncio.run(go(test))


Run = Callable[[Callable[[Store], Awaitable[None]]], None]

# Tasks.

SPOILED: list[dict[str, Any]] = [
    {"facts": NEWER},
    {"facts": '{"spec":{}'},
    {"facts": "[]"},
    {"facts": '{"spec":{"priority":"high"}}'},
    {"facts": '{"spec":{"priority":5000}}'},
    {"facts": '{"spec":{},"reason":"moonlight"}'},
    {"state": "moonlit"},
    {"track": 99_999},
    {"progress": '[null,""]'},
    {"progress": '["half",""]'},
    {"progress": '[true,""]'},
    {"progress": '[7.5,""]'},
]
ON_SQLITE: list[dict[str, Any]] = [
    {"facts": b"\x00\xff"},
    {"args": b"\x00\xff"},
    {"state": b"\xff"},
    {"rank": b"\x01"},
    {"rank": "soon"},
    {"rank": 1.5},
    {"lease": "one"},
    {"ready_at": "now"},
    {"ready_at": None},
]


def test_wherever_it_is(run: Run) -> None:
    """A row of each place is damaged, in every way: all others go on, and it can be purged."""

    async def test(store: Store) -> None:
        for columns in SPOILED:
            await spoil_each_place(store, columns)
        await store.look_at_everything()
        await store.do_everything()

    run(test)


async def spoil_each_place(store: Store, columns: dict[str, Any]) -> None:
    engine = store.engine
    dead, done, stays, lost, last = everything = await store.add(5)
    tasks = {task.id: task for task in await store.claim(4)}
    await store.settle([tasks[dead]], Outcome.PERMANENT)
    await store.settle([tasks[done]])
    await store.spoil(dead, "dead", **columns)
    await store.spoil(lost, **columns)
    await store.spoil(last, **columns)
    if "state" not in columns:  # a constraint of the layout guards it there
        await store.spoil(done, "finished", **columns)
        await store.unreadable(done)
    before = [store.rows.row("tasks", f"id = '{each}'") for each in (lost, last)]
    claimed = await store.claim()
    assert [task.id for task in claimed] == ([last] if "progress" in columns else [])  # of no concern to a claim
    await store.settle(claimed)
    store.now += HOUR
    assert (await engine.rescue(now=store.now)).ids == [stays]
    found = await store.unreadable(lost)
    assert found.problem
    assert found in (await engine.search(Query(limit=1000))).tasks
    assert lost in (await store.problems())[0]
    assert store.rows.row("tasks", f"id = '{lost}'") == before[0]
    if not claimed:
        assert store.rows.row("tasks", f"id = '{last}'") == before[1]
        assert await engine.act([Cancel(last)], now=store.now) == [Changed.UNREADABLE]
        assert await engine.act([Edit(id=last, priority=9)], now=store.now) == [Changed.UNREADABLE]
    assert await engine.act([Replay(dead)], now=store.now) == [Changed.UNREADABLE]
    again = await store.claim()
    assert [task.id for task in again] == [stays], columns
    await store.settle(again)
    assert await engine.act([Purge(each) for each in everything], now=store.now) == [Changed.DONE] * 5
    assert await engine.get(everything) == [None] * 5


def test_figures_read_no_task(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever their arguments and facts are, they are counted, and their ages known."""

    async def test(store: Store) -> None:
        await store.add(3)
        store.now += HOUR
        await store.add(2, priority=90)
        store.rows.set("tasks", "true", facts=store.rows.json("{"), args=store.rows.json("{"))
        assert await store.engine.backlog(now=store.now) == [
            Backlog(queue="default", tier=Tier.CRITICAL, pending=2, oldest=NOW + HOUR),
            Backlog(queue="default", tier=Tier.MEDIUM, pending=3, oldest=NOW),
        ]
        kinds = (await store.engine.counts()).kinds
        assert {each.tier: each.states for each in kinds} == {
            Tier.CRITICAL: {State.PENDING: 2},
            Tier.MEDIUM: {State.PENDING: 3},
        }

    run(test)
    assert caplog.records == []


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_what_sqlite_lets_a_column_hold(run: Run) -> None:
    async def test(store: Store) -> None:
        for columns in ON_SQLITE:
            bad, good = await store.add(2)
            store.rows.set("tasks", f"id = '{bad}'", **columns)
            before = store.rows.row("tasks", f"id = '{bad}'")
            assert [each.id for each in await store.claim()] == [good], columns
            await store.look_at_everything()
            await store.do_everything()
            assert store.rows.row("tasks", f"id = '{bad}'") == before
            assert bad in (await store.problems())[0]
            assert await store.engine.act([Purge(bad)], now=store.now) == [Changed.DONE]

    run(test)


def test_repaired_it_is_claimed_as_if_nothing_had_been(run: Run) -> None:
    async def test(store: Store) -> None:
        bad, good = await store.add(2)
        facts = store.rows.row("tasks", f"id = '{bad}'")
        await store.spoil(bad, facts=NEWER)
        assert [each.id for each in await store.claim()] == [good]
        assert await store.claim() == []
        await store.spoil(bad, facts='{"spec":{}}')
        (task,) = await store.claim()
        assert task.id == bad
        await store.settle([task])
        assert await store.state(bad) is State.COMPLETED
        assert facts

    run(test)


def test_three_hundred_of_them_are_passed(run: Run) -> None:
    async def test(store: Store) -> None:
        limit = 1
        bad = await store.add(300, priority=90)
        good = await store.add(3)
        store.rows.set("tasks", f"id <= '{bad[-1]}'", facts=store.rows.json(NEWER))
        assert [each.id for each in await store.claim(limit)] == good[:limit]
        counts = ((await store.engine.counts()).tasks)["default"]
        assert counts[State.PENDING] == 303 - len(good[:limit])

    run(test)


@pytest.mark.parametrize(
    "settings",
    [
        QueueSettings(max_concurrent=10),
        QueueSettings(per_partition=Limit(max_concurrent=1)),
        QueueSettings(per_partition=Limit(rate=100.0, burst=100)),
        QueueSettings(fair=True),
        QueueSettings(fair=True, per_partition=Limit(max_concurrent=2)),
        QueueSettings(per_task={"work": Limit(max_concurrent=2)}),
    ],
    ids=["queue", "partition", "partition rate", "fair", "fair partition", "name"],
)
def test_behind_limits_and_turns(run: Run, settings: QueueSettings) -> None:
    """Those of its partition, its tenant and its name start past it, and it takes no slot while it is pending."""

    async def test(store: Store) -> None:
        await store.engine.set_queue("default", settings, expected=0, now=store.now)
        bad, *good = await store.add(3, partition="p", tenant="t")
        await store.spoil(bad, facts=NEWER)
        done: list[str] = []
        for _ in range(3):
            tasks = await store.claim(1)
            await store.settle(tasks)
            done += [task.id for task in tasks]
        assert done == good
        assert await store.claim(1) == []
        await store.spoil(bad, facts='{"spec":{"partition":"p","tenant":"t"}}')
        assert [task.id for task in await store.claim(1)] == [bad]

    run(test)


def test_a_running_one_keeps_its_slot_until_it_is_purged(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.engine.set_queue("default", QueueSettings(max_concurrent=1), expected=0, now=store.now)
        bad, good = await store.add(2)
        assert [task.id for task in await store.claim(1)] == [bad]
        await store.spoil(bad, facts=NEWER)
        assert await store.engine.act([Purge(bad)], now=store.now) == [Changed.WRONG_STATE], (
            "somebody may be running it"
        )
        store.now += HOUR
        await store.engine.rescue(now=store.now)
        assert await store.claim(1) == []
        assert await store.engine.act([Purge(bad)], now=store.now) == [Changed.DONE]
        assert [task.id for task in await store.claim(1)] == [good]
        assert ((await store.engine.counts()).tasks)["default"][State.RUNNING] == 1
        assert not [
            each for each in await store.engine.check(full=True) if each.title == "counts" and each.level != "ok"
        ]

    run(test)


def test_many_that_expired_or_were_lost_hold_up_nobody(run: Run) -> None:
    async def test(store: Store) -> None:
        late = await store.add(120, expires_at=NOW + SECOND)
        await store.add(1100, name="lost")
        lost = await store.claim(1100, names=("lost",))
        bad = [*late[:110], *(task.id for task in lost[:1050])]
        store.rows.set("tasks", f"id IN ({', '.join(repr(each) for each in bad)})", facts=store.rows.json(NEWER))
        store.now += HOUR
        rescued: list[str] = []
        for _ in range(10):
            found = await store.engine.rescue(now=store.now)
            rescued += found.ids
        assert sorted(rescued) == sorted(task.id for task in lost[1050:])
        assert {task.id for task in await store.claim()} == set(rescued)
        assert ((await store.engine.counts()).tasks)["default"][State.CANCELLED] == 10

    run(test)


def test_one_in_a_full_batch_does_not_end_a_rescue(run: Run) -> None:
    """Whether there is more to take back does not depend on whether all of it can be read."""

    async def test(store: Store) -> None:
        await store.add(RESCUE_BATCH + 1)
        await store.claim(1)
        store.now += HOUR
        await store.engine.rescue(now=store.now)  # from here on there is a track for tasks that come back
        tasks = [task.id for task in await store.claim(RESCUE_BATCH + 1)]
        for bad in tasks[:2]:  # one of them is in every batch
            await store.spoil(bad, facts=NEWER)
        store.now += HOUR
        rescued = await store.engine.rescue(now=store.now)
        assert len(rescued.ids) < RESCUE_BATCH
        assert rescued.more
        rest = await store.engine.rescue(now=store.now)
        assert not rest.more
        assert sorted([*rescued.ids, *rest.ids]) == sorted(tasks[2:])

    run(test)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_an_absent_worker_that_holds_more_is_not_dead_yet(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.engine.beat(beat("w"), now=store.now)
        await store.add(RESCUE_BATCH + 1)
        first, *_ = await store.claim(RESCUE_BATCH + 1)
        await store.spoil(first.id, facts=NEWER)
        file = store_of(store.engine)
        file.presence.absent = lambda workers: {"w"}
        rescued = await store.engine.rescue(now=store.now)
        assert (len(rescued.ids), rescued.workers, rescued.more) == (RESCUE_BATCH - 1, [], True)
        rescued = await store.engine.rescue(now=store.now)
        assert (len(rescued.ids), rescued.workers, rescued.more) == (1, ["w"], False)

    run(test)


def test_one_that_has_ended_slows_down_no_claim(run: Run) -> None:
    """Claims pass over unfinished tasks only, and no longer those that others have ended since."""

    async def test(store: Store) -> None:
        (done,) = await store.add()
        await store.settle(await store.claim())
        await store.spoil(done, "finished", facts=NEWER)
        assert (await store.unreadable(done)).state is State.COMPLETED
        assert not store_of(store.engine).aside.tasks

    run(test)


@pytest.mark.parametrize("settings", [QueueSettings(), QueueSettings(max_concurrent=100)], ids=["plain", "limited"])
def test_more_than_are_remembered(run: Run, monkeypatch: pytest.MonkeyPatch, settings: QueueSettings) -> None:
    """Their kind is passed over as a whole, all others flow, and nobody claims again without a pause."""
    monkeypatch.setattr(unreadable, "LOOK_AGAIN", 1000.0)
    monkeypatch.setattr(unreadable, "MAX_ROWS", 10)

    async def test(store: Store) -> None:
        await store.engine.set_queue("default", settings, expected=0, now=store.now)
        bad = await store.add(40, name="newer", priority=90)
        good = await store.add(3)
        store.rows.set("tasks", f"id <= '{bad[-1]}'", facts=store.rows.json(NEWER))
        assert [task.id for task in await store.claim(3)] == good
        waits = [(await claim_once(store)).next_due_in for _ in range(3)]
        assert all(wait is not None and unreadable.MOMENT <= wait <= 1000 * SECOND for wait in waits), waits
        monkeypatch.setattr(unreadable, "LOOK_AGAIN", 0.0)
        store.rows.set("tasks", f"id <= '{bad[-1]}'", facts=store.rows.json('{"spec":{"priority":90}}'))
        assert [task.id for task in await store.claim(40)] == bad

    run(test)


async def claim_once(store: Store, limit: int = 10) -> Claimed:
    request = ClaimRequest(worker="w", sequence=next(numbers), queues=("default",), limit=limit)
    return await store.engine.claim(request, now=store.now)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_shares_and_turns_behind_a_damaged_one(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.engine.set_queue("default", QueueSettings(fair=True), expected=0, now=store.now)
        for number in range(150):
            await store.add(tenant=f"t{number:03}")
        assert store.rows.set("shares", "share = 't007'", pending="many") == 1
        assert len((await store.engine.standing("default", tenants=1000)).tenants) == 149
        for number in range(5):
            assert store.rows.set("turns", f"share = 't{number:03}'", virtual_time=-0.5 - number / 100) == 1
        assert len((await claim_once(store, 9)).tasks) == 9

    run(test)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_chores_get_past_a_batch_of_damaged_rows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHORE_BATCH", 5)

    async def test(store: Store) -> None:
        assert isinstance(store.rows, OnSqlite)
        for whose in "abcdefgh":
            level = 0 if whose == "h" else "empty"
            insert = "INSERT INTO dibs_buckets (queue, scope, whose, level, at) VALUES ('default', 'task', ?, ?, 0)"
            store.rows.execute(insert, whose, level)
        term = await store.engine.lead("w", now=store.now)
        assert term is not None
        steps = [await store.engine.chore("prune_buckets", term, now=store.now) for _ in range(2)]
        assert [(step.done, step.more) for step in steps] == [(0, True), (1, False)]

    run(test)


def test_dependents_of_a_purged_one_go_on_as_if_it_were_cancelled(run: Run) -> None:
    async def test(store: Store) -> None:
        (bad,) = await store.add()
        (follower,) = await store.add(after=(Edge(bad),))
        await store.spoil(bad, facts=NEWER)
        assert await store.claim() == []
        assert await store.engine.act([Purge(bad)], now=store.now) == [Changed.DONE]
        assert await store.claim() == []
        assert await store.state(follower) is State.CANCELLED

    run(test)


def test_neither_its_id_nor_its_key_is_given_to_another(run: Run) -> None:
    async def test(store: Store) -> None:
        (bad,) = await store.add(key="k", fingerprint="f", window=SECOND)
        await store.spoil(bad, facts=NEWER)
        store.now += HOUR
        again = [new(id=bad), new(key="k", fingerprint="f"), new(key="k", replace=True, fingerprint="g")]
        answers = [await store.engine.enqueue([each], now=store.now) for each in again]
        assert [answer[0].outcome for answer in answers] == [
            EnqueueOutcome.TAKEN, EnqueueOutcome.CONFLICT, EnqueueOutcome.CONFLICT,
        ]  # fmt: skip
        assert await store.engine.act([Purge(bad)], now=store.now) == [Changed.DONE]
        assert (await store.engine.enqueue([again[1]], now=store.now))[0].outcome is EnqueueOutcome.ENQUEUED

    run(test)


def test_it_is_told_of_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test(store: Store) -> None:
        (bad,) = await store.add()
        await store.spoil(bad, facts=NEWER)
        for _ in range(3):
            await store.claim()
            await store.look_at_everything()
        told = [record.getMessage() for record in caplog.records if bad in record.getMessage()]
        assert len(told) == 1
        assert "colour" in told[0]

    run(test)


# All else.


def test_queues(run: Run) -> None:
    """A queue whose settings can't be read is not served, nothing is decided about it, and others go on."""

    async def test(store: Store) -> None:
        engine = store.engine
        kept, running = await store.add(2, queue="odd")
        request = ClaimRequest(worker="w", sequence=next(numbers), queues=("odd",), limit=1)
        (task,) = (await engine.claim(request, now=store.now)).tasks
        assert task.id == kept
        settings = store.rows.row("queues", "name = 'odd'")
        text = store.rows.json('{"moonlight":true}')
        store.rows.set("queues", "name = 'odd'", settings=text)
        store.rows.set("store", "true", generation=1000)
        (good,) = await store.add()
        assert [each.id for each in await store.claim()] == [good]
        assert (await engine.claim(structs.replace(request, sequence=next(numbers)), now=store.now)).tasks == []
        with pytest.raises(Unreadable, match="settings of queue 'odd'"):
            await engine.enqueue([new(queue="odd")], now=store.now)
        with pytest.raises(Unreadable, match="settings of queue 'odd'"):
            await engine.set_queue("odd", QueueSettings(), expected=0, now=store.now)
        await store.settle([task], Outcome.FAILED)
        store.now += 100 * DAY
        await store.do_everything()
        await store.look_at_everything()
        assert any("queue odd" in each for each in await store.problems())
        store.rows.set("queues", "name = 'odd'", settings=store.rows.json("{}"))
        await engine.rescue(now=store.now)
        request = structs.replace(request, sequence=next(numbers), limit=5)
        assert {each.id for each in (await engine.claim(request, now=store.now)).tasks} >= {running}
        assert settings

    run(test)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_streams(run: Run) -> None:
    """Its tasks wait. It is read again once it may have been repaired, not by every transaction."""

    async def test(store: Store) -> None:
        (bad,) = await store.add(name="odd")
        store.rows.set("tracks", "name = 'odd'", requires="[")
        store.rows.set("store", "true", generation=1000)
        assert await store.claim() == []
        assert store_of(store.engine).catalog.generation == 1000
        store.rows.set("tracks", "name = 'odd'", requires="[]")
        assert [task.id for task in await store.claim()] == [bad]

    run(test)


def test_more_missing_streams_than_a_verb_is_repeated(run: Run) -> None:
    async def test(store: Store) -> None:
        for number, task_id in enumerate(await store.add(30)):
            await store.spoil(task_id, track=99_000 + number)
        found = await store.engine.search(Query(limit=100))
        assert [type(task) for task in found.tasks] == [UnreadableTask] * 30

    run(test)


def test_schedules(run: Run) -> None:
    async def test(store: Store) -> None:
        engine = store.engine
        for name in ("bad", "good"):
            await engine.set_schedule(name, Recurrence(every=MINUTE), new(id=""), declared=False, now=store.now)
        store.rows.set("schedules", "name = 'bad'", record=store.rows.json('{"name":"bad"}'))
        before = store.rows.row("schedules", "name = 'bad'")
        store.now += 2 * MINUTE
        fired = await engine.fire(now=store.now)
        assert len(fired.tasks) == 1
        assert fired.next_due_in is not None
        assert fired.next_due_in > 0
        assert [each.name for each in await engine.schedules()] == ["good"]
        declared = await engine.set_schedule("bad", Recurrence(every=MINUTE), new(id=""), declared=True, now=store.now)
        assert declared is Changed.UNREADABLE
        assert await engine.set_schedule_state("bad", ScheduleState.PAUSED, now=store.now) is Changed.UNREADABLE
        assert store.rows.row("schedules", "name = 'bad'") == before
        await store.do_everything()
        assert any("schedule bad" in each for each in await store.problems())
        assert await engine.set_schedule_state("bad", ScheduleState.DELETED, now=store.now) is Changed.DONE

    run(test)


@pytest.mark.parametrize("columns", [{"record": "{"}, {"state": "moonlit"}], ids=str)
def test_workers(run: Run, columns: dict[str, Any]) -> None:
    async def test(store: Store) -> None:
        engine = store.engine
        await engine.beat(beat("bad"), now=store.now)
        await engine.beat(beat("good"), now=store.now)
        stored = {name: store.rows.json(value) if name in JSON else value for name, value in columns.items()}
        store.rows.set("workers", "id = 'bad'", **stored)
        assert [each.id for each in await engine.workers()] == ["good"]
        await store.look_at_everything()
        store.now += MINUTE
        assert (await engine.rescue(now=store.now)).workers == ["bad", "good"]
        await engine.beat(beat("bad"), now=store.now)
        assert "bad" in {each.id for each in await engine.workers()}, "its own record it writes anew"
        await store.do_everything()

    run(test)


def test_prompt_steps(run: Run) -> None:
    """One that can't be read is left to others, and claims don't come back for it at once."""

    async def test(store: Store) -> None:
        (first,) = await store.add()
        await store.add(1500, after=(Edge(first),))
        await store.settle(await store.claim(1))
        assert store.rows.set("steps", "true", step=store.rows.json('{"what":"moonwalk","about":"x"}')) == 1
        given = await store.claim(1)
        await store.do_everything()
        await store.look_at_everything()
        assert any("step" in each for each in await store.problems())
        store.rows.set("steps", "true", step=store.rows.json(f'{{"what":"release dependents","about":"{first}"}}'))
        assert len(given) + len(await store.claim(2000)) == 1500

    run(test)


def test_background_steps(run: Run) -> None:
    """One that can't be read is left to others, too, and the leader goes on with the next."""

    async def test(store: Store) -> None:
        await store.add(2)
        odd, fine = new().id, new().id
        for step in (odd, fine):
            await store.engine.act_on(step, Query(), Cancel(""), now=store.now)
        await store.spoil(odd, "steps", step='{"what":"moonwalk","about":"x"}')
        assert [record.id for record in await store.engine.steps()] == [fine]
        assert await store.engine.advance(odd, now=store.now) is None
        await store.do_everything()
        await store.look_at_everything()
        (record,) = await store.engine.steps([fine])
        assert record.changed == 2
        assert any("step" in each for each in await store.problems())

    run(test)


def test_replaying_into_a_queue_whose_settings_cant_be_read(run: Run) -> None:
    """Nothing is asked of it. If they were damaged later, the leader leaves the step to others."""

    async def test(store: Store) -> None:
        await store.add()
        await store.settle(await store.claim(), Outcome.PERMANENT)
        assert await store.engine.set_queue("odd", QueueSettings(), expected=0, now=store.now) is not None
        into, step = Replay("", queue="odd"), new().id
        await store.engine.act_on(step, Query(), into, now=store.now)
        store.rows.set("queues", "name = 'odd'", settings=store.rows.json("["))
        store.rows.set("store", "true", generation=1000)
        with pytest.raises(Unreadable):
            await store.engine.act_on(new().id, Query(), into, now=store.now)
        await store.do_everything()
        await store.look_at_everything()
        (record,) = await store.engine.steps([step])
        assert (record.visited, record.ended_at) == (0, None)

    run(test)


def test_edges(run: Run) -> None:
    """A dependent with an edge by a newer version's rule waits for that version; all others go on."""

    async def test(store: Store) -> None:
        (first,) = await store.add()
        (bad,) = await store.add(after=(Edge(first),))
        store.rows.set("edges", f"dependent = '{bad}'", rule="moonrise")
        await store.settle(await store.claim(1))
        (second,) = await store.add()
        (good,) = await store.add(after=(Edge(second),))
        await store.settle(await store.claim(1))
        assert [each.id for each in await store.claim()] == [good]
        await store.look_at_everything()
        await store.do_everything()
        assert await store.state(bad) is State.BLOCKED
        assert any("edge of task" in each for each in await store.problems())
        store.rows.set("edges", f"dependent = '{bad}'", rule="cancel")
        assert [each.id for each in await store.claim()] == [bad]

    run(test)


def test_an_edge_in_a_full_batch_does_not_end_an_errand(run: Run) -> None:
    async def test(store: Store) -> None:
        first, second = await store.add(2)
        (bad,) = await store.add(after=(Edge(first),))
        good = await store.add(FOLLOW_UP_BUDGET + 5, after=(Edge(second),))
        store.rows.set("edges", f"dependent = '{bad}'", rule="moonrise")
        await store.settle(await store.claim(2))
        assert {task.id for task in await store.claim(FOLLOW_UP_BUDGET + 10)} == set(good)

    run(test)


def test_records_of_the_past(run: Run) -> None:
    """History, audit log, minutes, chores, workflows."""

    async def test(store: Store) -> None:
        engine = store.engine
        workflow = new().id
        tasks = [new(workflow=workflow), new(workflow=workflow)]
        await engine.enqueue(tasks, atomic=True, workflow=NewWorkflow(workflow, "w"), now=store.now)
        for _ in range(2):
            await store.settle(await store.claim(1), Outcome.RELEASED)
        await engine.act([Cancel(tasks[0].id)], actor="ada", now=store.now)
        await store.do_everything()
        odd = store.rows.json('{"at":"noon"}')
        for table, column in (("history", "entry"), ("audit", "entry"), ("minutes", "record"), ("chores", "record")):
            assert store.rows.set(table, "true", **{column: odd}) > 0
        store.rows.set("chores", "true", cursor='{"at":"noon"}')
        assert await engine.history(tasks[0].id) == []
        assert await engine.audit() == []
        assert await engine.stats(None, 0, NOW) == []
        assert {chore.total for chore in (await engine.about()).chores} == {0}
        store.rows.set("tasks", f"id = '{tasks[1].id}'", state="moonlit")
        assert len(await engine.workflows([workflow])) == 1
        assert len(await store.problems()) == 5
        await store.look_at_everything()
        store.now += DAY
        await store.do_everything()

    run(test)


# Single rows that every worker or every enqueue meets.


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize("damage", ["number", "gone", "unreadable", "share"])
def test_a_due_task_of_no_stream(run: Run, damage: str) -> None:
    """Promotion passes it over."""

    async def test(store: Store) -> None:
        assert isinstance(store.rows, OnSqlite)
        (bad,) = await store.add(name="odd", delay=MINUTE)
        (good,) = await store.add(delay=MINUTE)
        if damage == "number":
            store.rows.set("tasks", f"id = '{bad}'", track=999, due_at=1)
        elif damage == "share":
            store.rows.set("tasks", f"id = '{bad}'", share=b"\xff")
        elif damage == "gone":
            store.rows.execute("DELETE FROM dibs_tracks WHERE name = 'odd'")
        else:
            store.rows.set("tracks", "name = 'odd'", requires="[")
        store.rows.set("store", "true", generation=1000)
        store.now += HOUR
        assert [task.id for task in await store.claim()] == [good]
        assert (await claim_once(store)).next_due_in != 0
        await store.look_at_everything()
        await store.do_everything()
        assert store.rows.row("tasks", f"id = '{bad}'")[2] == "scheduled"

    run(test)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize("clock", ["x", b"\xff", 1.5, -7, 2**63 - 1], ids=str)
def test_the_clock_of_a_fair_queue(run: Run, clock: object) -> None:
    """All tenants start again from the same time: none is served before all others because of it."""

    async def test(store: Store) -> None:
        await store.engine.set_queue("default", QueueSettings(fair=True), expected=0, now=store.now)
        for tenant in ("a", "b"):
            await store.add(30, tenant=tenant)
        await store.settle(await store.claim(20))
        await store.add(10, tenant="c")
        assert store.rows.set("queues", "name = 'default'", clock=clock) == 1
        await store.look_at_everything()
        assert any("clock of queue default" in each for each in await store.problems())
        assert len((await store.engine.standing("default", tenants=100)).tenants) == 3
        first, *_ = ahead = (await store.engine.peek("default", 9, now=store.now)).tasks
        given = await store.claim(9)
        assert [task.id for task in given] == [task.id for task in ahead]
        assert {tenant: sum(task.spec.tenant == tenant for task in given) for tenant in "abc"} == {
            "a": 3,
            "b": 3,
            "c": 3,
        }
        assert first.spec.tenant == "a"
        assert not any("clock of queue" in each for each in await store.problems()), "the next turn writes it"
        await store.do_everything()

    run(test)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "columns", [{"n": 3.5}, {"n": "x"}, {"n": b"\xff"}, {"whose": ""}, {"whose": b"\x01"}], ids=str
)
@pytest.mark.parametrize(
    "settings", [QueueSettings(), QueueSettings(max_concurrent=3, max_depth=50)], ids=["", "limited"]
)
def test_counts(run: Run, columns: dict[str, Any], settings: QueueSettings) -> None:
    """Claims go on, and counts show the others."""

    async def test(store: Store) -> None:
        assert isinstance(store.rows, OnSqlite)
        await store.engine.set_queue("default", settings, expected=0, now=store.now)
        tasks = await store.add(4, name="odd")
        (good,) = await store.add()
        (odd,) = store.rows.execute("SELECT track FROM dibs_tracks WHERE name = 'odd'")[0]
        assert store.rows.set("counts", f"what = 'pending' AND whose = {odd}", **columns) == 1
        await store.look_at_everything()
        assert any("count of pending" in each for each in await store.problems())
        wanted = [good] if "whose" in columns else tasks[:2]
        given = await store.claim(len(wanted))
        assert [task.id for task in given] == wanted
        await store.add(2, name="odd")
        await store.settle(given)
        assert await store.claim(1)
        await store.do_everything()
        await store.look_at_everything()
        assert ((await store.engine.counts()).tasks)["default"][State.COMPLETED] == len(wanted)
        if "n" in columns:
            assert not any("count of" in each for each in await store.problems()), "written by the next move"

    run(test)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize("day", ["x", b"\xff", 10**15], ids=str)
def test_days(run: Run, day: object) -> None:
    """Retention passes over a dead task of no day, and what is known of a day is found out again."""

    async def test(store: Store) -> None:
        bad, good, done, later = await store.add(4)
        await store.settle(await store.claim(2), Outcome.PERMANENT)
        await store.settle(await store.claim(2))
        assert done != later
        await store.spoil(bad, "dead", day=day)
        assert store.rows.set("days", "true", pruned=b"\xff") == 1
        assert any(f"day of dead task {bad}" in each for each in await store.problems())
        assert any(each.startswith("1 set aside as stored (day ") for each in await store.problems())
        await store.do_everything()
        await store.look_at_everything()
        store.now += 100 * DAY
        await store.do_everything()
        assert [each is None for each in await store.engine.get([bad, good, done, later])] == [False, True, True, True]
        assert await store.engine.act([Purge(bad)], now=store.now) == [Changed.DONE]

    run(test)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE dibs_dead SET id = CAST(id AS BLOB)",
        "UPDATE dibs_dead SET id = CAST(x'ff' || id AS TEXT)",
        "UPDATE dibs_dead SET id = CAST(id || x'ff' AS TEXT)",
        "UPDATE dibs_finished SET id = CAST(id AS BLOB)",
        "UPDATE dibs_days SET highest = x'00'",
        "UPDATE dibs_days SET lowest = x'00', highest = CAST(x'ff' AS TEXT)",
    ],
)
def test_ids_that_are_no_text(run: Run, damage: str) -> None:
    async def test(store: Store) -> None:
        assert isinstance(store.rows, OnSqlite)
        await store.add(2)
        await store.settle(await store.claim(1), Outcome.PERMANENT)
        await store.settle(await store.claim(1))
        store.rows.execute(damage)
        assert await store.problems()
        added = [*await store.add(), *await store.add(3)]
        again = await store.engine.enqueue([new(id=added[0])], now=store.now)
        assert again[0].outcome is not EnqueueOutcome.ENQUEUED
        assert [task.id for task in await store.claim()] == added
        await store.look_at_everything()
        store.now += 100 * DAY
        await store.do_everything()
        await store.look_at_everything()

    run(test)


LIMITED = {
    "queue": QueueSettings(rate=10.0, burst=4),
    "task": QueueSettings(per_task={"work": Limit(rate=10.0, burst=4)}),
    "partition": QueueSettings(per_partition=Limit(rate=10.0, burst=4)),
    "client": QueueSettings(enqueue_rate=10.0, enqueue_burst=4),
}


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize("scope", LIMITED)
@pytest.mark.parametrize("columns", [{"level": '"s"'}, {"level": b"\xff"}, {"level": 1.5}, {"at": "x"}], ids=str)
def test_buckets(run: Run, scope: str, columns: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """One that can't be read is as good as new: it limits from there, and is told of."""

    async def test(store: Store) -> None:
        await store.engine.set_queue("default", LIMITED[scope], expected=0, now=store.now)
        await store.add(3, client="c", partition="p")
        assert len(await store.claim(2)) == 2
        assert store.rows.set("buckets", f"scope = '{scope}'", **columns) == 1
        whose = {"queue": "", "task": "work", "partition": "p", "client": "c"}[scope]
        assert any(f"limit of default {scope} {whose}" in each for each in await store.problems())
        await store.look_at_everything()
        await store.do_everything()
        (fresh,) = await store.add(client="c", partition="p")
        if scope != "client":
            (state,) = (await store.engine.standing("default", [fresh], now=store.now)).limits[0]
            assert (state.scope, state.tokens) == (scope, 4)
        assert len(await store.claim(2)) == 2
        assert not await store.problems(), "written by the next start"
        told = [each.getMessage() for each in caplog.records if f"limit of default {scope}" in each.getMessage()]
        assert len(told) == 1

    run(test)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize("state", ["x'ff'", "CAST(x'ff' AS TEXT)"])
def test_states_of_members(run: Run, state: str) -> None:
    async def test(store: Store) -> None:
        assert isinstance(store.rows, OnSqlite)
        workflow = new().id
        tasks = [new(workflow=workflow) for _ in range(3)]
        await store.engine.enqueue(tasks, atomic=True, workflow=NewWorkflow(workflow, "w"), now=store.now)
        await store.settle(await store.claim(2))
        store.rows.execute(f"UPDATE dibs_finished SET state = {state} WHERE id = '{tasks[0].id}'")
        for found in (*await store.engine.workflows([workflow]), *await store.engine.workflows()):
            assert (found.total, found.counts[State.COMPLETED], found.counts[State.PENDING]) == (3, 1, 1)
        await store.look_at_everything()
        await store.do_everything()
        assert any(tasks[0].id in each for each in await store.problems())

    run(test)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize("state", ["due", "pending"])
@pytest.mark.parametrize("odd", ["CAST(id AS BLOB)", "CAST(x'ff' || id AS TEXT)", "CAST(id || x'ff' AS TEXT)"])
def test_an_unfinished_task_whose_id_is_no_text(
    run: Run, odd: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can pass it over, yet all others run, and nobody claims again without a pause."""
    monkeypatch.setattr(unreadable, "LOOK_AGAIN", 1000.0)

    async def test(store: Store) -> None:
        assert isinstance(store.rows, OnSqlite)
        (bad,) = await store.add(delay=MINUTE if state == "due" else 0)
        store.rows.execute(f"UPDATE dibs_tasks SET id = {odd} WHERE id = '{bad}'")
        store.now += HOUR
        good = await store.add(2)
        assert [task.id for task in await store.claim()] == good
        assert (await claim_once(store)).next_due_in != 0
        await store.look_at_everything()
        await store.do_everything()
        assert await store.problems()

    run(test)
