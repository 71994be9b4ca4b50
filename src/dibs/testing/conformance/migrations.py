"""migrations: an open store has none left."""

from __future__ import annotations

from dibs.testing.conformance.harness import Harness


async def test_open_engine_has_nothing_to_migrate(harness: Harness) -> None:
    assert await harness.engine.migrations() == []
