"""The state machine is worth its time: it finds bugs that are planted in an engine, in its store, and in the decisions
that engines share.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from hypothesis import Phase, settings
from msgspec import structs

from dibs.core.graph import Rule
from dibs.core.schedules import ScheduleRecord
from dibs.core.task import Lease, Settlement
from dibs.core.times import Instant
from dibs.engines.decisions.dependencies import Ends, judged
from dibs.engines.decisions.records import Ledger
from dibs.engines.decisions.schedules import schedule_paused
from dibs.engines.decisions.settling import settle_one
from dibs.engines.decisions.steps import Step
from dibs.engines.decisions.transaction import Transaction
from dibs.engines.memory import MemoryEngine, MemoryStore
from dibs.engines.redis import RedisEngine, from_url, scripts
from dibs.engines.values import (
    Claimed,
    ClaimRequest,
    ExtendAnswer,
    Extension,
    SettleAnswer,
    SettleOutcome,
)
from dibs.testing import conformance
from dibs.testing.model import PROFILE, check_engine
from servers import redis

QUICK = settings(PROFILE, max_examples=2000, phases=(Phase.generate,), database=None, derandomize=True)


class FencelessEngine(MemoryEngine):
    """settle does not look at the lease number: any worker may report about any run."""

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleOutcome]:
        current = [await self.current(settlement.lease) for settlement in settlements]
        waved = [structs.replace(each, lease=lease) for each, lease in zip(settlements, current, strict=True)]
        return await super().settle(waved, now=now)

    async def current(self, lease: Lease) -> Lease:
        (record,) = await self.get([lease.id])
        return lease if record is None else Lease(lease.id, record.lease)


class ZombieEngine(FencelessEngine):
    """extend keeps the current lease, whatever lease the caller has; settle is sound."""

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleOutcome]:
        return await MemoryEngine.settle(self, settlements, now=now)

    async def extend(self, extensions: Sequence[Extension], *, now: Instant | None = None) -> list[ExtendAnswer]:
        waved = [structs.replace(each, lease=await self.current(each.lease)) for each in extensions]
        return await super().extend(waved, now=now)


class FifoConnection:
    """Reads pending tasks by their ids."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def execute(self, text: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self.connection.execute(text.replace("ORDER BY rank, id", "ORDER BY id"), parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


