"""A call and its repeat arrive together, over two engines: one of them takes effect."""

from __future__ import annotations

import asyncio

from dibs.testing.conformance.harness import Harness
from dibs.testing.faults.calls import Prepare
from dibs.testing.faults.contents import contents

__all__ = ["NOT_PROMISED", "check"]

NOT_PROMISED = ("claim", "claim_limited", "set_schedule", "act_cancel_workflow", "act_replay_workflow")
"""A worker repeats a claim only after it has given the claim up. The others may both be done, and both be in the audit
log: their effect on tasks is the same."""

TIMES = 5


async def check(prepare: Prepare, harness: Harness) -> None:
    sibling = harness.engine.sibling()
    await sibling.open()
    try:
        calls = []
        for time in range(TIMES):
            call = await prepare(harness, f"together-{time}")
            calls.append(call)
            ours, theirs = await asyncio.gather(call.send(harness.engine, False), call.send(sibling, True))
            promised = ((call.first, call.again), (call.again, call.first))
            assert (ours, theirs) in promised, f"they answered {ours!r} and {theirs!r}"
        before = await contents(harness.engine, harness.now)
        assert await calls[-1].send(sibling, True) == calls[-1].again
        assert await contents(sibling, harness.now) == before
    finally:
        await sibling.close()
