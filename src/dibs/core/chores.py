"""When a chore of the leader is late, and what that means."""

from __future__ import annotations

from dibs.core.policy import CHORE_BEHIND, CHORE_LATE
from dibs.core.times import Instant

__all__ = ["is_behind", "is_late", "meaning_of"]

MEANINGS = {
    "rerank": "promotions and deadlines take effect late",
    "background_steps": "acts on all tasks that match make no progress by themselves",
    "fold_counts": "counting tasks gets slower",
    "make_days": "there may be no place for finished tasks of the next days",
    "checkpoint": "the write-ahead log of the file grows",
    "vacuum": "the file keeps space that it does not need",
}


def is_behind(behind_since: Instant, now: Instant) -> bool:
    """Whether every run for a long time has stopped at its bound with work left: it does not keep up."""
    return behind_since > 0 and now - behind_since >= CHORE_BEHIND


def is_late(at: Instant, behind_since: Instant, now: Instant) -> bool:
    """Whether a leader should have run it since `at`, or it does not keep up. One that never ran is not late."""
    return at > 0 and (now - at >= CHORE_LATE or is_behind(behind_since, now))


def meaning_of(chore: str) -> str:
    """What happens while a chore is late."""
    return MEANINGS.get(chore, "what is kept for some time only stays longer, and takes space")
