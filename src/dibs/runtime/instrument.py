"""Measures every verb of every engine in one place, and turns rows that can't be read into one error."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Coroutine, Sized
from typing import Any, cast

from dibs.engines.base import Engine
from dibs.engines.unreadable import UNREADABLE, problem_of
from dibs.errors import DibsError, StoreCorrupt
from dibs.observe.meters import Meters

__all__ = ["VERBS", "instrumented"]

VERBS = tuple(name for name, member in inspect.getmembers(Engine) if inspect.iscoroutinefunction(member))
"""Everything that an engine is asked over a loop."""


class Instrumented:
    """An engine whose async verbs are measured; everything else is the engine's own."""

    def __init__(self, engine: Engine, meters: Meters) -> None:
        self._engine = engine
        self._meters = meters
        for verb in VERBS:
            setattr(self, verb, measured(verb, getattr(engine, verb), meters))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def sibling(self) -> Engine:
        return instrumented(self._engine.sibling(), self._meters)


def unreadable(error: Exception, verb: str) -> StoreCorrupt:
    """Rows that can't be read are skipped. One that a verb can't skip is an error of the store: the worker stays."""
    found = f"{type(error).__name__}: {problem_of(error)}"
    return StoreCorrupt(f"{verb} met something in the store that can't be read ({found}). Run dibs doctor --full.")


def instrumented(engine: Engine, meters: Meters) -> Engine:
    """The same engine, measured."""
    return cast(Engine, Instrumented(engine, meters))


def measured(
    verb: str, call: Callable[..., Coroutine[Any, Any, Any]], meters: Meters
) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        items = len(args[0]) if args and isinstance(args[0], Sized) else 1
        began = time.perf_counter_ns()
        failed = True
        try:
            answer = await call(*args, **kwargs)
            failed = False
            return answer
        except DibsError:
            raise
        except UNREADABLE as error:
            raise unreadable(error, verb) from error
        finally:
            meters.record(verb, items, (time.perf_counter_ns() - began) // 1000, failed)

    return run
