"""What random programs are made of: queues with different rules, workers with different skills, tasks and questions."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec import Struct

from dibs.core.settings import Defaults
from dibs.core.states import State
from dibs.core.task import Failure, NewTask, Outcome, QueueState
from dibs.core.times import DAY, HOUR, MINUTE, SECOND, Duration
from dibs.engines.base import Floor, Query

QUEUES = ("plain", "capped", "tiers", "strict", "narrow")
SETTINGS: dict[str, dict[str, object]] = {
    "plain": {},
    "capped": {"aging": 30, "max_aging_bonus": 20, "deadline_horizon": 600},
    "tiers": {"policy": "tiers", "promote_low": 60, "promote_medium": 120, "tiers": {"low": {"retries": 7}}},
    "strict": {"policy": "strict", "max_depth": 6, "keep": 0},
    "narrow": {"max_concurrent": 2, "rate": 0.5, "burst": 3, "lease": 20},
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
)
NAMES = ("mail", "mail", "mail", "render", "index")
REQUIREMENTS = (*[()] * 6, ("gpu",), ("gpu", "host:a"))
SPANS: tuple[Duration, ...] = (0, 1, SECOND, 10 * SECOND, 31 * SECOND, MINUTE, 10 * MINUTE, HOUR, DAY + 1)
ACTORS = ("ada", "")
FAILURE = Failure(type="ValueError", message="no such thing", traceback="Traceback …")

spans = st.sampled_from(SPANS)
delays = st.sampled_from((0, 0, 0, *SPANS))
picks = st.integers(0, 999)
"""Chooses one of what there is, modulo how many there are: far faster than a bundle, and it shrinks as well."""
queues = st.sampled_from(QUEUES)
queue_states = st.sampled_from((*QueueState, *[QueueState.ACTIVE] * 3))
outcomes = st.sampled_from((*Outcome, Outcome.RETRY, Outcome.DEAD, Outcome.RELEASED))


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

new_tasks = st.builds(
    lambda **facts: NewTask(id="", **facts),
    queue=queues,
    name=st.sampled_from(NAMES),
    args=st.sampled_from((b"{}", b'{"n":1}')),
    priority=st.sampled_from((0, 10, 39, 40, 50, 50, 50, 55, 60, 79, 80, 100)),
    delay=delays,
    options=st.sampled_from((Defaults(), Defaults(retries=1, lease=5 * SECOND))),
    key=st.sampled_from((None, None, "k1", "k2")),
    window=st.sampled_from((0, MINUTE, DAY)),
    fingerprint=st.sampled_from(("same", "same", "same", "other")),
    requires=st.sampled_from(REQUIREMENTS),
    metadata=st.sampled_from(({}, {"customer": 1}, {"tags": ["a", {"b": None}]})),
)
deadlines = st.none() | st.sampled_from((-HOUR, 0, MINUTE, 5 * MINUTE, HOUR, 5 * HOUR))
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
    text=st.sampled_from(("", "", "VALUE", '"n"', "stop")),
    limit=st.sampled_from((1, 3, 50)),
)
