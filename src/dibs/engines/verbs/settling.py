"""settle, record by record: all that is not a plain completion."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.task import Settlement
from dibs.engines.decisions.settling import settle_one
from dibs.engines.port import Port
from dibs.engines.values import SettleAnswer
from dibs.engines.verbs.records import Records


async def settle_records(port: Port, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
    records = Records(port)
    await records.load(settlement.lease.id for settlement in settlements)
    answers = [settle_one(port, records, settlement) for settlement in settlements]
    await records.flush()
    return answers
