"""resign: it makes room for the next leader."""

from __future__ import annotations

from dibs.core.policy import TERM
from dibs.testing.conformance.harness import Harness


async def test_resigning_makes_room(harness: Harness) -> None:
    first = await harness.lead("a")
    await harness.engine.resign(first)
    await harness.engine.resign(first)
    second = await harness.lead("b")
    assert second.number > first.number


async def test_only_the_current_term_can_be_resigned(harness: Harness) -> None:
    old = await harness.lead("a")
    harness.later(TERM)
    await harness.lead("b")
    await harness.engine.resign(old)
    assert await harness.engine.lead("a", now=harness.now) is None
