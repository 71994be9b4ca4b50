"""Payloads around a run: the arguments are prepared before it, a large result is stored after it."""

from __future__ import annotations

import asyncio

from msgspec import structs

from dibs.attempt import outcome
from dibs.attempt.results import with_results
from dibs.core.codec import ENVELOPE
from dibs.core.reference import result_of
from dibs.core.task import LeasedTask, Settlement
from dibs.errors import BlobStoreUnavailable, PayloadTooLarge
from dibs.runtime.hub import Hub

__all__ = ["arguments", "keep_result"]

PAUSES = (0.5, 2.0, 4.0)
"""Seconds between attempts to store a result: the work is done, so it is worth some patience."""


async def arguments(hub: Hub, task: LeasedTask) -> bytes:
    """The complete arguments of a run as JSON. If this raises, `outcome.unready` says what becomes of the task."""
    json = task.args
    if json.startswith(ENVELOPE):
        json = hub.codec.unwrap(await hub.payloads.afetched(json))
    return await with_results(hub, task, json) if task.spec.takes else json


async def keep_result(hub: Hub, task: LeasedTask, settlement: Settlement) -> Settlement:
    """The settlement with a large result replaced by a reference to it; or the failure to store it."""
    payload = settlement.result
    if payload is None or len(payload) <= hub.payloads.limit:
        return settlement
    pauses = iter(PAUSES)
    while True:
        try:
            kept = await hub.payloads.astored(payload, task.id, result_of(task.lease), f"the result of {task.name}")
            return structs.replace(settlement, result=kept)
        except PayloadTooLarge as error:
            return outcome.failed_with(task, outcome.describe(error), retry=False)
        except BlobStoreUnavailable as error:
            if (pause := next(pauses, None)) is None:
                return outcome.not_kept(task, len(payload), error)
            await asyncio.sleep(pause)
