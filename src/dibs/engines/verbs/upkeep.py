"""upkeep: what a claim does first."""

from __future__ import annotations

from dibs.core.moves import expired
from dibs.core.policy import EXPIRE_BATCH
from dibs.core.times import Instant
from dibs.engines.port import Port
from dibs.engines.verbs.records import Records


async def expire(port: Port, low: Instant) -> bool:
    """End a bounded number of waiting tasks that have expired; True if there may be more.

    `low`: none that expired earlier is left.
    """
    found = await port.too_late(low, EXPIRE_BATCH)
    records = Records(port)
    for record in records.adopt(found):
        after, entry = expired(record, port.now)
        records.put(after, entry)
        port.tell(record.queue, after.state)
    await records.flush()
    return len(found) == EXPIRE_BATCH
