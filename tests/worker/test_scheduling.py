"""Schedules in workers: declared at the start, confirmed later, fired on time and once by the leader."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import schedule_app
from msgspec import structs
from worker_support import PATIENCE, eventually

from dibs.client.app import Dibs
from dibs.core.schedules import ScheduleRecord
from dibs.core.states import State
from dibs.core.times import MINUTE, SECOND
from dibs.engines.values import Query
from dibs.errors import InvalidOption
from dibs.testing import ManualClock
from dibs.testing.faults import Fault, Faults
from dibs.worker import ExitCode, Worker, WorkerSettings
from dibs.worker.health import StoreHealth
from dibs.worker.maintenance.leader import Leader
from dibs.worker.maintenance.scheduler import BLOCKED_NAP, LONGEST_NAP, Scheduler


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def still(clock: ManualClock) -> Iterator[Dibs]:
    """An app whose time is the clock's."""
    app = Dibs("memory://", clock=clock)
    yield app
    app.close()


def tick_of(app: Dibs, **options: Any) -> None:
    """Declare a schedule called `tick`."""

    @app.schedule(**{"every": 60, "name": "tick", **options})
    @app.task(name="tick")
    async def tick() -> None: ...


def run(app: Dibs, work: Any) -> Any:
    return app.hub.runner.run(work)


def stored(app: Dibs, name: str = "tick") -> ScheduleRecord | None:
    return next((each for each in run(app, app.hub.engine.schedules()) if each.name == name), None)


def fired_by(app: Dibs) -> int:
    record = stored(app)
    return 0 if record is None else record.fired


def fire_times(app: Dibs) -> list[str]:
    """The nominal times of all tasks that schedules have made, in order."""
    page = run(app, app.hub.engine.search(Query(limit=1000)))
    return sorted(task.spec.headers["fire-time"] for task in page.tasks)


class Part:
    """The scheduler of a worker without the rest of it; `leads` as it believes."""

    def __init__(self, app: Dibs, worker: str = "w1", leads: bool = True) -> None:
        self.app = app
        health = StoreHealth()
        self.leader = Leader(app.hub, health, worker, lambda: None)
        self.made = run(app, self._make(health, leads))

    async def _make(self, health: StoreHealth, leads: bool) -> Scheduler:
        if leads:
            await self.leader._lead()
        return Scheduler(self.app.hub, health, lambda: self.leader.leads)

    def turn(self) -> float:
        nap: float = run(self.app, self.made.turn())
        return nap

    def confirm(self) -> None:
        """The next turn comes when it is time to confirm."""
        self.made._confirm_at = 0.0
        self.turn()


# Declaring and confirming.


def test_a_worker_declares_what_its_code_has(app: Dibs) -> None:
    tick_of(app)
    with app.worker():
        record = stored(app)
    assert record is not None
    assert record.declared
    assert (record.recurrence.every, record.task.name) == (60 * SECOND, "tick")
    assert [entry.act for entry in run(app, app.hub.engine.audit())].count("set schedule") == 1


def test_declaring_again_changes_nothing(still: Dibs, clock: ManualClock) -> None:
    tick_of(still)
    Part(still).turn()
    first = stored(still)
    clock.advance(30)
    Part(still, leads=False).turn()
    assert stored(still) == first
    assert len(run(still, still.hub.engine.audit())) == 1


def test_a_worker_confirms_every_few_minutes(still: Dibs, clock: ManualClock) -> None:
    tick_of(still)
    part = Part(still, leads=False)
    assert part.turn() == LONGEST_NAP
    for passed, confirmed in ((200, 0), (50, 250), (100, 250), (200, 550)):
        clock.advance(passed)
        part.confirm()
        record = stored(still)
        assert record is not None
        assert record.declared_at == record.created_at + confirmed * SECOND
    assert len(run(still, still.hub.engine.audit())) == 1


def test_a_later_change_is_left_alone_until_a_worker_starts(still: Dibs, clock: ManualClock) -> None:
    tick_of(still)
    part = Part(still, leads=False)
    part.turn()
    clock.advance(300)
    still.schedules.set("tick", "tick", every=5)
    part.confirm()
    record = stored(still)
    assert record is not None
    assert record.recurrence.every == 5 * SECOND
    still.schedules.delete("tick")
    part.confirm()
    assert stored(still) is None
    Part(still, leads=False).turn()
    record = stored(still)
    assert record is not None
    assert record.recurrence.every == 60 * SECOND


