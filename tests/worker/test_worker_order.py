"""The order of starts is the order of claims, whatever was prefetched.

What is right comes from one claim of the whole backlog on a second store, or from `sorted` and nothing else.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from worker_support import PATIENCE, drain, eventually

from dibs.client.app import Dibs
from dibs.core.ids import uuid7
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.task import LeasedTask
from dibs.core.times import HOUR, MINUTE, SECOND, Duration, Instant
from dibs.engines.base import Engine
from dibs.engines.memory import MemoryEngine
from dibs.engines.values import ClaimRequest
from dibs.testing.clock import ManualClock
from dibs.testing.tasks import new_task
from dibs.worker import Context, fetcher
from dibs.worker.buffer import Buffer
from dibs.worker.run import Run
from servers.postgres import new_url

POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"aging": 0.05},
    {"policy": "tiers"},
    {"policy": "strict"},
    {"aging": 60, "deadline_weight": 100},
    {"fair": True, "weights": {"a": 2.5}},
    {"fair": True, "policy": "tiers"},
    {"aging": 60, "max_aging_bonus": 10},
    {"aging": 1, "max_aging_bonus": 3, "fair": True},
)
"""All but those with a cap give an order that no instant changes."""
QUEUES = ("a", "b", "c")
AHEAD = 6
"""Prefetched at most, so that short programs have many claims."""


class Waiting(Struct, frozen=True):
    """A task of a backlog, enqueued `after` the one before it."""

    after: Duration
    queue: str
    priority: int
    deadline_in: Duration | None
    tenant: str


class Backlog(Struct, frozen=True):
    """What waits, and how it is served. `step`: how far the clock goes with each start."""

    policies: tuple[dict[str, Any], ...]
    tasks: list[Waiting]
    in_order: bool
    step: Duration


def tasks_in(queues: tuple[str, ...]) -> st.SearchStrategy[list[Waiting]]:
    waiting = st.builds(
        Waiting,
        after=st.sampled_from((0, 0, 1, SECOND // 20, SECOND, 5 * SECOND)),
        queue=st.sampled_from(queues),
        priority=st.integers(0, 100) | st.sampled_from((30, 50)),
        deadline_in=st.none() | st.sampled_from((0, 5 * MINUTE, 5 * HOUR)),
        tenant=st.sampled_from(("", "a", "a", "b")),
    )
    return st.lists(waiting, min_size=1, max_size=30)


one_queue = st.builds(
    Backlog,
    policies=st.tuples(st.sampled_from([each for each in POLICIES if "max_aging_bonus" not in each])),
    tasks=tasks_in(QUEUES[:1]),
    in_order=st.just(False),
    step=st.sampled_from((0, 1000, 50_000)),
)
many_queues = st.builds(
    Backlog,
    policies=st.tuples(*[st.sampled_from(POLICIES)] * len(QUEUES)),
    tasks=tasks_in(QUEUES),
    in_order=st.booleans(),
    step=st.just(0),
)
examples = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


async def store(engine: Engine, backlog: Backlog, clock: ManualClock) -> list[str]:
    """Enqueue a backlog, and rank what has waited long enough again. Ids are the same on every store."""
    for name, changes in zip(QUEUES, backlog.policies, strict=False):
        await engine.set_queue(name, change_settings(QueueSettings(), changes), expected=0, now=clock.now())
    ids = []
    for number, each in enumerate(backlog.tasks):
        clock.move_to_instant(clock.now() + each.after)
        deadline = None if each.deadline_in is None else clock.now() + each.deadline_in
        ids.append(uuid7(clock.now() // 1000, 0, number))
        new = new_task(
            id=ids[-1], queue=each.queue, name="work", priority=each.priority, deadline=deadline, tenant=each.tenant
        )
        await engine.enqueue([new], now=clock.now())
    term = await engine.lead("before", now=clock.now())
    assert term is not None
    while (await engine.chore("rerank", term, now=clock.now())).done:
        pass
    await engine.resign(term)
    return ids


async def in_one_claim(backlog: Backlog) -> list[str]:
    """The whole backlog, as one claim on a store of its own gives it."""
    engine, clock = MemoryEngine(), ManualClock()
    await engine.open()
    ids = await store(engine, backlog, clock)
    request = ClaimRequest(
        worker="twin", sequence=1, queues=QUEUES[: len(backlog.policies)], limit=len(ids), in_order=backlog.in_order
    )
    claimed = await engine.claim(request, now=clock.now())
    assert len(claimed.tasks) == len(ids)
    return [task.id for task in claimed.tasks]


@contextmanager
def prefetching(most: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetcher, "MOST_PREFETCH", most)
        yield


def starts_of(url: str, backlog: Backlog) -> list[str]:
    """Run a backlog to its end with one slot; what started, in order. A run takes longer than a claim mostly does."""
    clock, started = ManualClock(), []
    app = Dibs(url, clock=clock)

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        started.append(ctx.id)
        clock.move_to_instant(clock.now() + backlog.step)
        await asyncio.sleep(0.005 if url.startswith("postgres") else 0.002)

    try:
        app.hub.runner.run(store(app.hub.engine, backlog, clock))
        with prefetching(AHEAD):
            drain(app, concurrency=1, queues=QUEUES[: len(backlog.policies)], in_order=backlog.in_order)
    finally:
        app.close()
    return started


@examples
@given(one_queue | many_queues)
def test_a_backlog_starts_in_the_order_of_one_claim(backlog: Backlog) -> None:
    assert starts_of("memory://", backlog) == asyncio.run(in_one_claim(backlog))


@pytest.mark.parametrize(
    ("kind", "policy"),
    [*(("sqlite", POLICIES[number]) for number in (0, 1, 2, 5)), ("postgres", POLICIES[1]), ("postgres", POLICIES[5])],
    ids=str,
)
def test_a_backlog_starts_in_the_order_of_one_claim_on(kind: str, policy: dict[str, Any], tmp_path: Path) -> None:
    chance = random.Random(5)
    tasks = [
        Waiting(chance.choice((0, 1, 50_000)), "a", chance.choice((10, 50, 51, 90)), None, chance.choice("ab"))
        for _ in range(60)
    ]
    backlog = Backlog((policy,), tasks, False, SECOND // 20)
    url = new_url() if kind == "postgres" else f"sqlite:///{tmp_path}/order.db"
    assert starts_of(url, backlog) == asyncio.run(in_one_claim(backlog))


# What is buffered, against `sorted`.


def run_of(task: LeasedTask) -> Run:
    definition: Any = None
    return Run(task, definition, 0.0, lambda: None, lambda run: None)


def next_of(buffered: list[LeasedTask], backlog: Backlog, now: Instant) -> LeasedTask:
    """Whom a claim at `now` would give first, of the tasks that were claimed."""
    heads = []
    for order, queue in enumerate(QUEUES):
        mine = [task for task in buffered if task.queue == queue]
        if mine and mine[0].fair:
            mine = mine[:1]
        for scale in {task.scale for task in mine}:
            head = min((task for task in mine if task.scale == scale), key=lambda task: (task.rank, task.id))
            effective = -min(float(Fraction(now - head.rank, head.scale)), 100.0)
            heads.append(((order if backlog.in_order else 0, effective, head.ready_at, order, scale), head))
    return min(heads, key=lambda each: each[0])[1]


@settings(examples, max_examples=100)
@given(many_queues, st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), min_size=1), st.sampled_from((0, 50_000)))
def test_claims_of_different_instants_are_merged_as_one(
    backlog: Backlog, moves: list[tuple[int, int]], step: Duration
) -> None:
    async def test() -> None:
        engine, clock = MemoryEngine(), ManualClock()
        await engine.open()
        await store(engine, backlog, clock)
        buffer, buffered, now = Buffer(QUEUES, backlog.in_order), [], 0

        def start_one() -> None:
            run = buffer.pop()
            assert run is not None
            assert run.task is next_of(buffered, backlog, now)
            buffered.remove(run.task)

        for sequence, (starts, claims) in enumerate(moves):
            clock.move_to_instant(clock.now() + step)
            request = ClaimRequest(
                worker="w", sequence=sequence, queues=QUEUES, limit=claims, in_order=backlog.in_order
            )
            claimed = (await engine.claim(request, now=clock.now())).tasks
            buffer.add([run_of(task) for task in claimed])
            buffered += claimed
            now = clock.now() if claimed else now
            for _ in range(min(starts, len(buffered))):
                start_one()
        while buffered:
            start_one()
        assert buffer.pop() is None
        assert len(buffer) == 0

    asyncio.run(test())


# Tasks that arrive while others run.


@examples
@given(
    st.sampled_from([each for each in POLICIES if not each.get("fair") and "max_aging_bonus" not in each]),
    st.lists(st.lists(st.integers(0, 100), max_size=4), min_size=5, max_size=40),
)
def test_who_arrives_is_only_overtaken_by_what_was_prefetched(
    policy: dict[str, Any], arrivals: list[list[int]]
) -> None:
    """Each start has some tasks arrive before it ends. A start passes over what is more urgent only if it was
    prefetched before that came: so often, and no more.
    """
    clock, log = ManualClock(), []
    app = Dibs("memory://", clock=clock)
    engine, coming = app.hub.engine, deque(arrivals)

    async def arrive(priorities: list[int]) -> None:
        news = [new_task(id=app.hub.new_id(), queue="a", name="work", priority=each) for each in priorities]
        if news:
            await engine.enqueue(news, now=clock.now())
        for new in news:
            (record,) = await engine.get([new.id])
            assert record is not None
            log.append(("came", (record.rank, record.id)))

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        (record,) = await engine.get([ctx.id])
        assert record is not None
        log.append(("started", (record.rank, record.id)))
        clock.move_to_instant(clock.now() + SECOND // 50)
        await arrive(coming.popleft() if coming else [])
        await asyncio.sleep(0.001)

    async def begin() -> None:
        await engine.set_queue("a", change_settings(QueueSettings(), policy), expected=0, now=clock.now())
        await arrive([50] * 12)

    try:
        app.hub.runner.run(begin())
        with prefetching(AHEAD):
            drain(app, concurrency=1, queues=("a",))
    finally:
        app.close()
    waiting: dict[tuple[int, str], int] = {}
    for event, place in log:
        if event == "came":
            waiting[place] = 0
            continue
        del waiting[place]
        waiting = {other: passed_over + (other < place) for other, passed_over in waiting.items()}
        # What is buffered goes first, and what a claim brings that was under way when it came.
        assert max(waiting.values(), default=0) <= AHEAD + AHEAD // 2, log
    assert not waiting


def test_tasks_that_turn_out_to_be_slow_do_not_keep_an_urgent_one_waiting(app: Dibs) -> None:
    """They were prefetched while others were quick."""
    started: list[str] = []
    slow_ones = threading.Event()

    @app.task
    async def work(kind: str) -> None:
        started.append(kind)
        if kind == "slow":
            slow_ones.set()
            await asyncio.sleep(0.15)

    for _ in range(100):
        work.enqueue("quick")
    with app.worker(concurrency=1) as worker:
        eventually(lambda: worker.stats().completed == 100)
        slow = [work.using(priority="low").call("slow").new for _ in range(60)]
        app.hub.runner.run(app.hub.engine.enqueue(slow))
        assert slow_ones.wait(PATIENCE)
        eventually(lambda: worker.stats().buffered > 30 or worker.stats().released > 30)
        before = len(started)
        work.using(priority="critical").enqueue("critical")
        eventually(lambda: "critical" in started)
        assert started.index("critical") - before < 12, "it would have been 60"
        worker.stop(timeout=0, wait=False)
