"""When a chore is late."""

from __future__ import annotations

from dibs.core.chores import is_behind, is_late, meaning_of
from dibs.core.policy import CHORE_BEHIND, CHORE_LATE
from dibs.core.times import SECOND, Instant

NOW: Instant = 1_760_000_000 * SECOND


def test_late_without_a_run() -> None:
    assert not is_late(NOW - CHORE_LATE + 1, 0, NOW)
    assert is_late(NOW - CHORE_LATE, 0, NOW)


def test_late_when_it_does_not_keep_up() -> None:
    assert not is_late(NOW, NOW - CHORE_BEHIND + 1, NOW)
    assert is_late(NOW, NOW - CHORE_BEHIND, NOW)
    assert is_behind(NOW - CHORE_BEHIND, NOW)


def test_one_that_never_ran_is_not_late() -> None:
    """Nobody has led yet: there is nothing that it could be late with."""
    assert not is_late(0, 0, NOW)
    assert not is_behind(0, NOW)


def test_each_has_a_meaning() -> None:
    assert "promotions" in meaning_of("rerank")
    assert "space" in meaning_of("prune_finished")
