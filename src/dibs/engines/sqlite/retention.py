"""Retention that only this engine has: days of finished tasks that are done with, and shares."""

from __future__ import annotations

from msgspec import Struct, convert
from msgspec.json import Decoder

from dibs.core.policy import CHORE_BATCH
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.records import Place
from dibs.engines.decisions.steps import Done, Step
from dibs.engines.port import Read, View
from dibs.engines.sqlite.snapshot import Snapshot
from dibs.engines.sqlite.statements import row_by_row
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.unreadable import readable
from dibs.engines.verbs import retention
from dibs.engines.verbs.retention import Sweep, cursor_of, gone_past

__all__ = ["log_odd_days", "prune_dead", "prune_finished", "prune_shares", "pruned_queues"]

LAST_DAY = 10**9
"""Later than any day; a value that is not a number sorts after it."""

texts_decoder = Decoder(list[str])


class ShareCursor(Struct, array_like=True, frozen=True):
    queue: str = ""
    share: str = ""


class StoredShare(Struct, array_like=True, frozen=True):
    """A row of dibs_shares. `is_idle`: nothing is pending, and the clock has passed its virtual time."""

    queue: str
    share: str
    is_idle: int


SHARES_AFTER = Read("shares_after", StoredShare, "share", (0, 1))
"""Takes a cursor and how many: shares, in order."""
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


async def prune_shares(transaction: Transaction, steps: list[Step], most: int) -> Done:
    """Delete shares without tasks that the clock has passed, and turns in tracks without pending tasks."""
    cursor = cursor_of(transaction, steps[0], ShareCursor)
    found = await transaction.fetch(SHARES_AFTER, cursor.queue, cursor.share, CHORE_BATCH)
    idle = [(each.queue, each.share) for each in found.rows if each.is_idle]
    if idle:
        transaction.run("delete_shares", to_json(idle))
    unfinished = gone_past(steps, found, ShareCursor)
    pending = transaction.pending_by_track()
    empty = [each.number for each in transaction.catalog.tracks.values() if each.fair and each.number not in pending]
    turns = [transaction.run("forget_turns", number, CHORE_BATCH) for number in empty]
    return len(idle) + sum(turns), steps if CHORE_BATCH in turns else unfinished
