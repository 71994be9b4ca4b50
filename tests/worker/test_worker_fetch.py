"""What is claimed, and when: slots, reserves, limits, prefetch, outages."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from worker_support import PATIENCE, drain, eventually, record_of

from dibs.client.app import Dibs
from dibs.core.settings import FALLBACK
from dibs.core.states import State
from dibs.core.task import HistoryEvent, LeasedTask, TaskSpec
from dibs.core.times import HOUR, SECOND
from dibs.engines.values import ChoreRecord, ClaimRequest
from dibs.errors import InvalidOption, StoreUnavailable
from dibs.runtime.rescue import GAP, HOLD_OFF, Rescue
from dibs.testing.faults import Fault, Faults
from dibs.worker import Context, ExitCode, Worker, WorkerSettings, suspects
from dibs.worker.buffer import Buffer
from dibs.worker.fetcher import MOST_PREFETCH, prefetch_for
from dibs.worker.health import HICCUP, RELAPSE, Backoff, StoreHealth
from dibs.worker.maintenance.leader import ChoreLog
from dibs.worker.maintenance.rescuer import Rescuer
from dibs.worker.run import Run


class Gate:
    """Counts who is inside, and lets them go on demand."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside: list[str] = []
        self.most = 0
        self._lock = threading.Lock()

    def enter(self, name: str) -> None:
        with self._lock:
            self.inside.append(name)
            self.most = max(self.most, len(self.inside))
        self.open.wait(PATIENCE)
        with self._lock:
            self.inside.remove(name)


def test_concurrency_bounds_what_runs_at_once(app: Dibs) -> None:
    gate = Gate()

    @app.task
    def work(name: str) -> None:
        gate.enter(name)

    handles = [work.enqueue(str(number)) for number in range(7)]
    with app.worker(concurrency=3):
        eventually(lambda: len(gate.inside) == 3)
        assert (app.hub.runner.run(app.hub.engine.counts())).tasks["default"][State.RUNNING] == 3
        gate.open.set()
        for handle in handles:
            handle.result(timeout=PATIENCE)
    assert gate.most == 3


def test_concurrency_bounds_async_tasks_too(app: Dibs) -> None:
    inside, most = 0, 0

    @app.task
    async def work() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.001)
        inside -= 1

    for _ in range(40):
        work.enqueue()
    drain(app, concurrency=5)
    assert most == 5


def test_reserved_slots_wait_for_urgent_work(app: Dibs) -> None:
    gate = Gate()

    @app.task
    def work(name: str) -> None:
        gate.enter(name)

    handles = [work.using(priority=30).enqueue(f"low {number}") for number in range(6)]
    with app.worker(concurrency=4, reserve={80: 2}):
        eventually(lambda: len(gate.inside) == 2)
        handles += [work.using(priority=90).enqueue(f"urgent {number}") for number in range(3)]
        eventually(lambda: len(gate.inside) == 4)
        assert sorted(name.split()[0] for name in gate.inside) == ["low", "low", "urgent", "urgent"]
        gate.open.set()
        for handle in handles:
            handle.result(timeout=PATIENCE)


def test_several_levels_of_reserve() -> None:
    settings = WorkerSettings(concurrency=10, reserve={80: 2, 60: 3})
    assert [(floor.effective, floor.below) for floor in settings.ceilings()] == [(60, 5), (80, 8)]


def test_a_limited_queue_runs_no_more_than_it_may(app: Dibs) -> None:
    gate = Gate()

    @app.task(queue="few")
    def work(name: str) -> None:
        gate.enter(name)

    app.queues.set("few", max_concurrent=2)
    handles = [work.enqueue(str(number)) for number in range(6)]
    with app.worker(concurrency=5):
        eventually(lambda: len(gate.inside) == 2)
        gate.open.set()
        for handle in handles:
            handle.result(timeout=PATIENCE)
    assert gate.most == 2


