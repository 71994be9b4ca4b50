"""standing: the tenants of a fair queue, in the order of their turns."""

from __future__ import annotations

from dibs.core.fairness import COST
from dibs.engines.values import TenantRecord
from dibs.testing.conformance.claim_shares import add_for, served
from dibs.testing.conformance.harness import QUEUE, Harness


async def test_tenants_are_told_in_the_order_of_their_turns(harness: Harness) -> None:
    await harness.set_queue(fair=True, weights={"a": 2})
    await add_for(harness, "aaabcc")
    assert await harness.tenants(QUEUE) == [
        TenantRecord(tenant="a", pending=3, virtual_time=0),
        TenantRecord(tenant="b", pending=1, virtual_time=0),
        TenantRecord(tenant="c", pending=2, virtual_time=0),
    ]
    assert await served(harness, 4) == "abca"
    assert await harness.tenants(QUEUE) == [
        TenantRecord(tenant="a", pending=1, virtual_time=COST),
        TenantRecord(tenant="c", pending=1, virtual_time=COST),
    ]
    assert [record.tenant for record in (await harness.engine.standing(QUEUE, tenants=1)).tenants] == ["a"]
    assert await harness.tenants("nowhere") == []
