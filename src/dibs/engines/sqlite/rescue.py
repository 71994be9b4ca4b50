"""rescue: take back tasks whose lease has ended or whose worker is dead."""

from __future__ import annotations

from dibs.core.lease import taken_until
from dibs.core.task import WorkerState
from dibs.core.times import Instant
from dibs.engines.sqlite.presence import Presence
from dibs.engines.sqlite.settling import rescue_expired
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.sqlite.workers import bury_workers, stored_workers
from dibs.engines.values import Rescued

__all__ = ["rescue"]


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
    bytes_held = {
        worker.id: worker.presence
        for worker in stored_workers(transaction)
        if worker.presence is not None and worker.state != WorkerState.DEAD
    }
    lost, workers, more = bury_workers(transaction, presence.absent(bytes_held), until)
    term = transaction.row("term") if workers else None
    if term is not None and term[1] in workers:
        transaction.run("resign", term[0])
    return Rescued(expired + lost, workers, more or more_expired, transaction.now)
