"""The answer to a call is lost: its repeat answers what the seam promises, and changes nothing."""

from __future__ import annotations

from dibs.errors import StoreUnavailable
from dibs.testing.conformance.harness import Harness
from dibs.testing.faults.calls import Prepare
from dibs.testing.faults.contents import contents
from dibs.testing.faults.engine import Fault, Faults, faulty

__all__ = ["check"]


async def check(prepare: Prepare, harness: Harness) -> None:
    faults = Faults()
    engine = faulty(harness.engine, faults)
    call = await prepare(harness, "lost")
    faults.plan(call.verb, Fault.LOST)
    try:
        await call.send(engine, False)
    except StoreUnavailable:
        before = await contents(engine, harness.now)
    else:
        raise AssertionError("the answer was not lost")
    assert await call.send(engine, True) == call.again
    assert await contents(engine, harness.now) == before