def test_a_pause_survives_workers(still: Dibs, clock: ManualClock) -> None:
    tick_of(still)
    Part(still).turn()
    still.schedules.pause("tick")
    clock.advance(300)
    part = Part(still)
    part.turn()
    clock.advance(300)
    assert part.turn() == LONGEST_NAP
    assert fire_times(still) == []


class Salted:
    """A codec that never gives the same bytes twice, as encryption does."""

    name = "salted"
    salts = itertools.count()

    def encode(self, payload: bytes) -> bytes:
        return b"%08d" % next(self.salts) + payload

    def decode(self, payload: bytes) -> bytes:
        return payload[8:]


def test_payloads_are_compared_by_content(clock: ManualClock) -> None:
    class Code:
        """The same code in another process."""

        def __init__(self, store: Dibs | None, region: str = "eu") -> None:
            engine = None if store is None else store.hub.engine.sibling()
            self.app = app = Dibs("memory://", clock=clock, payload_codec=Salted(), engine=engine)

            @app.schedule(every=60, name="tick", kwargs={"region": region})
            @app.task(name="tick")
            def tick(region: str) -> None: ...

    first = Code(None).app
    Part(first, leads=False).turn()
    before = stored(first)
    assert before is not None
    clock.advance(300)
    same = Code(first).app
    assert same.hub.schedules["tick"].task.args != before.task.args
    Part(same, leads=False).turn()
    after = stored(first)
    assert after is not None
    assert (after.task, after.declared_at) == (before.task, before.created_at + 300 * SECOND)
    other = Code(first, region="us").app
    Part(other, leads=False).turn()
    changed = stored(first)
    assert changed is not None
    assert other.hub.codec.decode(changed.task.args) == {"region": "us"}
    for app in (other, same, first):
        app.close()


# Firing.


def test_the_nap_ends_when_the_next_fire_is_due(still: Dibs, clock: ManualClock) -> None:
    tick_of(still, every=10)
    part = Part(still)
    assert part.turn() == 10.0
    clock.advance(8.8)
    assert part.turn() == 1.2
    clock.advance(1.2)
    assert part.turn() == 10.0
    assert fire_times(still) == ["2026-01-01T12:00:10+00:00"]


def test_everything_that_is_due_is_fired_in_one_turn(still: Dibs, clock: ManualClock) -> None:
    @still.task(name="tick")
    async def tick() -> None: ...

    for number in range(250):
        still.schedules.set(f"s{number}", tick, every=60)
    clock.advance(60)
    assert Part(still).turn() == LONGEST_NAP  # not 60: time may jump
    assert still.queues.get("default").counts[State.PENDING] == 250


def test_without_schedules_a_leader_looks_every_30_seconds_and_others_never(still: Dibs) -> None:
    leading, other = Part(still), Part(still, "w2", leads=False)
    assert leading.turn() == LONGEST_NAP
    assert other.turn() == LONGEST_NAP
    calls = {verb: meter.calls for verb, meter in still.hub.meters.read().items()}
    assert calls == {"open": 1, "lead": 1, "fire": 1}


def test_who_does_not_lead_does_not_fire(still: Dibs, clock: ManualClock) -> None:
    tick_of(still)
    leading, other = Part(still), Part(still, "w2")
    assert other.leader.leads is False
    leading.turn()
    clock.advance(60)
    other.turn()
    assert fire_times(still) == []
    leading.turn()
    assert len(fire_times(still)) == 1


def test_two_who_believe_that_they_lead_fire_once(still: Dibs, clock: ManualClock) -> None:
    tick_of(still)
    first = Part(still)
    first.turn()
    clock.advance(20)
    second = Part(still, "w2")  # the first one's term is over, and it does not know
    assert (first.leader.leads, second.leader.leads) == (True, True)

    async def both() -> None:
        await asyncio.gather(first.made.turn(), second.made.turn())

    for _ in range(5):
        clock.advance(60)
        run(still, both())
    assert len(fire_times(still)) == len(set(fire_times(still))) == 5
    record = stored(still)
    assert record is not None
    assert (record.fired, record.skipped) == (5, 0)


def test_a_queue_that_takes_nothing_holds_its_schedule_up(still: Dibs, clock: ManualClock) -> None:
    tick_of(still)
    part = Part(still)
    part.turn()
    still.queues.set("default")
    still.queues.drain("default")
    clock.advance(60)
    assert part.turn() == BLOCKED_NAP
    clock.advance(5)
    still.queues.resume("default")
    part.turn()
    assert fire_times(still) == ["2026-01-01T12:01:00+00:00"]


# In a worker.


