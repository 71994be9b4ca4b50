"""The audit log: who did what."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.engines.decisions.audits import Fields
from dibs.engines.port import Port
from dibs.engines.values import AuditEntry

__all__ = ["MOST_IDS", "audit"]

MOST_IDS = 100


async def audit(
    port: Port,
    actor: str,
    act: str,
    target: str,
    detail: str = "",
    *,
    ids: Sequence[str] = (),
    before: Fields | None = None,
    after: Fields | None = None,
) -> None:
    """Add one line. The store numbers it."""
    entry = AuditEntry(
        at=port.now,
        actor=actor,
        act=act,
        target=target,
        detail=detail,
        ids=tuple(dict.fromkeys(ids))[:MOST_IDS],
        before=before or {},
        after=after or {},
    )
    await port.write("add_audit", port.now, entry)
