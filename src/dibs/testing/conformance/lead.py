"""lead: one leader at a time, under a number that only grows."""

from __future__ import annotations

from dibs.core.policy import TERM
from dibs.core.times import SECOND
from dibs.testing.conformance.harness import Harness


async def test_first_come(harness: Harness) -> None:
    term = await harness.engine.lead("a", now=harness.now)
    assert term is not None
    assert (term.worker, term.expires_at) == ("a", harness.now + TERM)
    assert await harness.engine.lead("b", now=harness.now) is None


async def test_renewal_keeps_the_number(harness: Harness) -> None:
    first = await harness.lead("a")
    harness.later(5 * SECOND)
    second = await harness.lead("a")
    assert second.number == first.number
    assert second.expires_at == harness.now + TERM
    harness.later(TERM - 1)
    assert await harness.engine.lead("b", now=harness.now) is None


async def test_a_term_ends(harness: Harness) -> None:
    first = await harness.lead("a")
    harness.later(TERM)
    second = await harness.lead("b")
    assert second.number > first.number
    assert await harness.engine.lead("a", now=harness.now) is None