def test_a_worker_fires_and_runs(app: Dibs) -> None:
    tick_of(app, every=1)
    with app.worker() as worker:
        eventually(lambda: worker.stats().completed >= 2)
        report = worker.stop()
    assert report is not None
    assert report.code is ExitCode.CLEAN
    times = fire_times(app)
    assert len(times) == len(set(times)) >= 2


def test_a_changed_schedule_wakes_the_leader(still: Dibs, clock: ManualClock) -> None:
    """The clock stands still: only the notification can have woken the leader."""
    tick_of(still, every=3600)
    with still.worker() as worker:
        eventually(lambda: "fire" in still.hub.meters.read())
        clock.advance(MINUTE / SECOND)
        still.schedules.set("soon", "tick", every=1)
        clock.advance(2)
        still.schedules.set("later", "tick", every=3600)
        eventually(lambda: worker.stats().completed == 1)
    assert fire_times(still) == ["2026-01-01T12:01:02+00:00"]  # one for the two that were due


def test_the_next_worker_leads_when_the_first_one_leaves(still: Dibs, clock: ManualClock) -> None:
    tick_of(still)
    first = Worker(still.hub, WorkerSettings(name="first"))
    second = Worker(still.hub, WorkerSettings(name="second"))
    first.start()
    eventually(lambda: still.hub.meters.read().get("fire"))
    second.start()
    first.stop()
    clock.advance(60)
    eventually(lambda: second.stats().completed == 1, PATIENCE)
    second.stop()
    assert len(fire_times(still)) == 1


def test_a_store_that_fails_is_asked_again(faulty_app: Dibs, faults: Faults) -> None:
    tick_of(faulty_app, every=1)
    faults.away("fire", "set_schedule")
    with faulty_app.worker() as worker:
        faults.wait_for("set_schedule", 2)
        faults.back("set_schedule")
        faults.wait_for("fire", 2)
        faults.back("fire")
        eventually(lambda: worker.stats().completed >= 1)
        report = worker.stop()
    assert report is not None
    assert report.code is ExitCode.CLEAN


def test_a_schedule_that_this_machine_cannot_work_out_holds_up_no_other(
    still: Dibs, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Another host knows a time zone that this one does not."""
    tick_of(still)
    part = Part(still)
    part.turn()
    record = stored(still)
    assert record is not None
    there = structs.replace(record.recurrence, cron="0 9 * * *", every=None, tz="Mars/Olympus_Mons")
    bad = structs.replace(record, name="bad", recurrence=there, next_fire_at=clock.now())
    columns = (bad.name, bad.next_fire_at, bad.paused, bad)
    run(still, still.hub.engine._change(lambda port: port.write("save_schedule", *columns)))  # type: ignore[attr-defined]
    for _ in range(2):
        clock.advance(60)
        assert part.turn() == LONGEST_NAP
    assert len(fire_times(still)) == 2
    assert caplog.text.count("Schedule bad can't be computed on this machine") == 1
    assert str(still.why("bad")) == (
        "schedule 'bad' can't be computed on this machine: 'No time zone found with key Mars/Olympus_Mons'."
    )
    with pytest.raises(InvalidOption, match="can't be computed on this machine"):
        still.schedules.upcoming("bad")


def test_a_lost_reply_fires_once(faulty_app: Dibs, faults: Faults) -> None:
    tick_of(faulty_app, every=1)
    with faulty_app.worker() as worker:
        eventually(lambda: stored(faulty_app))
        faults.plan("fire", Fault.LOST)
        faults.wait_for("fire")
        done = worker.stats().completed
        eventually(lambda: worker.stats().completed > done)
    times = fire_times(faulty_app)
    assert len(times) == len(set(times))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_killed_leaders_lose_and_double_no_fire(tmp_path: Path) -> None:
    """Each process takes the name, and so the term, of the one before: nobody waits for the term to end."""
    app = Dibs(f"sqlite:///{tmp_path / 'tasks.db'}")
    command = [sys.executable, schedule_app.__file__, app.url, "leader"]
    fired = 0
    for _ in range(4):
        with subprocess.Popen(command) as process:
            eventually(lambda wanted=fired + 2: fired_by(app) >= wanted)
            process.kill()
        fired = fired_by(app)
    record = stored(app)
    assert record is not None
    times = fire_times(app)
    assert len(times) == len(set(times)) == record.fired
    first, last = (datetime.fromisoformat(times[place]) for place in (0, -1))
    assert record.fired + record.skipped == round((last - first).total_seconds()) + 1
    app.close()
