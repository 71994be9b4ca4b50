"""What was done to a store, as values: by people (the audit log) and by the leading worker (chores)."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from dibs.client.info import snapshot
from dibs.core.times import seconds, when
from dibs.engines.values import ChoreRecord


class AuditLine(Struct, frozen=True, kw_only=True):
    """Someone changed something. `target` is the id or name of what was changed, or how many were."""

    at: datetime | None
    actor: str
    act: str
    target: str
    detail: str


class ChoreInfo(Struct, frozen=True, kw_only=True):
    """The last run of a chore; `at` is None if it never ran. `took` is in seconds, `done` counts that run, `total` all.

    `more`: it stopped at its bound with work left, and goes on with its next run.
    """

    name: str
    at: datetime | None
    took: float
    done: int
    total: int
    more: bool


def chore_info(record: ChoreRecord) -> ChoreInfo:
    return snapshot(ChoreInfo, record, at=when(record.at or None), took=seconds(record.took))
