"""check: a new store is healthy."""

from __future__ import annotations

from dibs.engines.values import Level
from dibs.testing.conformance.harness import Harness


async def test_healthy_when_new(harness: Harness) -> None:
    await harness.add()
    for full in (False, True):
        findings = await harness.engine.check(full=full)
        assert [finding for finding in findings if finding.level is Level.ERROR] == []
