"""Where payloads are kept: small ones with their task, large ones in a blob store, with a reference in their place.

Payloads are uploaded as the codec made them, so encrypted ones stay encrypted. The upload comes before the enqueue: if
the enqueue fails, the blob belongs to no task, and the leading worker deletes it.

The plain methods block. Coroutines use those that begin with `a`, which use a thread if there is anything to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from os import PathLike

from msgspec import structs

from dibs.blobs import BlobStore, open_blobs
from dibs.core.options import brief, check_number, shown
from dibs.core.reference import ARGUMENTS, encoder, intact, reference_in, reference_to
from dibs.core.task import INLINE_LIMIT, NewTask
from dibs.errors import BlobStoreUnavailable, DibsError, InvalidOption, PayloadTooLarge

__all__ = ["Payloads", "make_payloads"]

log = logging.getLogger("dibs.blobs")

LEAST_LIMIT = 1024
AT_ONCE = 8
"""Concurrent uploads of one batch."""

ADVICE = (
    "Configure a blob store for large payloads: Dibs(…, blobs='file:///var/lib/blobs'), blobs='s3://bucket/prefix', or "
    "the variable DIBS_BLOBS. Or store the data elsewhere and pass a reference to it."
)

REPLACING = (
    "A task that may replace another has no blob of its own: store the data elsewhere and pass a reference to it."
)


class Payloads:
    """The blob store of an app, if it has one, and the size above which it is used."""

    def __init__(self, blobs: BlobStore | None = None, limit: int = INLINE_LIMIT) -> None:
        self.blobs = blobs
        self.limit = limit
        self._away = False

    def stored(self, payload: bytes, task_id: str, part: str, what: str) -> bytes:
        """What to store with the task: the payload, or a reference to it. `what` names it in errors."""
        if len(payload) <= self.limit:
            return payload
        if self.blobs is None:
            raise PayloadTooLarge(self._too_large(payload, what, ADVICE))
        reference = reference_to(payload, task_id, part)
        with self.using() as blobs:
            blobs.put(reference.key, payload)
        return encoder.encode(reference)

    async def astored(self, payload: bytes, task_id: str, part: str, what: str) -> bytes:
        if len(payload) <= self.limit:
            return payload
        return await asyncio.to_thread(self.stored, payload, task_id, part, what)

    def deposit(self, new: NewTask) -> NewTask:
        """The task with its arguments kept where they belong."""
        if len(new.args) <= self.limit:
            return new
        what = f"the arguments of {new.name}"
        if new.replace:  # another task may get the arguments, and a blob lives as long as the task it was made for
            raise PayloadTooLarge(self._too_large(new.args, what, REPLACING))
        return structs.replace(new, args=self.stored(new.args, new.id, ARGUMENTS, what))

    async def adeposit(self, new: NewTask) -> NewTask:
        return new if len(new.args) <= self.limit else await asyncio.to_thread(self.deposit, new)

    async def adeposit_all(self, tasks: Sequence[NewTask]) -> Sequence[NewTask]:
        if all(len(new.args) <= self.limit for new in tasks):
            return tasks
        return await asyncio.to_thread(self._deposit_all, tasks)

    def _deposit_all(self, tasks: Sequence[NewTask]) -> Sequence[NewTask]:
        with ThreadPoolExecutor(AT_ONCE, "dibs-upload") as pool:
            return list(pool.map(self.deposit, tasks))

    def _too_large(self, payload: bytes, what: str, advice: str) -> str:
        return f"{what}: {len(payload):,} bytes, more than the {self.limit:,} that are kept with a task. {advice}"

    def renew(self, payload: bytes) -> None:
        """Write the blob of a task that is not enqueued yet again, so that it is not swept as too old."""
        reference = reference_in(payload)
        if reference is not None:
            with self.using() as blobs:
                blobs.put(reference.key, blobs.get(reference.key))

    def fetched(self, payload: bytes) -> bytes:
        """The payload that is stored with a task, or that a reference there leads to."""
        reference = reference_in(payload)
        if reference is None:
            return payload
        with self.using() as blobs:
            return intact(reference, blobs.get(reference.key))

    async def afetched(self, payload: bytes) -> bytes:
        return payload if reference_in(payload) is None else await asyncio.to_thread(self.fetched, payload)

    @contextmanager
    def using(self) -> Iterator[BlobStore]:
        """The blob store. Any foreign error that it raises means that it can't be used now."""
        if self.blobs is None:
            raise BlobStoreUnavailable(
                "this app has no blob store for large payloads: give it the same one as the app that enqueued, by "
                "Dibs(…, blobs=…) or DIBS_BLOBS."
            )
        try:
            try:
                yield self.blobs
            except (DibsError, MemoryError):
                raise
            except Exception as error:
                problem = brief(f"{type(error).__name__}: {error}".rstrip("."), 300)
                raise BlobStoreUnavailable(f"the blob store {self.blobs} failed: {problem}.") from error
        except BlobStoreUnavailable as error:
            if not self._away:
                log.error("The blob store does not answer: %s", error)
            self._away = True
            raise
        if self._away:
            log.warning("The blob store answers again.")
        self._away = False


def make_payloads(blobs: str | PathLike[str] | BlobStore | None, limit: int | None) -> Payloads:
    """From what an app was given, checked."""
    if isinstance(blobs, str | PathLike):
        blobs = open_blobs(str(blobs))
    if blobs is not None and not isinstance(blobs, BlobStore):
        raise InvalidOption(
            "blobs must be a URL (file:///var/lib/blobs, s3://bucket/prefix), a path or a BlobStore, "
            f"not {shown(blobs)}."
        )
    checked = INLINE_LIMIT if limit is None else check_number(limit, "inline_limit", LEAST_LIMIT, INLINE_LIMIT)
    return Payloads(blobs, checked)
