"""Schedules in a worker: every worker declares those in its code, the leading one fires what is due.

The worker that started last decides: when it starts, it writes its schedules as they are in its code. Later it only
confirms those that are unchanged, and leaves alone what a newer deployment or an operator has changed or removed.

Settings of queues that the code declares are written at the same moment, once per start, and only those that have
changed in the code since they were last written: what an operator has set stays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import structs

from dibs.core.codec import Codec
from dibs.core.schedules import ScheduleRecord
from dibs.core.times import SECOND
from dibs.engines.topics import SCHEDULES
from dibs.engines.values import Feature
from dibs.errors import NotAllowed, StoreError
from dibs.runtime.definition import ScheduleDefinition
from dibs.runtime.environment import actor
from dibs.runtime.hub import Hub
from dibs.runtime.queue_settings import declare_queues
from dibs.worker.health import Backoff, StoreHealth
from dibs.worker.service import Service, listen, wait_for

__all__ = ["BLOCKED_NAP", "LONGEST_NAP", "Scheduler"]

log = logging.getLogger("dibs.worker")

CONFIRM_EVERY = 300.0
"""Seconds between two confirmations."""

FRESH = 240 * SECOND
"""A schedule that another worker confirmed less than this long ago is not confirmed again."""

LONGEST_NAP = 30.0

BLOCKED_NAP = 0.5
"""Seconds before looking again at a schedule that is due while its queue is full or draining."""


class Scheduler(Service):
    """Declares schedules and, while `leads()` says so, fires each when it is due."""

    name = "scheduler"

    def __init__(self, hub: Hub, health: StoreHealth, leads: Callable[[], bool]) -> None:
        self._hub = hub
        self._engine = hub.engine
        self._health = health
        self._leads = leads
        self._fires = Feature.LEAD in hub.features
        self._declared = False
        self._was_refused = False
        self._confirm_at = 0.0
        self._broken: set[str] = set()
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look again: this worker leads now, or a schedule has changed."""
        self._wake.set()

    async def begin(self) -> None:
        """Declare before the worker is ready. If the store fails, `run` tries again."""
        if self._hub.schedules or self._hub.queues:
            with suppress(StoreError):
                await self._declare_if_allowed()

    async def run(self) -> None:
        """Declare and fire until cancelled."""
        listener = asyncio.get_running_loop().create_task(listen(self._engine, [SCHEDULES], self._wake.set))
        backoff = Backoff(first=0.5)
        try:
            while True:
                self._wake.clear()
                try:
                    nap = await self.turn()
                    backoff.reset()
                except StoreError:
                    nap = backoff.next()
                await wait_for(self._wake, nap)
        finally:
            listener.cancel()

    async def turn(self) -> float:
        """Do what is due now; returns the seconds until more is."""
        nap = LONGEST_NAP
        if self._hub.schedules or self._hub.queues:
            if time.monotonic() >= self._confirm_at:
                await self._declare_if_allowed()
            nap = min(nap, self._confirm_at - time.monotonic())
        if self._fires and self._leads():
            nap = min(nap, await self._fire())
        return nap

    async def _fire(self) -> float:
        """Fire until nothing is due; returns the seconds until something is."""
        while self._leads():
            with self._health.asking("fire schedules"):
                fired = await self._engine.fire(now=self._hub.clock.store_now())
            if fired.tasks:
                log.debug("Schedules have fired %d tasks.", len(fired.tasks))
            if fired.broken:
                self._complain(fired.broken)
            if fired.next_due_in is None:
                break
            if fired.next_due_in > 0:
                return fired.next_due_in / SECOND
            if not fired.tasks and not fired.skipped:
                return BLOCKED_NAP
        return LONGEST_NAP

    def _complain(self, broken: list[str]) -> None:
        """Log each broken schedule once."""
        for name in sorted({*broken} - self._broken):
            self._broken.add(name)
            log.error("Schedule %s can't be computed on this machine and does not fire; see dibs why %s.", name, name)

    async def _declare_if_allowed(self) -> None:
        """Through a server, a worker's token may not be enough for it: then others have to."""
        try:
            await self._declare()
        except NotAllowed as error:
            if not self._was_refused:
                log.warning("The schedules and queues of this app are not declared: %s", error)
            self._was_refused = True
            self._confirm_at = time.monotonic() + CONFIRM_EVERY

    async def _declare(self) -> None:
        """Write what the code declares; the second time and later, only confirm it."""
        if self._hub.queues and not self._declared:
            with self._health.asking("declare queues"):
                await declare_queues(self._hub)
        with self._health.asking("look for schedules"):
            stored = {record.name: record for record in await self._engine.schedules()}
        fresh_since = self._hub.clock.now() - FRESH
        for mine in list(self._hub.schedules.values()):
            there = stored.get(mine.name)
            if there is not None and is_declared_as(there, mine, self._hub.codec):
                if there.declared_at is None or there.declared_at < fresh_since:
                    await self._set(structs.replace(mine, task=there.task))
            elif not self._declared:
                await self._set(mine)
        self._declared = True
        self._confirm_at = time.monotonic() + CONFIRM_EVERY

    async def _set(self, mine: ScheduleDefinition) -> None:
        with self._health.asking("declare schedules"):
            await self._engine.set_schedule(
                mine.name, mine.recurrence, mine.task, declared=True, actor=actor(), now=self._hub.clock.store_now()
            )


def is_declared_as(record: ScheduleRecord, mine: ScheduleDefinition, codec: Codec) -> bool:
    """Whether the store has what the code declares. Payloads are compared by content: a codec may encrypt."""
    if record.recurrence != mine.recurrence or structs.replace(record.task, args=b"") != structs.replace(
        mine.task, args=b""
    ):
        return False
    return record.declared and (record.task.args == mine.task.args or content(record, codec) == content(mine, codec))


def content(schedule: ScheduleRecord | ScheduleDefinition, codec: Codec) -> Any:
    """The arguments; if they can't be read, a value that equals no other."""
    try:
        return codec.decode(schedule.task.args)
    except Exception:  # a codec that has lost its key may raise anything: then the schedule is written as in the code
        return object()
