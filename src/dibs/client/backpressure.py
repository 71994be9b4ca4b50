"""How long until a full queue has room, from what its workers did in the last minutes. Read only after a refusal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dibs.client.humanize import number as numbered
from dibs.core.backpressure import FullQueue
from dibs.core.humanize import format_duration
from dibs.core.states import State
from dibs.core.task import QueueState
from dibs.core.times import MINUTE, SECOND, Instant
from dibs.engines.figures import Minute
from dibs.errors import QueueFull, StoreError
from dibs.runtime.hub import Hub

__all__ = ["queue_full"]

MINUTES = 3
SHORTEST, LONGEST = 0.1, 60.0
"""Seconds: what `retry_after` is at least and at most."""
UNKNOWN = 5.0
"""What it is if no task of the queue has ended lately."""
FRESH = 0.5
"""Seconds for which what was read is used again: a producer may be refused thousands of times a second."""


async def queue_full(hub: Hub, queue: str, number: int) -> QueueFull:
    """The error for so many tasks that a full queue has refused."""
    try:
        found = await look(hub, queue)
    except StoreError:  # the refusal is what matters
        found = FullQueue()
    room_in = found.room_in(number)
    wait = LONGEST if found.never_fits(number) else UNKNOWN if room_in is None else room_in
    wait = round(min(max(wait, SHORTEST), LONGEST), 3)
    limit = "" if found.max_depth is None else f" (max_depth {found.max_depth:,})"
    return QueueFull(f"queue {queue!r} is full{limit}{outlook(found, number, wait)}", retry_after=wait)


def outlook(found: FullQueue, number: int, wait: float) -> str:
    """When there will be room, and what to do until then."""
    again = f"Try again in {wait:g} s, wait for room with using(block=seconds), or raise its max_depth."
    if found.never_fits(number):
        return f", and a batch of {number:,} tasks never fits. Split it, or raise max_depth."
    if found.paused:
        return f" and paused, so nothing makes room until it is resumed. {again}"
    room_in = found.room_in(number)
    if room_in is None:
        return f". None of its tasks has ended lately, so nobody knows when it has room. {again}"
    return f". At its present pace it has room for {numbered(number, 'task')} in {format_duration(room_in)}. {again}"


async def look(hub: Hub, queue: str) -> FullQueue:
    """What is known of a full queue, at most half a second old."""
    looked_at, found = hub.full_queues.get(queue, (-FRESH, FullQueue()))
    if time.monotonic() < looked_at + FRESH:
        return found
    now = hub.clock.now()
    until = now // MINUTE
    minutes = await hub.engine.stats(queue, until - MINUTES + 1, until)
    counts = (await hub.engine.counts()).tasks.get(queue, {})
    record = next((each for each in await hub.engine.queues() if each.name == queue), None)
    found = FullQueue(
        pending=counts.get(State.PENDING, 0),
        max_depth=None if record is None else record.settings.max_depth,
        paused=record is not None and record.state is QueueState.PAUSED,
        rate=drain_rate(minutes, now),
    )
    hub.full_queues[queue] = (time.monotonic(), found)
    return found


def drain_rate(minutes: Sequence[Minute], now: Instant) -> float | None:
    """Tasks that ended per second, since the first minute in which one did. Failed attempts come back, so they don't
    count.
    """
    ended = {each.minute: 0 for each in minutes}
    for each in minutes:
        ended[each.minute] += each.completed + each.dead + each.cancelled
    first = min((minute for minute, n in ended.items() if n), default=None)
    return None if first is None else sum(ended.values()) / max(1.0, (now - first * MINUTE) / SECOND)
