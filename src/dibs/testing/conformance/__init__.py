"""The conformance suite: what every engine must do, one module per verb or subject.

Each test is ``async def test_…(harness)`` and starts with an empty store. To check an engine of your own::

    @pytest.mark.parametrize("case", conformance.cases(), ids=str)
    def test_conformance(case):
        case.run(lambda: MyEngine(...))      # a new, empty store on each call

Imports pytest nowhere, so any runner will do. Invariants: a test speaks to the seam only, gives every instant itself,
and relies on nothing that the seam leaves open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from msgspec import Struct

from dibs.engines.base import Engine
from dibs.engines.values import Feature
from dibs.testing.conformance.harness import EngineFactory, Harness
from dibs.testing.conformance.spanning import SPANNING

__all__ = ["Case", "EngineFactory", "Harness", "cases", "cases_of"]

TOOLS = {"harness", "order", "schedule_help", "spanning"}


class Case(Struct, frozen=True):
    """One test of one verb or subject."""

    verb: str
    name: str
    test: Callable[[Harness], Awaitable[None]]

    def __str__(self) -> str:
        return f"{self.verb}-{self.name.removeprefix('test_')}"

    def concerns(self, engine: Engine) -> bool:
        """Whether the engine declares what the case is about."""
        spans = self.name.removeprefix("test_") in SPANNING.get(self.verb, ())
        return not spans or Feature.CROSS_QUEUE in engine.features

    def run(self, make_engine: EngineFactory) -> None:
        """Run it on a new engine, in an event loop of its own, if it concerns that."""
        engine = make_engine()
        if self.concerns(engine):
            asyncio.run(self.drive(engine))

    async def drive(self, engine: Engine) -> None:
        await engine.open()
        try:
            await self.test(Harness(engine))
        finally:
            await engine.close()


def cases() -> list[Case]:
    """All tests, by verb and in the order they are written."""
    names = [each.name for each in iter_modules(__path__) if each.name not in TOOLS]
    return [case for name in names for case in cases_of(name, import_module(f"{__name__}.{name}"))]


def cases_of(verb: str, module: ModuleType) -> list[Case]:
    """The tests that a module has."""
    return [Case(verb, name, test) for name, test in vars(module).items() if name.startswith("test_")]
