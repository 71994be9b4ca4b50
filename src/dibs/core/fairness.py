"""Fair shares between tenants: start-time fair queueing with a virtual clock per queue.

Each tenant has a virtual time, at which its next task should start. A claim serves the tenant with the lowest one,
takes its best-ranked task, and advances its virtual time by the cost of one start over the tenant's weight. The queue's
virtual clock is the highest start ever given. A tenant that was idle starts from it, so idle time earns nothing. Within
a tenant the order is by rank.

The bound. Between two tenants that always have something to run, f with weight w and g with weight v, the numbers of
starts in any interval differ from their shares by at most one start each: ``|starts_f/w − starts_g/v| ≤ 1/w + 1/v``.
Hence a tenant's best-ranked task starts after at most ``Σ (⌊v/w⌋ + 1)`` starts of the other tenants g that have
something to run, however many tasks they have queued.

Virtual times are integers, so that all engines agree to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable

from dibs.core.settings import QueueSettings

COST = 1_000_000
"""What one start costs, in units of virtual time, for a tenant of weight 1."""

LATEST = 2**62
"""The end of virtual time: no queue gets there, and a stored value beyond it is damaged."""


def weight(settings: QueueSettings, tenant: str) -> float:
    """A tenant's share; 1 unless the queue says otherwise."""
    return settings.weights.get(tenant, 1.0)


def stride(settings: QueueSettings, tenant: str) -> int:
    """How far one start advances a tenant's virtual time."""
    return max(1, round(COST / weight(settings, tenant)))


def start_virtual_time(clock: int, virtual_time: int) -> int:
    """When the next task of a tenant starts in virtual time."""
    return max(clock, virtual_time)


def next_virtual_time(settings: QueueSettings, tenant: str, start: int) -> int:
    """The tenant's virtual time after a task that started at `start`."""
    return start + stride(settings, tenant)


def most_before(settings: QueueSettings, tenant: str, others: Iterable[str]) -> int:
    """How many starts of other tenants can come before the best-ranked task of this one: the published bound."""
    mine = stride(settings, tenant)
    return sum(mine // stride(settings, other) + 1 for other in others if other != tenant)
