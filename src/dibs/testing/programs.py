"""What random programs are made of: queues with different rules, workers with different skills, tasks and questions.

Facts that matter together are drawn together: a draw costs more than most of what it decides.
"""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st
from msgspec import Struct

from dibs.core.graph import Rule
from dibs.core.recurrence import CatchUp, Overlap, Recurrence
from dibs.core.settings import Defaults
from dibs.core.states import State
from dibs.core.task import Failure, NewTask, Outcome, QueueState
from dibs.core.times import DAY, HOUR, MINUTE, SECOND, Duration
from dibs.engines.values import Floor, Query
from dibs.testing.conformance.harness import START
from dibs.testing.tasks import new_task

__all__ = [
    "ACTORS",
    "CHANGES",
    "FAILURE",
    "JACK_OF_ALL_TRADES",
    "PROFILES",
    "QUEUES",
    "RECURRENCES",
    "SCHEDULED",
    "SETTINGS",
    "Draft",
    "Profile",
    "deadlines",
    "delays",
    "drafts",
    "expiries",
    "floors",
    "outcomes",
    "picks",
    "queries",
    "queue_states",
    "queues",
    "spans",
]

QUEUES = ("plain", "capped", "tiers", "strict", "narrow", "lots", "shared")
SETTINGS: dict[str, dict[str, object]] = {
    "plain": {},
    "capped": {"aging": 30, "max_aging_bonus": 20, "deadline_horizon": 600},
    "tiers": {"policy": "tiers", "promote_low": 60, "promote_medium": 120, "tiers": {"low": {"retries": 7}}},
    "strict": {"policy": "strict", "max_depth": 6, "keep": 0, "enqueue_rate": 0.1, "enqueue_burst": 4},
    "narrow": {"max_concurrent": 2, "rate": 0.5, "burst": 3, "lease": 20, "per_task": {"render": 1}},
    "lots": {"per_partition": 1, "per_task": {"mail": {"rate": 0.5, "burst": 3}}},
    "shared": {"fair": True, "weights": {"a": 3}, "per_partition": {"max_concurrent": 2, "rate": 0.5, "burst": 2}},
}
CHANGES: tuple[dict[str, object], ...] = (
    {"policy": "strict"},
    {"policy": "aging"},
    {"policy": "tiers"},
    {"aging": 10},
    {"aging": 600},
    {"max_aging_bonus": 5},
    {"max_aging_bonus": None},
    {"retry_penalty": 20},
    {"deadline_weight": 60, "deadline_horizon": 60},
    {"max_depth": 3},
    {"max_depth": None},
    {"max_concurrent": 1},
    {"max_concurrent": None},
    {"rate": 0.1, "burst": 2},
    {"rate": None, "burst": None},
    {"retries": 9, "lease": 5},
    {"per_task": {"mail": 1, "index": {"rate": 0.1, "burst": 1}}},
    {"per_task": {}},
    {"per_partition": 1},
    {"per_partition": {"rate": 0.1, "burst": 1}},
    {"per_partition": None},
    {"enqueue_rate": 0.1, "enqueue_burst": 1},
    {"enqueue_rate": None, "enqueue_burst": None},
    {"fair": True},
    {"fair": False},
    {"weights": {"a": 0.5, "b": 4}},
)
KINDS = tuple(product(("mail", "mail", "mail", "render", "index"), (*[()] * 6, ("gpu",), ("gpu", "host:a"))))
NAMES = ("mail", "render", "index")
SPANS: tuple[Duration, ...] = (0, 1, SECOND, 10 * SECOND, 31 * SECOND, MINUTE, 10 * MINUTE, HOUR, DAY + 1)
ACTORS = ("ada", "")
FAILURE = Failure(type="ValueError", message="no such thing", traceback="Traceback …")

