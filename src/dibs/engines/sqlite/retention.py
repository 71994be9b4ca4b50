"""Retention that only this engine has: days of finished tasks that are done with."""

from __future__ import annotations

from msgspec import convert
from msgspec.json import Decoder

from dibs.core.policy import CHORE_BATCH
from dibs.engines.decisions.records import Place
from dibs.engines.decisions.steps import Done, Step
from dibs.engines.port import Read, View
from dibs.engines.sqlite.snapshot import Snapshot
from dibs.engines.sqlite.statements import row_by_row
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.unreadable import readable
from dibs.engines.verbs import retention
from dibs.engines.verbs.retention import Sweep

__all__ = ["log_odd_days", "prune_dead", "prune_finished", "pruned_queues"]

LAST_DAY = 10**9
"""Later than any day; a value that is not a number sorts after it."""

texts_decoder = Decoder(list[str])


PRUNED = Read("pruned", tuple[int, object], "day")
"""Takes a day: (day, the queues that have nothing left to delete there), if it has finished tasks."""


class FinishedSweep(Sweep):
    """Remembers which queues have nothing left to delete on a day, until settings or rows change."""

    async def is_done(self, day: int, queues: set[str]) -> bool:
        ((_, pruned),) = await self.port.read(PRUNED, day)
        return queues <= pruned_queues(self.port, day, pruned)

    async def end_day(self, day: int, queues: set[str]) -> None:
        await self.port.write("pruned_day", day, sorted(queues))
        await self.port.write("drop_empty_day", day)


def pruned_queues(view: View, day: int, stored: object) -> set[str]:
    """The queues that have nothing left to delete on a day; none if that can't be read."""
    found = readable(view.aside, "day", [(day, stored)], lambda each: texts_decoder.decode(convert(each, str)))
    return {queue for _, queues in found for queue in queues}


async def prune_finished(transaction: Transaction, steps: list[Step], most: int) -> Done:
    return await FinishedSweep(transaction, steps, Place.FINISHED, "keep").run()


async def prune_dead(transaction: Transaction, steps: list[Step], most: int) -> Done:
    log_odd_days(transaction)
    return await retention.prune_dead(transaction, steps, most)


def log_odd_days(snapshot: Snapshot) -> None:
    """Log dead tasks whose day can't be read. They are kept, because it is not known for how long."""
    for task_id, day in snapshot.each(row_by_row("dead_beyond"), (LAST_DAY, CHORE_BATCH)):
        snapshot.aside.log_once("day of dead task", task_id, f"it is {day!r}")
