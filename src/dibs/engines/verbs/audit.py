"""The audit log: who did what."""

from __future__ import annotations

from dibs.engines.port import Port
from dibs.engines.values import AuditEntry


async def audit(port: Port, actor: str, act: str, target: str, detail: str = "") -> None:
    """Add one line."""
    entry = AuditEntry(at=port.now, actor=actor, act=act, target=target, detail=detail)
    await port.write("add_audit", port.now, entry)