Facts = dict[str, object]
CONTENTS: tuple[Facts, ...] = tuple(
    {"args": args, "options": options, "metadata": metadata}
    for args, options, metadata in product(
        (b"{}", b'{"n":1}'),
        (Defaults(), Defaults(retries=1, lease=5 * SECOND)),
        ({}, {"customer": 1}, {"tags": ["a", {"b": None}]}),
    )
)
HELD: tuple[Facts, ...] = tuple(
    {"key": key, "window": window, "fingerprint": fingerprint}
    for key, window, fingerprint in product(("k1", "k2"), (0, MINUTE, DAY), ("same", "same", "other"))
)
REPLACING: tuple[Facts, ...] = tuple(
    {"key": "k1", "window": window, "fingerprint": "new", "replace": True, "debounce_limit": debounce_limit}
    for window, debounce_limit in product((0, DAY), (None, None, MINUTE))
)
KEYS: tuple[Facts, ...] = (*[{}] * 24, *HELD, *REPLACING)
"""The keys that a task may have; those that replace come without prerequisites."""
OWNED: tuple[Facts, ...] = tuple(
    {"partition": partition, "tenant": tenant, "client": client}
    for partition, tenant, client in product((None, "p", "p", "p", "q"), ("a", "a", "b"), ("", "c"))
)
OWNERS: tuple[Facts, ...] = (*[{}] * 4, *OWNED)
NEEDS: tuple[tuple[tuple[int, Rule], ...], ...] = (
    *[()] * 90,
    *(((back, rule),) for back, rule in product((1, 2, 3, 5), (Rule.CANCEL, *Rule))),
    *(((1, one), (back, other)) for back, one, other in product((1, 2, 4), (Rule.CANCEL, Rule.RUN), Rule)),
    ((1, Rule.CANCEL), (2, Rule.FAIL), (3, Rule.RUN), (4, Rule.CANCEL)),
    ((0, Rule.CANCEL),),
)
"""How many places before it a task's prerequisites were enqueued; 0 is a task that nobody knows."""
RECURRENCES = (
    Recurrence(every=MINUTE),
    Recurrence(every=HOUR, jitter=MINUTE, catch_up=CatchUp.SKIP),
    Recurrence(every=10 * SECOND, catch_up=CatchUp.ALL, catch_up_limit=3),
    Recurrence(every=MINUTE, overlap=Overlap.SKIP),
    Recurrence(cron="*/7 * * * *", tz="Europe/Zurich"),
)
SCHEDULED = (
    NewTask(id="", queue="plain", name="mail"),
    new_task("", "strict", "index", priority=80, tenant="a"),
    new_task("", "shared", "render", tenant="b", partition="p"),
)

spans = st.sampled_from(SPANS)
delays = st.sampled_from((0, 0, 0, *SPANS))
picks = st.integers(0, 999)
"""Chooses one of what there is, modulo how many there are: far faster than a bundle, and it shrinks as well."""
queues = st.sampled_from(QUEUES)
queue_states = st.sampled_from((*QueueState, *[QueueState.ACTIVE] * 3))
outcomes = st.sampled_from((*Outcome, *[Outcome.COMPLETED] * 2, Outcome.FAILED, Outcome.PERMANENT, Outcome.RELEASED))


class Profile(Struct, frozen=True):
    """A worker of the random programs."""

    worker: str
    names: tuple[str, ...] | None
    capabilities: tuple[str, ...]


JACK_OF_ALL_TRADES = Profile("all", None, ("gpu", "host:a"))
PROFILES = (
    JACK_OF_ALL_TRADES,
    Profile("plain", None, ()),
    Profile("mailer", ("mail", "unheard of"), ("gpu",)),
    Profile("renderer", ("render", "index"), ("gpu", "host:a", "spare")),
)


class Draft(Struct, frozen=True):
    """A task of a random program, before it is known what surrounds it and when it is."""

    task: NewTask
    deadline_in: Duration | None
    expires_in: Duration | None
    needs: tuple[tuple[int, Rule], ...]


deadlines = st.none() | st.sampled_from((-HOUR, 0, MINUTE, 5 * MINUTE, HOUR, 5 * HOUR))
expiries = st.sampled_from((*[None] * 14, 0, MINUTE, HOUR))


def draft(
    queue: str,
    kind: tuple[str, tuple[str, ...]],
    content: Facts,
    key: Facts,
    owner: Facts,
    priority: int,
    delay: Duration,
    deadline_in: Duration | None,
    expires_in: Duration | None,
    needs: tuple[tuple[int, Rule], ...],
) -> Draft:
    facts: Facts = {**content, **key, **owner}
    task = new_task("", queue, kind[0], requires=kind[1], priority=priority, delay=delay, **facts)
    return Draft(task, deadline_in, expires_in, () if task.replace else needs)


drafts = st.builds(
    draft,
    queue=st.sampled_from((*QUEUES, "lots", "shared")),
    kind=st.sampled_from(KINDS),
    content=st.sampled_from(CONTENTS),
    key=st.sampled_from(KEYS),
    owner=st.sampled_from(OWNERS),
    priority=st.sampled_from((0, 10, 39, 40, 50, 50, 50, 55, 60, 79, 80, 100)),
    delay=delays,
    deadline_in=deadlines,
    expires_in=expiries,
    needs=st.sampled_from(NEEDS),
)
floors = st.sampled_from(((), (), (), (), (Floor(60, 1),), (Floor(80, 0),), (Floor(50, 0), Floor(90, 2))))
queries = st.builds(
    Query,
    states=st.lists(st.sampled_from(State), max_size=3, unique=True).map(tuple),
    queues=st.lists(queues, max_size=2, unique=True).map(tuple),
    names=st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
    priority_min=st.sampled_from((0, 50)),
    metadata=st.sampled_from(({}, {}, {"customer": 1})),
    key=st.sampled_from((None, None, "k1")),
    worker=st.sampled_from((None, None, "all")),
    tenant=st.sampled_from((None, None, "a")),
    partition=st.sampled_from((None, None, None, "p")),
    created_after=st.sampled_from((None, None, START + 30 * SECOND)),
    created_before=st.sampled_from((None, None, START + 90 * SECOND)),
    text=st.sampled_from(("", "", "VALUE", '"n"', "stop")),
    limit=st.sampled_from((1, 3, 50)),
)
