"""Deletes blobs that no task needs: those of tasks that were pruned, purged, or never enqueued.

The leading worker does it about once an hour. A blob whose task exists stays, whatever state the task is in. A blob
without a task is deleted when it is an hour old: before that, the task may be about to be enqueued.

A blob store belongs to the task store whose mark it carries, which the first sweep sets. A worker of another task store
deletes nothing there, since it knows none of the tasks.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from dibs.blobs import BlobInfo
from dibs.blobs.base import MOST_AT_ONCE
from dibs.core.reference import owner
from dibs.core.times import HOUR, Duration
from dibs.engines.values import Feature
from dibs.errors import BlobLost, StoreError
from dibs.runtime.hub import Hub
from dibs.worker.service import Service

__all__ = ["MARK", "BlobSweeper"]

log = logging.getLogger("dibs.worker")

FIRST = 60.0
INTERVAL = 3600.0
"""Seconds from the start to the first sweep, and between two."""

ASKED = 100
"""Tasks that are asked for at once: each comes with up to 256 KiB of arguments."""

PAUSE = 0.05
"""Seconds between two steps."""

AGE: Duration = HOUR

MARK = "owner/identity"
"""The key under which the identity of the task store is kept."""


class BlobSweeper(Service):
    """Sweeps while `leads()` says so."""

    name = "sweeper"

    def __init__(self, hub: Hub, leads: Callable[[], bool]) -> None:
        self._hub = hub
        self._leads = leads

    async def run(self) -> None:
        """Sweep until cancelled."""
        if self._hub.payloads.blobs is None or Feature.LEAD not in self._hub.engine.features:
            return
        await asyncio.sleep(FIRST)
        while True:
            if self._leads():
                await self.sweep()
            await asyncio.sleep(INTERVAL * random.uniform(0.9, 1.0))

    async def sweep(self) -> int:
        """Go through all blobs; returns how many were deleted."""
        deleted, after = 0, ""
        try:
            if self._leads() and not await self._is_ours():
                return 0
            while self._leads():
                found = await asyncio.to_thread(self._list, after)
                if not found:
                    break
                after = found[-1].key
                forgotten = await self._forgotten(found)
                await asyncio.to_thread(self._delete, forgotten)
                deleted += len(forgotten)
                await asyncio.sleep(PAUSE)
        except StoreError as error:
            log.warning("Large payloads that nobody needs could not be swept: %s Next try in an hour.", error)
        if deleted:
            log.info("Deleted %d large payloads of tasks that are gone.", deleted)
        return deleted

    async def _is_ours(self) -> bool:
        """Whether the blob store belongs to this task store."""
        identity = (await self._hub.engine.about()).identity
        mark = await asyncio.to_thread(self._marked, identity)
        if mark != identity:
            log.error(
                "The blob store %s belongs to another task store (its mark is %s, not %s): nothing is swept. "
                "Give each task store a directory or prefix of its own.",
                self._hub.payloads.blobs,
                mark,
                identity,
            )
        return mark == identity

    def _marked(self, identity: str) -> str:
        """The mark of the blob store, set now if it had none."""
        with self._hub.payloads.using() as blobs:
            try:
                return blobs.get(MARK).decode()
            except BlobLost:
                blobs.put(MARK, identity.encode())
                return blobs.get(MARK).decode()

    def _list(self, after: str) -> list[BlobInfo]:
        with self._hub.payloads.using() as blobs:
            return blobs.list(after, MOST_AT_ONCE)

    async def _forgotten(self, found: Sequence[BlobInfo]) -> list[str]:
        """The keys of blobs that are old enough and whose task is gone."""
        before = self._hub.clock.now() - AGE
        owners = {info.key: task for info in found if info.modified_at < before and (task := owner(info.key))}
        tasks = sorted(set(owners.values()))
        gone: set[str] = set()
        for start in range(0, len(tasks), ASKED):
            ids = tasks[start : start + ASKED]
            records = await self._hub.engine.get(ids)
            gone.update(task for task, record in zip(ids, records, strict=True) if record is None)
        return [key for key, task in owners.items() if task in gone]

    def _delete(self, keys: list[str]) -> None:
        with self._hub.payloads.using() as blobs:
            blobs.delete(keys)
