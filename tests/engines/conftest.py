"""The engines under test, listed once. Each factory makes an engine on a new, empty store."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

pytest.register_assert_rewrite("dibs.testing.conformance", "dibs.testing.model", "dibs.testing.side_by_side")

from dibs.engines.base import Engine  # noqa: E402
from dibs.engines.memory import MemoryEngine  # noqa: E402

EngineFactory = Callable[[], Engine]


def memory_factory(_: Path) -> EngineFactory:
    return MemoryEngine


def sqlite_factory(folder: Path) -> EngineFactory:
    from dibs.engines.sqlite import SqliteEngine

    numbers = count(1)
    return lambda: SqliteEngine(folder / f"{next(numbers)}.db")


def postgres_factory(_: Path) -> EngineFactory:
    from dibs.engines.postgres import from_url
    from servers.postgres import new_url

    return lambda: from_url(new_url())


ENGINES: dict[str, Callable[[Path], EngineFactory]] = {
    "memory": memory_factory,
    "sqlite": sqlite_factory,
    "postgres": postgres_factory,
}


@pytest.fixture(params=ENGINES)
def make_engine(request: pytest.FixtureRequest, tmp_path: Path) -> EngineFactory:
    """A factory of each engine in turn."""
    return ENGINES[request.param](tmp_path)