class FifoStore(MemoryStore):
    """Hands tasks out in the order of their ids, whatever their rank."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = self.connection = FifoConnection(self.connection)  # type: ignore[assignment]


class DamagedStore(MemoryStore):
    """A store that changes what is written to it."""

    damage: str

    def __init__(self) -> None:
        super().__init__()
        self.connection.executescript(self.damage)


class ForgetfulStore(DamagedStore):
    """A task that comes back after a run is where no claim reads: it is pending for ever."""

    damage = """
        CREATE TRIGGER forget AFTER INSERT ON dibs_pending
        WHEN EXISTS (SELECT 1 FROM dibs_tasks WHERE id = NEW.id AND lease > 0)
        BEGIN UPDATE dibs_pending SET gated = 1 WHERE id = NEW.id; END;
    """


class UnfairStore(DamagedStore):
    """No turn ever ends: the first tenant is served as long as it has something."""

    damage = """
        CREATE TRIGGER serve_the_first AFTER UPDATE OF virtual_time ON dibs_turns WHEN NEW.virtual_time > 0
        BEGIN UPDATE dibs_turns SET virtual_time = 0 WHERE track = NEW.track AND share = NEW.share; END;
    """


class CrowdedStore(DamagedStore):
    """Tasks that run are not counted by partition."""

    damage = """
        CREATE TRIGGER crowd AFTER INSERT ON dibs_running
        BEGIN UPDATE dibs_running SET partition = NULL WHERE id = NEW.id; END;
    """


class DeafStore(DamagedStore):
    """No one learns of an end or of another urgency: a task that waits for another waits for ever."""

    damage = """
        CREATE TRIGGER be_deaf AFTER INSERT ON dibs_edges
        BEGIN UPDATE dibs_edges SET open = 0 WHERE dependent = NEW.dependent AND slot = NEW.slot; END;
    """


class LenientStore(DamagedStore):
    """Whatever its edges say, a task runs after the end of what it waited for."""

    damage = """
        CREATE TRIGGER be_lenient AFTER INSERT ON dibs_edges
        BEGIN UPDATE dibs_edges SET rule = 'run' WHERE dependent = NEW.dependent AND slot = NEW.slot; END;
    """


def on(store: type[MemoryStore]) -> Callable[[], MemoryEngine]:
    """An engine on a damaged store."""
    return lambda: MemoryEngine(store())


class GreedyEngine(MemoryEngine):
    """A repeated claim takes more tasks instead of answering what was taken before."""

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        return await super().claim(structs.replace(request, repeat=False), now=now)


STORES = [FifoStore, ForgetfulStore, UnfairStore, CrowdedStore, DeafStore, LenientStore]
ENGINES = [FencelessEngine, ZombieEngine, GreedyEngine]
DAMAGED = {store.__name__: on(store) for store in STORES} | {engine.__name__: engine for engine in ENGINES}


@pytest.mark.parametrize("damaged", DAMAGED)
def test_planted_bug_is_found(damaged: str) -> None:
    with pytest.raises(AssertionError):
        check_engine(DAMAGED[damaged], QUICK)


# What engines share, they get wrong together. The oracle decides for itself.


def settle_with_any_lease(transaction: Transaction, records: Ledger, settlement: Settlement) -> SettleAnswer:
    """The number of the lease is not compared."""
    record = records.get(settlement.lease.id)
    if record is not None:
        settlement = structs.replace(settlement, lease=Lease(record.id, record.lease))
    return settle_one(transaction, records, settlement)


def judge_leniently(steps: list[Step], edges: Iterable[tuple[int, str, int, Rule]]) -> tuple[Ends, list[str]]:
    """Whatever an edge says about the end of its prerequisite, the dependent goes on."""
    ends, goes = judged(steps, edges)
    return {}, [*goes, *ends]


def resume_and_catch_up(old: ScheduleRecord, paused: bool, now: Instant) -> ScheduleRecord:
    """A schedule that goes on fires what it missed while it was paused."""
    return structs.replace(old, paused=paused)


SHARED = [
    (settle_one, settle_with_any_lease),
    (judged, judge_leniently),
    (schedule_paused, resume_and_catch_up),
]


def damage(monkeypatch: pytest.MonkeyPatch, sound: Callable[..., object], damaged: Callable[..., object]) -> None:
    """Put a damaged decision in the place of a sound one, wherever that is imported."""
    name = sound.__name__
    for module in [each for key, each in sys.modules.items() if key.startswith("dibs.engines.")]:
        if getattr(module, name, None) is sound:
            monkeypatch.setattr(module, name, damaged)


@pytest.mark.parametrize(("sound", "damaged"), SHARED, ids=lambda decision: decision.__name__)
def test_bug_in_a_shared_decision_is_found(
    sound: Callable[..., object], damaged: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(monkeypatch, sound, damaged)
    with pytest.raises(AssertionError):
        check_engine(MemoryEngine, QUICK)


# The scripts of Redis decide by themselves, too.

SCRIPTED = {
    "claim forgets a count": ("claim", "count(track, 'pending', -n)", ""),
    "complete takes any lease": (
        "complete",
        "if run and value then",
        "number = run and string.match(run, '^%d+') or number\nif run and value then",
    ),
    "extend takes any lease": ("extend", "if lease == number then", "if lease then"),
    "find misses the dead": ("find", "look(base .. 'dead', 'dead', 0)", ""),
}
"""What each does wrong: the script, a part of it, and what stands there instead."""

IN_CASES = {
    "claim goes by ids": (
        "claim",
        "claim",
        "track.low, '(1', 'LIMIT', 0, page)",
        """track.low, '(1', 'LIMIT', 0, 1000)
           table.sort(found, function(one, other) return sub(one, 17, 52) < sub(other, 17, 52) end)""",
    ),
    "claim takes lanes in their order": ("claim", "claim", "if mine ~= its then return mine > its end", ""),
    "claim starts what is late": ("claim_expire", "claim", "(expiry and expiry <= now)", "false"),
    "complete forgets who waits": ("act_workflows", "complete", "and not is_followed(id)", ""),
    "complete loses progress": ("settle", "complete", "rest and rest ~= '' and rest or 'null'", "'null'"),
    "enqueue knows no later": ("claim_expire", "enqueue", "local later = due > now", "local later = false"),
    "enqueue takes an id twice": ("enqueue", "enqueue", "if value then return {'known'} end", ""),
    "extend tells nobody to stop": (
        "extend",
        "extend",
        "is_asked and (call('HGET', base .. 'tasks', id) or '') or 1",
        "1",
    ),
}
"""Those that a program meets too rarely, and which conformance cases find them."""


@contextmanager
def planted(name: str, sound: str, damaged: str) -> Iterator[Callable[[], RedisEngine]]:
    """Engines with a script that is wrong."""
    source, url = scripts.source, redis.server().url

    def changed(each: str) -> str:
        text = source(each)
        assert each != name or sound in text
        return text.replace(sound, damaged) if each == name else text

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripts, "source", changed)
        scripts.script.cache_clear()
        try:
            yield lambda: from_url(f"{url}?prefix=planted{next(prefixes)}")
        finally:
            scripts.script.cache_clear()


prefixes = count(1)


RARE = {"claim forgets a count"}
"""It takes minutes to draw the calls that show it; cases of the conformance suite show it too."""


@pytest.mark.parametrize("bug", [pytest.param(each, marks=[pytest.mark.soak] * (each in RARE)) for each in SCRIPTED])
def test_bug_in_a_script_is_found(bug: str) -> None:
    with planted(*SCRIPTED[bug]) as make_engine, pytest.raises(AssertionError):
        check_engine(make_engine, QUICK)


@pytest.mark.parametrize("bug", IN_CASES)
def test_bug_in_a_script_is_found_by_a_case(bug: str) -> None:
    verb, *change = IN_CASES[bug]

    def run_all() -> None:
        for case in conformance.cases():
            if case.verb == verb:
                case.run(make_engine)

    with planted(*change) as make_engine, pytest.raises((AssertionError, ValueError)):
        run_all()
