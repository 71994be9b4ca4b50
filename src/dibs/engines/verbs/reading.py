"""What is only read: tasks and their histories, statistics, the audit log, limits and tenants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from dibs.core.fairness import start_virtual_time
from dibs.core.ids import is_id
from dibs.core.limits import Bucket, LimitState, Scope, limit_state, limits_for
from dibs.core.task import HistoryEntry, TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions.headroom import Whose
from dibs.engines.decisions.partition import Partition
from dibs.engines.figures import Minute
from dibs.engines.port import Read, Stored, View
from dibs.engines.unreadable import readable
from dibs.engines.values import AuditEntry, Standing, TenantRecord

__all__ = [
    "BUCKETS",
    "PARTITION_LOADS",
    "TENANTS",
    "audit",
    "decode_entry",
    "find_readable",
    "get",
    "history",
    "standing",
    "stats",
]


class StoredBucket(Struct, array_like=True, frozen=True):
    """A bucket as it is stored."""

    queue: str
    scope: Scope
    whose: str
    level: int
    at: Instant


class PartitionLoad(Struct, array_like=True, frozen=True):
    """The running tasks of a partition, and its bucket as stored."""

    partition: str
    running: int
    level: object
    at: object


class StoredShare(Struct, array_like=True, frozen=True):
    """The pending tasks of a tenant, and its virtual time."""

    share: str
    virtual_time: int
    pending: int


HISTORY = Read("history", tuple[int, Any], "history entry")
"""Takes a task: its entries, oldest first."""
MINUTES = Read("minutes", tuple[int, Any], "figures of minute")
"""Takes the first and the last minute, and a queue or None: what workers did, oldest first."""
AUDIT = Read("audit", tuple[int, Any], "audit entry")
"""Takes the number to begin below, or None, and how many: entries of the audit log with their numbers, newest first."""
BUCKETS = Read("buckets", StoredBucket, "limit of", (0, 1, 2))
"""Takes (queue, scope, whose) rows: the buckets of those that have one."""
PARTITION_LOADS = Read("partition_loads", PartitionLoad, "limit of partition")
"""Takes keys of partitions, and their queue."""
TENANTS = Read("tenants", StoredShare, "share")
"""Takes a queue, its clock and how many: shares with pending tasks, in the order of their turns."""

decode_entry = msgspec.json.Decoder(HistoryEntry).decode
decode_audit = msgspec.json.Decoder(AuditEntry).decode
decode_minute = msgspec.json.Decoder(Minute).decode


# Tasks.


async def get(view: View, ids: Sequence[str]) -> list[Stored | None]:
    found = await view.find(ids)
    return [found.get(task_id) for task_id in ids]


async def find_readable(view: View, task_id: str) -> TaskRecord | None:
    found = (await view.find([task_id])).get(task_id)
    return found if isinstance(found, TaskRecord) else None


async def history(view: View, task_id: str) -> list[HistoryEntry]:
    rows = await view.read(HISTORY, task_id) if is_id(task_id) else []
    what = f"history entry of task {task_id} number"
    return [entry for _, entry in readable(view.aside, what, rows, decode_entry)]


# Figures.


async def stats(view: View, queue: str | None, since: int, until: int) -> list[Minute]:
    rows = await view.read(MINUTES, since, until, queue)
    return [minute for _, minute in readable(view.aside, MINUTES.what, rows, decode_minute)]


async def audit(view: View, limit: int, before: int | None = None) -> list[AuditEntry]:
    rows = await view.read(AUDIT, before, limit)
    return [structs.replace(entry, n=n) for n, entry in readable(view.aside, AUDIT.what, rows, decode_audit)]


# Limits and shares.


async def standing(view: View, queue: str, tasks: Sequence[str], most_tenants: int) -> Standing:
    limits = [await limits_of(view, queue, task_id) for task_id in tasks]
    return Standing(limits, await tenants(view, queue, most_tenants) if most_tenants else [])


async def limits_of(view: View, queue_name: str, task_id: str) -> list[LimitState]:
    """The limits on the start of a task."""
    record, settings = await find_readable(view, task_id), view.settings_if_exists(queue_name)
    if record is None or settings is None or record.queue != queue_name:
        return []
    running = await view.running_by_name(queue_name)
    found = []
    for scope, whose, limit in limits_for(settings, record.name, record.spec.partition):
        if scope is Scope.PARTITION:
            loads = await view.read(PARTITION_LOADS, [Partition(queue_name, whose).key], queue_name)
            runs = sum(load.running for load in loads)
        else:
            runs = running.get(whose, 0)
        bucket = await find_bucket(view, (queue_name, scope, whose))
        found.append(limit_state(scope, whose, limit, runs, bucket, view.now))
    return found


async def find_bucket(view: View, whose: Whose) -> Bucket | None:
    found = await view.read(BUCKETS, [whose])
    return Bucket(found[0].level, found[0].at) if found else None


async def tenants(view: View, queue: str, limit: int) -> list[TenantRecord]:
    """Tenants of a fair queue that have pending tasks, in the order of their turns."""
    if not view.settings(queue).fair:
        return []
    clock, unnamed = await view.clock(queue)
    shares = {each.share: each for each in await view.read(TENANTS, queue, clock, limit)}
    if unshared := await view.unshared(queue):  # they belong to the tenant without a name
        known = shares.get("", StoredShare("", unnamed, 0))
        shares[""] = StoredShare("", known.virtual_time, known.pending + unshared)
    found = [
        TenantRecord(tenant=share, pending=each.pending, virtual_time=start_virtual_time(clock, each.virtual_time))
        for share, each in shares.items()
    ]
    return sorted(found, key=lambda each: (each.virtual_time, each.tenant))[:limit]
