"""`app.audit`: who changed what, found through as many pages as it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from msgspec import Struct

from dibs.client.info import AuditLine, snapshot
from dibs.core.options import check_note, check_number, check_reference
from dibs.core.times import Instant, instant
from dibs.engines.base import Engine
from dibs.engines.values import AuditEntry

__all__ = ["Wanted", "check_wanted", "read_audit"]

PAGE = 500
"""Entries read at once if not all of them are wanted."""


class Wanted(Struct, frozen=True, kw_only=True):
    """Which entries: all given conditions must hold."""

    before: int | None = None
    actor: str | None = None
    act: str | None = None
    target: str | None = None
    since: Instant | None = None

    @property
    def is_every(self) -> bool:
        return self.actor is None and self.act is None and self.target is None and self.since is None

    def matches(self, entry: AuditEntry) -> bool:
        """Whether the entry is meant; a task is also a target if it is one of several."""
        return (
            (self.actor is None or entry.actor == self.actor)
            and (self.act is None or entry.act == self.act)
            and (self.target is None or entry.target == self.target or self.target in entry.ids)
        )


def check_wanted(
    before: int | None, actor: str | None, act: str | None, target: str | None, since: datetime | None
) -> Wanted:
    return Wanted(
        before=None if before is None else check_number(before, "before", 0, 2**62),
        actor=None if actor is None else check_note(actor, "actor"),
        act=None if act is None else check_note(act, "act"),
        target=None if target is None else check_reference(target, "target"),
        since=None if since is None else instant(since, "since"),
    )


async def read_audit(engine: Engine, limit: int, wanted: Wanted) -> list[AuditLine]:
    """The newest entries that are wanted."""
    found: list[AuditLine] = []
    async for entry in entries(engine, limit if wanted.is_every else PAGE, wanted):
        if wanted.matches(entry):
            found.append(snapshot(AuditLine, entry))
            if len(found) == limit:
                break
    return found


async def entries(engine: Engine, page: int, wanted: Wanted) -> AsyncIterator[AuditEntry]:
    """All entries that are new enough, newest first."""
    before = wanted.before
    while True:
        found = await engine.audit(page, before=before)
        for entry in found:
            if wanted.since is not None and entry.at < wanted.since:
                return
            yield entry
        if len(found) < page:
            return
        before = found[-1].n
