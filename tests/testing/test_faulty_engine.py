"""Faults come as planned, and the suite of faults finds engines that can't bear them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from dibs.core.task import NewTask
from dibs.engines.base import Caring, Engine, Viewing
from dibs.engines.memory import MemoryEngine
from dibs.engines.values import ClaimRequest, Feature, SettleOutcome
from dibs.errors import StoreBusy, StoreUnavailable
from dibs.runtime.instrument import VERBS
from dibs.testing import faults as suite
from dibs.testing.conformance.harness import Harness
from dibs.testing.faults import Fault, Faults, faulty
from dibs.testing.faults.calls import CALLS


def task() -> NewTask:
    return Harness(MemoryEngine()).new()


async def number_of_tasks(engine: Engine) -> int:
    return sum((await engine.counts()).tasks.get("default", {}).values())


@pytest.mark.parametrize(("fault", "stored"), [(Fault.FAILED, 0), (Fault.LOST, 1)])
def test_a_call_that_fails_took_effect_or_not(fault: Fault, stored: int) -> None:
    async def test() -> None:
        faults = Faults()
        engine = faulty(MemoryEngine(), faults)
        faults.plan("enqueue", None, fault)
        await engine.enqueue([])
        with pytest.raises(StoreUnavailable):
            await engine.enqueue([task()])
        assert await number_of_tasks(engine) == stored
        assert (await engine.enqueue([task()]))[0].outcome == ("exists" if stored else "enqueued"), "later calls pass"
        assert faults.met == {"enqueue": 1}

    asyncio.run(test())


def test_a_call_that_is_repeated_answers_as_a_repeat() -> None:
    async def test() -> None:
        faults = Faults()
        engine = faulty(MemoryEngine(), faults)
        faults.plan("enqueue", Fault.REPEATED)
        assert (await engine.enqueue([task()]))[0].outcome == "exists"

    asyncio.run(test())


@pytest.mark.parametrize(("fault", "stored"), [(Fault.HELD, 0), (Fault.HELD_ANSWER, 1)])
def test_a_call_is_held_until_it_is_released(fault: Fault, stored: int) -> None:
    async def test() -> None:
        faults = Faults()
        engine = faulty(MemoryEngine(), faults)
        faults.plan("enqueue", fault)
        call = asyncio.create_task(engine.enqueue([task()]))
        await faults.until("enqueue")
        assert not call.done()
        assert await number_of_tasks(engine) == stored
        faults.release("enqueue")
        assert (await call)[0].outcome == "enqueued"

    asyncio.run(test())


def test_a_caller_may_give_up_a_call_that_is_held() -> None:
    async def test() -> None:
        faults = Faults()
        engine = faulty(MemoryEngine(), faults)
        faults.plan("enqueue", Fault.HELD, Fault.HELD)
        given_up, kept = (asyncio.create_task(engine.enqueue([task()])) for _ in range(2))
        await faults.until("enqueue", 2)
        given_up.cancel()
        await asyncio.wait([given_up])
        faults.release()
        assert (await kept)[0].outcome == "enqueued", "the other one never reached the store"

    asyncio.run(test())


def test_a_store_that_is_away_comes_back() -> None:
    async def test() -> None:
        faults = Faults(StoreBusy)
        engine = faulty(MemoryEngine(), faults)
        await engine.open()
        sibling = engine.sibling()
        faults.away("claim")
        await sibling.queues()
        faults.away()
        for call in (engine.queues(), sibling.queues(), engine.enqueue([task()])):
            with pytest.raises(StoreBusy):
                await call
        await sibling.close()
        faults.back()
        assert await engine.queues() == []

    asyncio.run(test())


def test_a_name_that_is_no_verb_is_refused() -> None:
    for act in (Faults().plan, Faults().away):
        with pytest.raises(ValueError, match="has no verb clam"):
            act("clam")


def test_a_fault_that_does_not_come_is_not_waited_for() -> None:
    with pytest.raises(TimeoutError, match="0 calls of claim met a fault, not 1"):
        Faults().wait_for("claim", timeout=0)


def test_everything_else_is_the_engines_own() -> None:
    engine: Any = MemoryEngine()
    wrapped = faulty(engine, Faults())
    assert wrapped.features == engine.features - {Feature.INLINE}
    assert wrapped.join.__self__ is engine  # type: ignore[attr-defined]


def test_every_verb_that_changes_something_is_in_the_suite() -> None:
    async def verb_of(name: str) -> str:
        harness = Harness(MemoryEngine())
        return (await CALLS[name](harness, "x")).verb

    called = {asyncio.run(verb_of(name)) for name in CALLS}
    changes_nothing = {*vars(Viewing), *vars(Caring), "open", "close", "about"}
    assert called == set(VERBS) - changes_nothing


class Forgetful(MemoryEngine):
    """Does not know a claim again."""

    async def claim(self, request: ClaimRequest, **options: Any) -> Any:
        return await super().claim(structs.replace(request, repeat=False), **options)


class Lax(MemoryEngine):
    """Settles a lease as often as it is asked to."""

    async def settle(self, settlements: Any, **options: Any) -> Any:
        answers = await super().settle(settlements, **options)
        return [structs.replace(answer, outcome=SettleOutcome.DONE) for answer in answers]


def failing(kind: type[MemoryEngine]) -> set[str]:
    found = set()
    for case in suite.cases():
        try:
            case.run(kind)
        except AssertionError:
            found.add(str(case))
    return found


def test_the_suite_finds_a_claim_that_is_not_known_again() -> None:
    assert failing(Forgetful) >= {"lost_reply-claim", "lost_reply-claim_limited"}


def test_the_suite_finds_a_settlement_that_is_not_known_again() -> None:
    assert failing(Lax) >= {f"lost_reply-settle_{each}" for each in ("completed", "failed", "permanent")}


def test_a_sound_engine_passes() -> None:
    assert failing(MemoryEngine) == set()