def test_tasks_that_may_kill_their_worker_are_held_one_at_a_time(app: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "SUSPICIOUS", 0)
    monkeypatch.setattr(suspects, "PUT_OFF", SECOND // 100)
    held: list[int] = []

    @app.task
    async def work() -> None:
        held.append(sum(state[State.RUNNING] for state in ((await app.hub.engine.counts()).tasks).values()))

    handles = [work.enqueue() for _ in range(6)]
    with app.worker(concurrency=6):
        for handle in handles:
            handle.result(timeout=PATIENCE)
    assert held == [1] * 6
    records = [record_of(app, handle.id) for handle in handles]
    assert {(record.attempts, record.losses) for record in records} == {(0, 0)}


def test_queues_are_served_in_order_when_asked(app: Dibs) -> None:
    order = []

    @app.task
    async def work(name: str) -> None:
        order.append(name)

    work.using(queue="second", priority=90).enqueue("second")
    work.using(queue="first", priority=10).enqueue("first")
    drain(app, queues=("first", "second"), in_order=True, concurrency=1)
    assert order == ["first", "second"]


def test_a_task_that_falls_due_wakes_the_worker(app: Dibs) -> None:
    @app.task
    async def work() -> str:
        return "done"

    handle = work.using(delay=0.05).enqueue()
    with app.worker():
        assert handle.result(timeout=4) == "done"


def test_prefetch_is_what_should_start_within_a_tenth_of_a_second() -> None:
    assert prefetch_for(10, None, 0) == 0
    assert prefetch_for(10, 2.0, 0) == 0
    assert prefetch_for(10, 0.1, 0) == 10
    assert prefetch_for(10, 0.01, 0) == 100
    assert prefetch_for(10, 0.00001, 0) == MOST_PREFETCH
    assert prefetch_for(10, 0.01, 3.0) == 0, "whatever runs now is slow"


def test_prefetched_tasks_are_released_when_the_worker_leaves(app: Dibs) -> None:
    started, release = threading.Event(), threading.Event()

    @app.task
    def work(slow: bool) -> None:
        if slow:
            started.set()
            release.wait(PATIENCE)

    for _ in range(20):
        work.enqueue(False)
    worker = app.worker(concurrency=1).start()
    eventually(lambda: worker.stats().completed == 20)  # by now it knows how fast they are
    engine = app.hub.engine
    slow = work.call(True).new
    quick = [work.call(False).new for _ in range(5)]
    app.hub.runner.run(engine.enqueue([slow, *quick]))
    assert started.wait(PATIENCE)
    eventually(lambda: worker.stats().buffered > 0 or worker.stats().released > 0)
    worker.stop(wait=False)
    release.set()
    report = worker.wait(PATIENCE)
    assert report is not None
    assert report.code is ExitCode.CLEAN
    states = [record_of(app, new.id).state for new in quick]
    assert set(states) == {State.PENDING}
    released = [app.handle(new.id).history() for new in quick]
    assert any(entries and entries[-1].event is HistoryEvent.RELEASED for entries in released)


def test_a_buffer_behind_slow_tasks_goes_back_to_the_store(app: Dibs) -> None:
    started, release = threading.Event(), threading.Event()

    @app.task
    def work(slow: bool) -> None:
        if slow:
            started.set()
            release.wait(PATIENCE)

    for _ in range(20):
        work.enqueue(False)
    with app.worker(concurrency=1) as worker:
        eventually(lambda: worker.stats().completed == 20)
        slow, quick = work.call(True).new, work.call(False).new
        app.hub.runner.run(app.hub.engine.enqueue([slow, quick]))
        assert started.wait(PATIENCE)
        eventually(lambda: record_of(app, quick.id).state is State.PENDING and worker.stats().buffered == 0)
        other = ClaimRequest(worker="other", sequence=1, queues=("default",), limit=1)
        assert [task.id for task in app.hub.runner.run(app.hub.engine.claim(other)).tasks] == [quick.id]
        release.set()


def leased(task_id: str, priority: int, ready_at: int = 0, queue: str = "default") -> LeasedTask:
    return LeasedTask(
        id=task_id,
        lease=1,
        lease_expires_at=30_000_000,
        claimed_at=0,
        ready_at=ready_at,
        queue=queue,
        name="work",
        args=b"{}",
        spec=TaskSpec(priority=priority),
        rank=ready_at - 600 * SECOND * priority,
        scale=600 * SECOND,
        options=FALLBACK,
    )


def run_of(task_id: str, priority: int, ready_at: int = 0, queue: str = "default") -> Run:
    definition: Any = None
    return Run(leased(task_id, priority, ready_at, queue), definition, 0.0, lambda: None, lambda run: None)


def test_the_buffer_gives_what_may_start_and_drops() -> None:
    buffer = Buffer(("x", "y"), in_order=True)
    first, second, third = run_of("a", 90, queue="y"), run_of("b", 10, queue="x"), run_of("c", 50, queue="y")
    buffer.add([first])
    buffer.add([second, third])
    assert buffer.pop(lambda run: run.task.spec.priority > 20) is first, "the queue before it may not"
    assert buffer.drop(third)
    assert not buffer.drop(third)
    assert list(buffer) == [second]
    assert buffer.pop(lambda _: False) is None
    assert buffer.pop() is second
    assert len(buffer) == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 2, "reserve": {80: 2}}, "leaves none"),
        ({"reserve": {101: 1}}, "priority in reserve"),
        ({"queues": ("a b",)}, "queue"),
        ({"capabilities": ("",)}, "capability"),
        ({"lease": 0.1}, "lease"),
        ({"shutdown_timeout": -1}, "shutdown_timeout"),
        ({"name": "a b"}, "name"),
    ],
)
def test_settings_are_checked_at_the_door(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        WorkerSettings(**wrong)


def test_a_worker_survives_an_outage_and_says_so_once(
    faulty_app: Dibs, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    started, go_on = threading.Event(), threading.Event()

    @faulty_app.task
    def work(ctx: Context) -> str:
        started.set()
        go_on.wait(PATIENCE)
        return "kept"

    handle = work.enqueue()
    with faulty_app.worker() as worker:
        assert started.wait(PATIENCE)
        faults.away("claim", "settle", "extend", "beat", "rescue", "lead", "chore")
        go_on.set()
        faults.wait_for("settle", 2)
        later = work.enqueue()
        faults.wait_for("claim", 2)
        faults.back()
        assert handle.result(timeout=PATIENCE) == "kept"
        assert later.result(timeout=PATIENCE) == "kept"
        assert worker.stats().refused == 0
        eventually(lambda: any("answers again" in message for message in caplog.messages))
    assert sum("does not answer" in message for message in caplog.messages) == 1
    assert sum("answers again" in message for message in caplog.messages) == 1


def test_lost_replies_cost_nothing(faulty_app: Dibs, faults: Faults) -> None:
    ran = []
    leases: dict[str, int] = {}

    @faulty_app.task
    async def work(ctx: Context, number: int) -> None:
        ran.append(number)
        leases[ctx.id] = ctx.lease

    faults.plan("claim", Fault.LOST)
    faults.plan("settle", Fault.LOST)
    handles = [work.enqueue(number) for number in range(5)]
    worker = Worker(faulty_app.hub, WorkerSettings(until_idle=True)).start()
    assert worker.wait(PATIENCE) is not None
    assert sorted(ran) == [0, 1, 2, 3, 4]
    assert faults.met == {"claim": 1, "settle": 1}
    assert worker.stats().refused == 0
    for handle in handles:
        assert record_of(faulty_app, handle.id).lease == leases[handle.id]


def test_a_settlement_that_the_store_can_not_take_costs_nobody_else(
    app: Dibs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def work(number: int) -> int:
        return number

    handles = [work.enqueue(number) for number in range(4)]
    settle = app.hub.engine.settle

    async def picky(settlements: Any, **kwargs: Any) -> Any:
        if any(settlement.result == b"2" for settlement in settlements):
            raise ValueError("twos are not welcome")
        return await settle(settlements, **kwargs)

    monkeypatch.setattr(app.hub.engine, "settle", picky)
    with app.worker():
        for number in (0, 1, 3):
            assert handles[number].result(timeout=PATIENCE) == number
        eventually(lambda: any("could not be stored" in message for message in caplog.messages))
    assert record_of(app, handles[2].id).state is State.RUNNING


def test_rescue_holds_off_after_an_outage_or_a_slow_answer() -> None:
    now = 100.0
    health = StoreHealth(lambda: now)
    rescue = Rescue(Dibs("memory://").hub)
    rescuer = Rescuer(rescue, health)
    with health.asking("claim"):  # which waits for locks of others', too
        now += GAP + 1
    with health.asking("keep leases", beats=True):
        now += GAP
    rescuer.notice(now)
    assert not rescue.holds_off(now)
    health.regained_at, health.was_down_for = 300.0, GAP + 1
    rescuer.notice(300.5)
    assert rescue.holds_off(300.0 + HOLD_OFF - 0.1)
    rescuer.notice(300.0 + HOLD_OFF)
    assert not rescue.holds_off(300.0 + HOLD_OFF)
    health.regained_at, health.was_down_for = 400.0, 0.2  # a hiccup
    rescuer.notice(400.5)
    assert not rescue.holds_off(400.5)
    now = 500.0
    with health.asking("keep leases", beats=True):
        now += GAP + 0.1
    rescuer.notice(505.0)
    assert rescue.holds_off(now + HOLD_OFF - 0.1)
    rescuer.notice(now + HOLD_OFF)
    assert not rescue.holds_off(now + HOLD_OFF)


def test_backoff_doubles_up_to_its_cap_with_jitter() -> None:
    backoff = Backoff(first=1.0, cap=5.0)
    waits = [backoff.next() for _ in range(6)]
    for wait, most in zip(waits, [1, 2, 4, 5, 5, 5], strict=True):
        assert most / 2 <= wait <= most
    backoff.reset()
    assert backoff.next() <= 1.0


def fail(health: StoreHealth) -> None:
    with pytest.raises(StoreUnavailable), health.asking("claim"):
        raise StoreUnavailable("gone")


def test_health_notes_how_long_the_store_was_away() -> None:
    now = 100.0
    health = StoreHealth(lambda: now)
    with health.asking("claim"):
        assert not health.down
    assert health.regained_at is None
    fail(health)
    assert health.down
    now = 102.0
    fail(health)
    now = 103.0
    with health.asking("settle"):
        assert health.down
    assert not health.down
    assert (health.regained_at, health.was_down_for) == (103.0, 3.0)


def answer(health: StoreHealth) -> None:
    with health.asking("settle"):
        pass


def test_what_a_dying_server_still_answers_does_not_say_that_it_is_back() -> None:
    now = 100.0
    health = StoreHealth(lambda: now)
    with health.asking("settle"):  # asked before it went, answered long after
        fail(health)
        now = 110.0
    assert health.down
    fail(health)
    answer(health)  # by a session that is not ended yet
    assert health.regained_at is None
    now = 110.2
    fail(health)
    now = 110.4
    answer(health)
    assert health.regained_at is None
    now = 110.5
    answer(health)
    assert (health.down, health.regained_at) == (False, 110.5)
    assert health.was_down_for == pytest.approx(10.4), "until the first answer that was followed by no failure"


def test_a_failure_of_what_was_asked_before_the_store_came_back_is_no_new_outage() -> None:
    now = 100.0
    health = StoreHealth(lambda: now)
    with suppress(StoreUnavailable), health.asking("extend"):
        now = 105.0
        fail(health)
        now = 105.5
        answer(health)
        now = 106.0
        raise StoreUnavailable("did not answer in time")
    assert (health.down, health.regained_at) == (False, 105.5)
    fail(health)
    assert health.down


def test_a_hiccup_does_not_keep_anybody_from_rescuing() -> None:
    now = 100.0
    health = StoreHealth(lambda: now)
    rescue = Rescue(Dibs("memory://").hub)
    rescuer = Rescuer(rescue, health)
    fail(health)
    now = 100.1
    answer(health)  # not believed yet: the next one may be seconds away in an idle worker
    now = 101.0
    rescuer.notice(now)
    assert not rescue.holds_off(now)
    fail(health)  # after all
    now = 101.2
    answer(health)
    rescuer.notice(now)
    assert rescue.holds_off(now), "after an outage one answer does not do"
    now = 105.0
    answer(health)
    rescuer.notice(now)
    assert rescue.holds_off(114.9)


def test_a_store_that_fails_now_and_then_is_in_one_long_outage() -> None:
    """As on a full disk, where small things fit: others' heartbeats may fail while our own looks succeed."""
    now = 100.0
    health = StoreHealth(lambda: now)
    rescue = Rescue(Dibs("memory://").hub)
    rescuer = Rescuer(rescue, health)
    for _ in range(4):  # each of them a hiccup
        fail(health)
        now += 0.1
        answer(health)
        now += 0.8
        answer(health)
        rescuer.notice(now)
    assert rescue.holds_off(now)
    now += 5.0
    answer(health)
    assert (health.down, health.was_down_for > HICCUP) == (False, True)
    now += RELAPSE + 1
    fail(health)
    now += 0.1
    answer(health)
    now += 0.8
    answer(health)
    assert health.was_down_for < HICCUP, "a new outage starts from zero"


def test_a_store_that_is_bad_for_good_keeps_nobody_from_rescuing() -> None:
    """It fails, or stalls heartbeats, every few seconds: a look is made now and then all the same."""
    now = 100.0
    health = StoreHealth(lambda: now)
    rescue = Rescue(Dibs("memory://").hub)
    rescuer = Rescuer(rescue, health)
    looks = {"fails": 0, "stalls": 0}
    for how in looks:
        for _ in range(20):
            if how == "fails":
                fail(health)
            else:
                with health.asking("keep leases", beats=True):
                    now += GAP + 0.1
            for _ in range(9):
                now += 1.0
                answer(health)
                rescuer.notice(now)
                looks[how] += not rescue.holds_off(now)
    assert all(looks.values()), looks


def test_the_leader_does_its_chores_and_resigns(app: Dibs) -> None:
    @app.task
    async def work() -> None: ...

    engine = app.hub.engine
    with app.worker() as worker:
        eventually(lambda: all(chore.at for chore in (app.hub.runner.run(engine.about())).chores))
        assert app.hub.runner.run(engine.lead("other")) is None
        assert worker.stats().state == "active"
    assert app.hub.runner.run(engine.lead("other")) is not None


def test_the_leader_logs_chores_that_do_not_keep_up(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(priority=10)
    async def work() -> None: ...

    engine, now = app.hub.engine, time.time_ns() // 1000

    async def fall_behind() -> None:
        await engine.enqueue([work.call().new for _ in range(2_500)], now=now - 2 * HOUR)
        term = await engine.lead("gone", now=now - HOUR)
        assert term is not None
        assert (await engine.chore("rerank", term, now=now - HOUR)).more

    app.queues.set("default", policy="tiers")
    app.queues.pause("default")
    app.hub.runner.run(fall_behind())
    with caplog.at_level("INFO", logger="dibs.worker"), app.worker():
        eventually(lambda: any("has caught up" in line for line in caplog.messages))
    told = [(each.levelname, each.message) for each in caplog.records if "chore" in each.message]
    assert told == [
        ("WARNING", "The chore rerank has had work left for 60 min: promotions and deadlines take effect late."),
        ("INFO", "The chore rerank has caught up."),
    ]


def test_each_thing_about_a_chore_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    chores, now = ChoreLog(), 1_760_000_000 * SECOND
    behind = ChoreRecord(name="rerank", at=now, took=SECOND, more=True, behind_since=now - HOUR)
    slow = ChoreRecord(name="vacuum", at=now, took=6 * SECOND)
    with caplog.at_level("INFO", logger="dibs.worker"):
        for record in (behind, behind, slow, slow, ChoreRecord(name="rerank", at=now), slow):
            chores.ran(record)
        assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING", "INFO"]
        assert caplog.messages[1] == "A step of the chore vacuum took 6.0 s."
        chores.ran(ChoreRecord(name="vacuum", at=now, took=SECOND))
        chores.ran(slow)
        chores.ran(behind)
    assert len(caplog.records) == 5, "what comes back is logged again"
