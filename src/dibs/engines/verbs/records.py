"""Tasks changed one by one: loaded, decided upon by `dibs.core.moves`, and saved together.

What a batch has already changed is seen by its later items; everything reaches the store in `flush`, with a fixed
number of writes however large the batch is.
"""

from __future__ import annotations

from collections.abc import Iterable

from dibs.engines.decisions.records import Ledger
from dibs.engines.port import Port, Read

__all__ = ["NEEDING", "Records", "ids_among"]

FOLLOWED = Read("followed", str, "edge to task")
"""Takes ids: those among them that others wait for."""
NEEDING = Read("needing", str, "edge of task")
"""Takes ids: those among them that wait for others."""


class Records(Ledger):
    """The ledger of a transaction: read from its store, and written back."""

    def __init__(self, port: Port) -> None:
        super().__init__()
        self.port = port

    async def load(self, ids: Iterable[str]) -> None:
        wanted = list(dict.fromkeys(ids))
        if wanted:
            self.adopt(await self.port.load(wanted))

    async def flush(self) -> None:
        """Save what has changed, and note what has to be followed up."""
        changes = self.take_changes()
        await self.port.save(changes)
        followed = await ids_among(self.port, FOLLOWED, changes.ended)
        needing = await ids_among(self.port, NEEDING, changes.were_blocked)
        self.port.steps.extend(changes.follow_ups(followed, needing))


async def ids_among(port: Port, read: Read[str], ids: list[str]) -> set[str]:
    return set(await port.read(read, ids)) if ids else set()
