"""Measures every verb of every engine in one place, and turns rows that can't be read into one error.

Here is also where calls fail at once while the store is known to be away. What workers do to keep their runs is never
held back: it is repeated with a backoff of its own.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Coroutine, Sized
from typing import Any, cast

from dibs.engines.base import Consuming, Engine, Keeping
from dibs.engines.unreadable import UNREADABLE, problem_of
from dibs.errors import DibsError, StoreCorrupt
from dibs.observe.meters import Meters
from dibs.runtime.breaker import Breaker

__all__ = ["VERBS", "instrumented"]

VERBS = tuple(name for name, member in inspect.getmembers(Engine) if inspect.iscoroutinefunction(member))
"""Everything that an engine is asked over a loop."""

NEVER_HELD = {name for part in (Consuming, Keeping) for name, _ in inspect.getmembers(part)} | {"close"}


class Instrumented:
    """An engine whose async verbs are measured; everything else is the engine's own."""

    def __init__(self, engine: Engine, meters: Meters, breaker: Breaker, *, is_held: bool = True) -> None:
        self._engine = engine
        self._meters = meters
        self._breaker = breaker
        for verb in VERBS:
            held = is_held and verb not in NEVER_HELD
            setattr(self, verb, measured(verb, getattr(engine, verb), meters, breaker, held))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def sibling(self) -> Engine:
        """For heartbeats, which are never held back."""
        return cast(Engine, Instrumented(self._engine.sibling(), self._meters, self._breaker, is_held=False))


def unreadable(error: Exception, verb: str) -> StoreCorrupt:
    """Rows that can't be read are skipped. One that a verb can't skip is an error of the store: the worker stays."""
    found = f"{type(error).__name__}: {problem_of(error)}"
    return StoreCorrupt(f"{verb} met something in the store that can't be read ({found}). Run dibs doctor --full.")


def instrumented(engine: Engine, meters: Meters, breaker: Breaker) -> Engine:
    """The same engine, measured."""
    return cast(Engine, Instrumented(engine, meters, breaker))


def measured(
    verb: str, call: Callable[..., Coroutine[Any, Any, Any]], meters: Meters, breaker: Breaker, is_held: bool
) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        is_probe = is_held and breaker.holds_verbs and breaker.enter()
        items = len(args[0]) if args and isinstance(args[0], Sized) and not isinstance(args[0], str) else 1
        began = time.perf_counter_ns()
        answer: Any = None
        failure: BaseException | None = None
        try:
            answer = await call(*args, **kwargs)
            return answer
        except DibsError as error:
            failure = error
            raise
        except UNREADABLE as error:
            failure = error
            raise unreadable(error, verb) from error
        except BaseException as error:
            failure = error
            raise
        finally:
            took = time.perf_counter_ns() - began
            breaker.leave(is_probe, failure)
            meters.record(verb, items, took // 1000, failure is not None)
            if meters.listener is not None:
                meters.listener(verb, args, answer, took, failure)
            del failure  # with its traceback, it would keep the caller's frames

    return run
