"""The order of claims, for random tasks: exactly the best of those that the worker can run and that may start.

What is right is worked out here from the arithmetic in `dibs.core` and nothing else, not from another engine.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from dibs.core.fairness import next_virtual_time, start_virtual_time
from dibs.core.limits import Scope, free_slots, limits_for
from dibs.core.priority import HIGHEST, rank, scale
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.times import HOUR, MINUTE, SECOND, Duration, Instant
from dibs.testing.conformance.harness import EngineFactory, Harness

__all__ = ["check_order"]

POLICIES: tuple[dict[str, object], ...] = (
    {},
    {"aging": 7.0},
    {"aging": 60, "max_aging_bonus": 10},
    {"aging": 1, "max_aging_bonus": 0, "deadline_weight": 50},
    {"deadline_weight": 100, "deadline_horizon": 600},
    {"policy": "tiers"},
    {"policy": "tiers", "promote_low": 30, "promote_medium": 90},
    {"policy": "strict"},
    {"fair": True, "weights": {"a": 2.5}},
    {"fair": True, "policy": "tiers", "max_concurrent": 7},
    {"fair": True, "aging": 60, "max_aging_bonus": 10, "per_task": {"x": 3}},
    {"aging": 1, "per_task": {"x": 2, "y": 5}, "per_partition": 1},
    {"fair": True, "per_partition": 2},
)
QUEUES = ("a", "b", "c")
SPANS: tuple[Duration, ...] = (0, 0, 1, SECOND, 45 * SECOND, MINUTE, 10 * MINUTE, HOUR)


class Waiting(Struct, frozen=True):
    """A task of a scenario, enqueued `after` the one before it."""

    after: Duration
    queue: str
    name: str
    requires: tuple[str, ...]
    priority: int
    delay: Duration
    deadline_in: Duration | None
    tenant: str
    partition: str | None


class Scenario(Struct, frozen=True):
    """Tasks that arrive one after the other, and then a worker that claims twice."""

    policies: tuple[dict[str, object], ...]
    tasks: list[Waiting]
    wait: Duration
    served: list[str]
    names: tuple[str, ...] | None
    capabilities: tuple[str, ...]
    limits: tuple[int, int]
    in_order: bool


class Known(Struct, frozen=True):
    """What the oracle knows of a task that has been enqueued."""

    task: Waiting
    id: str
    ready_at: Instant
    deadline: Instant | None


class Placed(Struct, frozen=True):
    """A task at the moment of the claim: its place in a lane, and its effective priority, exactly."""

    id: str
    task: Waiting
    lane: int
    ready_at: Instant
    effective: Fraction


waiting_tasks = st.builds(
    Waiting,
    after=st.sampled_from(SPANS),
    queue=st.sampled_from(QUEUES),
    name=st.sampled_from(("x", "y")),
    requires=st.sampled_from(((), (), ("gpu",), ("gpu", "host:a"))),
    priority=st.integers(0, 100),
    delay=st.sampled_from((0, 0, 0, MINUTE, HOUR)),
    deadline_in=st.none() | st.sampled_from((0, 5 * MINUTE, 50 * MINUTE, 5 * HOUR)),
    tenant=st.sampled_from(("", "a", "a", "a", "b")),
    partition=st.sampled_from((None, None, "p", "q")),
)
scenarios = st.builds(
    Scenario,
    policies=st.tuples(*[st.sampled_from(POLICIES)] * len(QUEUES)),
    tasks=st.lists(waiting_tasks, min_size=1, max_size=25),
    wait=st.sampled_from(SPANS),
    served=st.permutations(QUEUES),
    names=st.sampled_from((None, None, ("x",), ("x", "y", "z"))),
    capabilities=st.sampled_from(((), ("gpu",), ("gpu", "host:a", "spare"))),
    limits=st.tuples(st.integers(0, 10), st.integers(0, 30)),
    in_order=st.booleans(),
)


def check_order(make_engine: EngineFactory, examples: int = 60) -> None:
    """Draw scenarios; raises if a claim ever gives anything but the sorted prefix."""

    @settings(
        max_examples=examples,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        database=None,
    )
    @given(scenarios)
    def check(scenario: Scenario) -> None:
        asyncio.run(play(make_engine, scenario))

    check()


async def play(make_engine: EngineFactory, scenario: Scenario) -> None:
    engine = make_engine()
    await engine.open()
    try:
        await compare(Harness(engine), scenario)
    finally:
        await engine.close()


async def compare(harness: Harness, scenario: Scenario) -> None:
    for queue, changes in zip(QUEUES, scenario.policies, strict=True):
        await harness.set_queue(queue, **changes)
    known = [await arrive(harness, task) for task in scenario.tasks]
    harness.later(scenario.wait)
    await harness.claim(queues=("nowhere",))  # promotes what is due, so that it can be ranked again
    await harness.rerank()
    expected = Oracle(scenario, known, harness.now).order()
    for limit in scenario.limits:
        given_ids = await harness.claim_ids(
            limit,
            queues=tuple(scenario.served),
            names=scenario.names,
            capabilities=scenario.capabilities,
            in_order=scenario.in_order,
        )
        assert given_ids == expected[:limit]
        expected = expected[limit:]


async def arrive(harness: Harness, task: Waiting) -> Known:
    harness.later(task.after)
    deadline = None if task.deadline_in is None else harness.now + task.deadline_in
    task_id = await harness.add(
        queue=task.queue,
        name=task.name,
        requires=task.requires,
        priority=task.priority,
        delay=task.delay,
        deadline=deadline,
        tenant=task.tenant,
        partition=task.partition,
    )
    return Known(task, task_id, harness.now + task.delay, deadline)


class Oracle:
    """All that the worker can run and may start, in the order in which it must be given; nothing is ever settled."""

    def __init__(self, scenario: Scenario, known: list[Known], now: Instant) -> None:
        self.scenario = scenario
        pairs = zip(QUEUES, scenario.policies, strict=True)
        self.settings = {queue: change_settings(QueueSettings(), policy) for queue, policy in pairs}
        self.virtual_times: dict[tuple[str, str], int] = defaultdict(int)
        self.clocks: dict[str, int] = dict.fromkeys(QUEUES, 0)
        self.running: Counter[tuple[str, Scope, str]] = Counter()
        self.waiting = [
            place(each, self.settings[each.task.queue], now)
            for each in known
            if can_run(scenario, each.task) and each.ready_at <= now
        ]

    def order(self) -> list[str]:
        given_ids: list[str] = []
        while heads := [head for queue in QUEUES if (head := self.head(queue)) is not None]:
            best = min(heads, key=lambda head: merge_order(self.scenario, head))
            self.waiting.remove(best)
            self.start(best.task)
            given_ids.append(best.id)
        return given_ids

    def head(self, queue: str) -> Placed | None:
        """The queue's next task: the best of the share whose turn it is, among those that have one that may start."""
        free = [each for each in self.waiting if each.task.queue == queue and self.has_room(each.task)]
        if not free:
            return None
        share = min((self.turn(each.task), self.share(each.task)) for each in free)[1]
        lanes: dict[int, Placed] = {}
        for each in sorted(free, key=lambda placed: (-placed.effective, placed.id)):
            if self.share(each.task) == share:
                lanes.setdefault(each.lane, each)
        return min(lanes.values(), key=lambda head: merge_order(self.scenario, head))

    def share(self, task: Waiting) -> str:
        return task.tenant if self.settings[task.queue].fair else ""

    def turn(self, task: Waiting) -> int:
        return start_virtual_time(self.clocks[task.queue], self.virtual_times[task.queue, self.share(task)])

    def has_room(self, task: Waiting) -> bool:
        limits = limits_for(self.settings[task.queue], task.name, task.partition)
        return all(free_slots(limit, self.running[task.queue, scope, whose]) != 0 for scope, whose, limit in limits)

    def start(self, task: Waiting) -> None:
        for scope, whose, _ in limits_for(self.settings[task.queue], task.name, task.partition):
            self.running[task.queue, scope, whose] += 1
        if self.settings[task.queue].fair:
            start = self.clocks[task.queue] = self.turn(task)
            self.virtual_times[task.queue, task.tenant] = next_virtual_time(
                self.settings[task.queue], task.tenant, start
            )


def can_run(scenario: Scenario, task: Waiting) -> bool:
    return (scenario.names is None or task.name in scenario.names) and set(task.requires) <= set(scenario.capabilities)


def place(known: Known, settings_now: QueueSettings, now: Instant) -> Placed:
    ranking = rank(
        settings_now, priority=known.task.priority, deadline=known.deadline, ready_at=known.ready_at, now=now
    )
    value = known.ready_at + ranking.offset
    points = Fraction(now - value, scale(settings_now, ranking.lane))
    return Placed(known.id, known.task, ranking.lane, known.ready_at, points)


def merge_order(scenario: Scenario, head: Placed) -> tuple[object, ...]:
    """Heads: by turn if asked, else by what people see of effective priority, a double of at most 100."""
    turn = scenario.served.index(head.task.queue)
    urgency = -min(float(head.effective), float(HIGHEST))
    return (turn if scenario.in_order else 0, urgency, head.ready_at, turn, head.lane)
