"""An engine whose verbs fail, get lost, repeat or wait, as planned."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from enum import StrEnum
from typing import Any, cast

from dibs.engines.base import Engine
from dibs.engines.values import Feature
from dibs.errors import StoreUnavailable
from dibs.runtime.instrument import VERBS

__all__ = ["Fault", "Faults", "faulty"]

PATIENCE = 20.0
"""Seconds after which something that should happen has not."""

Call = Callable[[], Coroutine[Any, Any, Any]]


class Fault(StrEnum):
    """What may happen to one call."""

    FAILED = "failed"  # the store never gets the call
    LOST = "lost"  # the call takes effect, and its answer gets lost
    REPEATED = "repeated"  # the store gets the call twice, and the second answer counts
    HELD = "held"  # the store gets the call when it is released
    HELD_ANSWER = "held answer"  # the call takes effect, and its answer comes when it is released


class Faults:
    """What happens to the calls of one or more engines. Any thread may ask and change it."""

    def __init__(self, error: Callable[[str], Exception] = StoreUnavailable) -> None:
        self.error = error
        self.met: Counter[str] = Counter()
        """How many calls of each verb met a fault."""
        self._plans: dict[str, deque[Fault | None]] = {verb: deque() for verb in VERBS}
        self._away: set[str] = set()
        self._held: dict[str, list[Future[None]]] = {verb: [] for verb in VERBS}
        self._changed = threading.Condition()

    def plan(self, verb: str, *fates: Fault | None) -> None:
        """What happens to the next calls of a verb, in turn; None: nothing. Later ones pass."""
        check_names(verb)
        with self._changed:
            self._plans[verb].extend(fates)

    def away(self, *verbs: str) -> None:
        """The store can't be reached, for these verbs or, if none are given, for all but `close`. Plans wait."""
        check_names(*verbs)
        with self._changed:
            self._away.update(verbs or set(VERBS) - {"close"})

    def back(self, *verbs: str) -> None:
        """The store can be reached again, for these verbs or for all."""
        with self._changed:
            self._away.difference_update(verbs or VERBS)

    def release(self, *verbs: str) -> None:
        """Let go of the calls that are held now, of these verbs or of all."""
        with self._changed:
            held = [each for verb in verbs or VERBS for each in self._held[verb]]
            for verb in verbs or VERBS:
                self._held[verb].clear()
        for each in held:
            each.set_result(None)

    def wait_for(self, verb: str, times: int = 1, timeout: float = PATIENCE) -> None:
        """Block until so many calls of a verb have met a fault."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.met[verb] >= times, timeout):
                raise TimeoutError(f"{self.met[verb]} calls of {verb} met a fault, not {times}.")

    async def until(self, verb: str, times: int = 1, timeout: float = PATIENCE) -> None:
        """`wait_for`, on a loop."""
        await asyncio.to_thread(self.wait_for, verb, times, timeout)

    async def meet(self, verb: str, call: Call) -> Any:
        """Make a call, with what is planned for it."""
        match self._next(verb):
            case None:
                return await call()
            case Fault.FAILED:
                raise self.error(f"{verb} did not reach the store")
            case Fault.LOST:
                await call()
                raise self.error(f"the answer to {verb} was lost")
            case Fault.REPEATED:
                await call()
                return await call()
            case Fault.HELD:
                await self._hold(verb)
                return await call()
            case Fault.HELD_ANSWER:
                answer = await call()
                await self._hold(verb)
                return answer

    def _next(self, verb: str) -> Fault | None:
        with self._changed:
            if verb in self._away:
                fault: Fault | None = Fault.FAILED
            else:
                fault = self._plans[verb].popleft() if self._plans[verb] else None
            if fault in (Fault.FAILED, Fault.LOST, Fault.REPEATED):
                self._count(verb)
        return fault

    async def _hold(self, verb: str) -> None:
        released: Future[None] = Future()
        with self._changed:
            self._held[verb].append(released)
            self._count(verb)
        await asyncio.shield(asyncio.wrap_future(released))  # a caller that gives up releases nothing

    def _count(self, verb: str) -> None:
        self.met[verb] += 1
        self._changed.notify_all()


def check_names(*verbs: str) -> None:
    if unknown := sorted(set(verbs) - set(VERBS)):
        raise ValueError(f"the seam has no verb {', '.join(unknown)} that could meet a fault.")


class FaultyEngine:
    """An engine whose async verbs meet faults; everything else is the engine's own."""

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self._engine = engine
        self._faults = faults
        for verb in VERBS:
            setattr(self, verb, exposed(verb, getattr(engine, verb), faults))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def features(self) -> frozenset[Feature]:
        """A call that is held suspends."""
        return self._engine.features - {Feature.INLINE}

    def sibling(self) -> Engine:
        return faulty(self._engine.sibling(), self._faults)


def exposed(verb: str, call: Callable[..., Coroutine[Any, Any, Any]], faults: Faults) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        return await faults.meet(verb, lambda: call(*args, **kwargs))

    return run


def faulty(engine: Engine, faults: Faults) -> Engine:
    """The same engine, and its siblings, with faults."""
    return cast(Engine, FaultyEngine(engine, faults))
