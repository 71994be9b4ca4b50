"""rescue: take back tasks whose lease has ended or whose worker is dead."""

from __future__ import annotations

from collections.abc import Iterable

from dibs.core.lease import taken_until
from dibs.core.policy import RESCUE_BATCH
from dibs.core.times import Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.port import Read, at_once
from dibs.engines.sqlite.presence import Presence
from dibs.engines.sqlite.settling import lose, rescue_expired
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import Rescued
from dibs.engines.verbs.workers import bury

__all__ = ["bury_workers", "rescue"]

BYTES_HELD = Read("bytes_held", tuple[str, int], "presence of worker")
"""Takes nothing: the bytes of the presence file that living workers should hold, as (worker, byte)."""


def rescue(
    transaction: Transaction, presence: Presence, ended_by: Instant | None, not_after: Instant | None
) -> Rescued:
    """The clock was read inside the write transaction, so no wait for the lock makes it late."""
    until = taken_until(transaction.now, ended_by, not_after)
    if until is None:
        return Rescued(at=transaction.now, stalled=True)
    transaction.refresh()
    transaction.look_again()
    expired, more_expired = rescue_expired(transaction, until)
    absent = presence.absent(dict(at_once(transaction.read(BYTES_HELD))))
    lost, workers, more = bury_workers(transaction, absent, until)
    return Rescued(expired + lost, workers, more or more_expired, transaction.now)


def bury_workers(transaction: Transaction, absent: Iterable[str], until: Instant) -> tuple[list[str], list[str], bool]:
    """Mark workers dead whose record has expired by then or that are absent; take back the tasks of the absent.

    Answers (tasks, workers, whether the bound was reached).
    """
    gone = sorted(absent)
    asked = (to_json(gone), RESCUE_BATCH, to_json(transaction.passed_over))
    lost, more = lose(transaction, transaction.tasks("running_of", *asked)) if gone else ([], False)
    # An absent worker stays on the list until its last task is taken back.
    return lost, at_once(bury(transaction, [] if more else gone, until)), more
