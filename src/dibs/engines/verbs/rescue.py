"""rescue: take back tasks whose lease has ended or whose worker is dead."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.lease import taken_until
from dibs.core.policy import RESCUE_BATCH
from dibs.core.times import Instant
from dibs.engines.decisions.settling import lose_all
from dibs.engines.port import Port, Stored
from dibs.engines.values import LostTask, Rescued
from dibs.engines.verbs.records import Records
from dibs.engines.verbs.workers import bury

__all__ = ["rescue"]


async def rescue(
    port: Port, absent: Sequence[str], low: Instant, ended_by: Instant | None, not_after: Instant | None
) -> Rescued:
    """Take back the tasks of leases that have ended, and of absent workers; mark dead workers.

    The clock was read once, inside the transaction. A stall after that does no harm: only leases that had ended before
    are taken. `low`: no lease that ended earlier is left.
    """
    until = taken_until(port.now, ended_by, not_after)
    if until is None:
        return Rescued(at=port.now, stalled=True)
    lost, more = await lose(port, await port.expired(until, low, RESCUE_BATCH))
    if absent:
        held, more_held = await lose(port, await port.running_of(absent, RESCUE_BATCH))
        lost, more = lost + held, more or more_held
        busy = await port.busy(absent)
        absent = [worker for worker in absent if worker not in busy]  # the busy ones stay until their last task
    return Rescued(lost, await bury(port, absent, until), more, port.now)


async def lose(port: Port, running: Sequence[Stored]) -> tuple[list[LostTask], bool]:
    """These running tasks have lost their worker: what became of each, and whether there may be more.

    Unreadable ones stay unchanged, but count for the batch.
    """
    records = Records(port)
    lost = lose_all(port, records, records.adopt(running))
    await records.flush()
    return lost, len(running) == RESCUE_BATCH
