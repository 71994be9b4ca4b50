"""The low-level API of an app, for users with a loop of their own: claim, extend, settle."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import structs

from dibs.attempt.outcome import MESSAGE_LIMIT, PERMANENT, describe, shorten, unready
from dibs.attempt.payloads import arguments
from dibs.client.blocking import blocking
from dibs.client.options import Span, check_metadata
from dibs.core.options import (
    CAPABILITIES,
    PAGE_LIMIT,
    QUEUES,
    TASKS,
    check_choice,
    check_fraction,
    check_kind,
    check_names,
    check_note,
    check_number,
    shown,
)
from dibs.core.reference import result_of
from dibs.core.settings import check_span
from dibs.core.task import Failure, Lease, LeasedTask, Outcome, Settlement
from dibs.core.times import MINUTE, SECOND, Instant, duration, patience, when
from dibs.engines.topics import work_topic
from dibs.engines.values import Claimed, ClaimRequest, ExtendOutcome, Extension, SettleAnswer, SettleOutcome
from dibs.errors import BlobStoreUnavailable, InvalidOption, LeaseLost
from dibs.runtime.environment import worker_name
from dibs.runtime.hub import Hub
from dibs.runtime.rescue import Rescue

__all__ = ["Claim", "Consumer", "pause"]

log = logging.getLogger("dibs.client")

RESCUE_EVERY = SECOND
LONG_LOST = MINUTE
"""Many processes claim once and leave. So the first look already rescues leases that ended this long ago."""


class Claim:
    """A leased task. Report with `app.settle(claim, …)` before the lease ends, or keep it with `app.extend(claim)`."""

    def __init__(self, task: LeasedTask, args: dict[str, Any]) -> None:
        self.task = task
        self.id = task.id
        self.name = task.name
        self.queue = task.queue
        self.args = args
        self.attempt = task.attempt
        self.lease = Lease(task.id, task.lease)
        self.expires_at: datetime | None = when(task.lease_expires_at)
        self.cancelled = False
        """The task has been asked to stop."""
        self.exhausted = False
        """The run has lasted 24 hours: its lease is no longer extended, and ends at `expires_at`."""
        self.claimed = time.monotonic()

    def __repr__(self) -> str:
        return f"<Claim {self.name} {self.id} lease {self.lease.number}>"


class Consumer:
    """One low-level worker."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._pid = 0
        self._name = ""
        self._sequences = itertools.count(1)
        self._rescued: Instant = 0
        self._rescue = Rescue(hub, newcomer=LONG_LOST)

    @property
    def worker(self) -> str:
        """This process's name as a worker; a forked child gets one of its own."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._name = worker_name()
        return self._name

    async def aclaim(
        self,
        queues: Sequence[str] = ("default",),
        *,
        limit: int = 1,
        names: Sequence[str] | None = None,
        capabilities: Sequence[str] = (),
        lease: Span | None = None,
        wait: float = 0.0,
    ) -> list[Claim]:
        """Lease up to `limit` of the most urgent tasks, waiting up to `wait` seconds for the first."""
        request = ClaimRequest(
            worker=self.worker,
            sequence=next(self._sequences),
            queues=check_names(queues, "queues", QUEUES),
            limit=check_number(limit, "limit", 1, PAGE_LIMIT),
            names=None if names is None else check_names(names, "names", TASKS),
            capabilities=check_names(capabilities, "capabilities", CAPABILITIES),
            lease=None if lease is None else check_span("lease", lease),
        )
        return await self.hub.runner.arun(self._claim(request, patience(wait, "wait") or 0.0))

    claim = blocking(aclaim, waits="wait")

    async def _claim(self, request: ClaimRequest, wait: float) -> list[Claim]:
        engine, until = self.hub.engine, time.monotonic() + wait
        subscription = engine.subscribe([work_topic(queue) for queue in request.queues])
        try:
            while True:
                await self._look_for_lost()
                claimed = await engine.claim(request, now=self.hub.clock.store_now())
                claims = await self.prepare(claimed.tasks)
                left = until - time.monotonic()
                if claims or left <= 0:
                    return claims
                if claimed.tasks:  # all of them were put off: claim others
                    request = structs.replace(request, sequence=next(self._sequences))
                else:
                    await subscription.wait(min(left, pause(claimed)))
        finally:
            subscription.close()

    async def prepare(self, tasks: Sequence[LeasedTask]) -> list[Claim]:
        """Claims with their arguments. Tasks whose arguments can't be prepared are settled as in a worker."""
        found = await asyncio.gather(*(arguments(self.hub, task) for task in tasks), return_exceptions=True)
        claims = []
        for task, payload in zip(tasks, found, strict=True):
            try:
                if isinstance(payload, BaseException):
                    raise payload
                claims.append(Claim(task, msgspec.json.decode(payload)))
            except (BlobStoreUnavailable, msgspec.DecodeError, *PERMANENT) as error:
                log.warning("%s %s can't be run: %s", task.name, task.id, error)
                await self.hub.settler.submit(unready(task, error))
        return claims

    async def _look_for_lost(self) -> None:
        now = self.hub.clock.now()
        if abs(now - self._rescued) >= RESCUE_EVERY and not self._rescue.holds_off(time.monotonic()):
            self._rescued = now
            await self._rescue.look()

    async def aextend(self, claim: Claim, by: Span = 30.0, *, progress: float | None = None, message: str = "") -> None:
        """Keep a lease for `by` from now; raises LeaseLost if it is no longer yours.

        Sets `claim.cancelled`, and `claim.exhausted` once a run has lasted so long that it is not extended any more.
        """
        check_kind(claim, "claim", Claim)
        extension = Extension(
            claim.lease,
            check_span("lease", by, "by"),
            None if progress is None else check_fraction(progress, "progress"),
            check_note(message, "message"),
            round((time.monotonic() - claim.claimed) * SECOND),
        )
        answers = await self.hub.runner.arun(self.hub.engine.extend([extension], now=self.hub.clock.store_now()))
        answer = answers[0]
        if answer.outcome is ExtendOutcome.LOST:
            raise LeaseLost(f"lease {claim.lease.number} of task {claim.id} is lost: another worker may run it now.")
        claim.cancelled = answer.outcome is ExtendOutcome.CANCEL
        claim.exhausted = answer.outcome is ExtendOutcome.EXHAUSTED
        claim.expires_at = when(answer.expires_at)

    extend = blocking(aextend)

    async def asettle(
        self,
        claim: Claim,
        outcome: str = "completed",
        *,
        result: object = None,
        error: BaseException | str | None = None,
        after: Span | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Report a run: completed, failed, permanent, cancelled, released or snoozed. False: the lease was lost.

        A task that failed runs again, or is dead if no attempts are left. `after` is the delay of a retry or a snooze.
        `metadata` is added to what the task has, and replaces what has the same name.
        """
        check_kind(claim, "claim", Claim)
        settlement = self._settlement(claim, check_choice(Outcome, outcome, "outcome"), result, error, after)
        if metadata is not None:
            settlement = structs.replace(settlement, metadata=check_metadata(metadata))
        answer = await self.hub.runner.arun(self._settle(settlement, claim.name))
        return answer.outcome is not SettleOutcome.REFUSED

    settle = blocking(asettle)

    async def _settle(self, settlement: Settlement, name: str) -> SettleAnswer:
        lease, result = settlement.lease, settlement.result
        if result is not None:
            kept = await self.hub.payloads.astored(result, lease.id, result_of(lease.number), f"the result of {name}")
            settlement = structs.replace(settlement, result=kept)
        return await self.hub.settler.submit(settlement)

    def _settlement(
        self, claim: Claim, outcome: Outcome, result: object, error: BaseException | str | None, after: Span | None
    ) -> Settlement:
        task = claim.task
        failure = failure_from(error)
        if outcome is Outcome.COMPLETED:
            payload = None if result is None else self.hub.codec.encode(result, f"the result of {task.name}")
            return Settlement(lease=claim.lease, outcome=outcome, result=payload)
        delay = None if after is None else duration(after, "after")
        return Settlement(lease=claim.lease, outcome=outcome, delay=delay, failure=failure)


def pause(claimed: Claimed) -> float:
    """How many seconds to wait for news before looking again."""
    return 1.0 if claimed.next_due_in is None else min(1.0, claimed.next_due_in / 1_000_000 + 0.001)


def failure_from(error: object) -> Failure | None:
    """What is stored of an error, like that of a task that raises."""
    if error is None:
        return None
    if isinstance(error, str):
        return Failure(type="Error", message=shorten(error, MESSAGE_LIMIT))
    if not isinstance(error, BaseException):
        raise InvalidOption(f"error must be an exception or a text, not {shown(error)}.")
    return Failure(type=type(error).__qualname__, message=describe(error).message)
