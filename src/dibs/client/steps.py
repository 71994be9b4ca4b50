"""`app.steps`: what goes on in the background, and waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from dibs.client.blocking import Admin, blocking
from dibs.client.info import snapshot
from dibs.core.options import PAGE_LIMIT, check_number, check_reference
from dibs.engines.steps import DeleteQueue, StepRecord
from dibs.errors import UnknownStep

__all__ = ["Progress", "StepInfo", "Steps", "step_info"]


class StepInfo(Struct, frozen=True, kw_only=True):
    """An act on all tasks that match, or the deletion of a queue, as far as it had come when it was read.

    `matched` tasks were counted beforehand; `more`: there were more. Of those `visited`, so many `changed`.
    """

    id: str
    """Its id."""
    act: str
    """What is done, such as `cancel` or `delete queue`."""
    queue: str | None
    """The queue that is deleted."""
    actor: str
    """Who asked for it."""
    asked_at: datetime | None
    """When it was asked for."""
    matched: int
    """Tasks that were counted beforehand."""
    more: bool
    """Whether there were more than that."""
    visited: int
    """Tasks that it has come to."""
    changed: int
    """Those that it has changed."""
    ended_at: datetime | None
    """None while it goes on."""

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self.ended_at is not None


Progress = Callable[[StepInfo], None]
StepInfos = list[StepInfo]
"""Named here, because inside the class `list` is a method."""


class Steps(Admin):
    """Acts on all that match, and deletions of queues. They outlive their caller: the leading worker goes on."""

    async def alist(self, limit: int = 50) -> StepInfos:
        """The newest ones first. They are kept for 7 days after their end."""
        found = self.hub.engine.steps(limit=check_number(limit, "limit", 1, PAGE_LIMIT))
        return [step_info(record) for record in await self._ask(found)]

    list = blocking(alist)

    async def aget(self, step_id: str) -> StepInfo:
        """One of them."""
        wanted = check_reference(step_id, "a step's id")
        for record in await self._ask(self.hub.engine.steps([wanted])):
            return step_info(record)
        raise unknown_step(step_id)

    get = blocking(aget)

    async def afinish(self, step_id: str, progress: Progress | None = None) -> StepInfo:
        """Go on with it until its end. `progress` is called with how far it has come."""
        wanted = check_reference(step_id, "a step's id")
        while (record := await self._ask(self.hub.engine.advance(wanted, now=self._now))) is not None:
            info = step_info(record)
            if progress is not None:
                progress(info)
            if info.is_done:
                return info
        raise unknown_step(step_id)

    finish = blocking(afinish)


def step_info(record: StepRecord) -> StepInfo:
    queue = record.act.id if isinstance(record.act, DeleteQueue) else None
    return snapshot(StepInfo, record, act=str(record.act.__struct_config__.tag), queue=queue)


def unknown_step(step_id: str) -> UnknownStep:
    return UnknownStep(f"no background step has the id {step_id!r}.")
