"""Workers: their records, and how a heartbeat changes one."""

from __future__ import annotations

import msgspec
from msgspec import structs

from dibs.core.task import WorkerState
from dibs.core.times import Instant
from dibs.engines.values import Beat, WorkerRecord, worker_record

__all__ = ["Stored", "beaten", "worker_from"]

Stored = tuple[object, object]
"""The state of a worker, and its record as JSON."""

decoder = msgspec.json.Decoder(WorkerRecord)


def worker_from(stored: Stored) -> WorkerRecord:
    """The record of a worker."""
    state, record = stored
    if not isinstance(record, str | bytes) or not isinstance(state, str):
        raise TypeError("its record is not JSON, or its state is not text")
    return structs.replace(decoder.decode(record), state=WorkerState(state))


def beaten(sign: Beat, stored: Stored | None, now: Instant) -> WorkerRecord:
    """A worker after a heartbeat. It replaces its own record if that can't be read."""
    try:
        known = None if stored is None else worker_from(stored)
    except (msgspec.DecodeError, ValueError, TypeError):
        known = None
    return worker_record(sign, None if known is None else known.state, now if known is None else known.started_at, now)
