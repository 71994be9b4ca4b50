"""Waiting for tasks to end: when something has ended, one look at the store for all waiters of an app."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

from dibs.client.info import unknown_task, unreadable_task
from dibs.core.states import ENDED
from dibs.core.task import TaskRecord
from dibs.engines.base import Subscription
from dibs.engines.topics import ended_topic
from dibs.engines.values import UnreadableTask
from dibs.errors import Closed, StoreBusy, StoreUnavailable
from dibs.runtime.hub import Hub

__all__ = ["ResultWaiter"]

LOOK_AGAIN = 1.0
"""Seconds after which to look even without a notification."""

APART = 0.002
"""Seconds between two looks, so that the notifications of a busy queue don't become a poll per task."""


OUTAGE = 30.0
"""Seconds without an answer from the store after which waits fail. A restart takes less."""


class ResultWaiter:
    """The waiters of one app; used on the runner's loop only."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reset()

    def _reset(self) -> None:
        self._futures: dict[str, list[asyncio.Future[TaskRecord]]] = defaultdict(list)
        self._queues: dict[str, str] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def ended(self, task_id: str, queue: str) -> TaskRecord:
        """The record of a task once it has ended."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # after a fork, or in a test of the app: the waiters of the other loop are not ours
            self._loop = loop
            self._reset()
        future: asyncio.Future[TaskRecord] = loop.create_future()
        self._futures[task_id].append(future)
        self._queues[task_id] = queue
        self._changed.set()
        if self._watcher is None or self._watcher.done():
            self._watcher = loop.create_task(self._watch())
        try:
            return await future
        finally:
            self._forget(task_id, future)

    def _forget(self, task_id: str, future: asyncio.Future[TaskRecord]) -> None:
        waiters = self._futures.get(task_id, [])
        if future in waiters:
            waiters.remove(future)
        if not waiters:
            self._futures.pop(task_id, None)
            self._queues.pop(task_id, None)

    async def _watch(self) -> None:
        subscription: Subscription | None = None
        topics: set[str] = set()
        answered = time.monotonic()
        try:
            while self._futures:
                wanted = {ended_topic(queue) for queue in self._queues.values()}
                if subscription is None or not wanted <= topics:
                    if subscription is not None:
                        subscription.close()
                    topics = wanted
                    subscription = self._hub.engine.subscribe(topics)
                self._changed.clear()
                looked = time.monotonic()
                try:
                    await self._look()
                    answered = time.monotonic()
                except (StoreBusy, StoreUnavailable):
                    if time.monotonic() > answered + OUTAGE:
                        raise
                if self._futures:
                    await self._woken(subscription)
                    await asyncio.sleep(max(0.0, looked + APART - time.monotonic()))
        except Exception as error:
            self._fail(error)
        finally:
            if subscription is not None:
                subscription.close()

    async def _woken(self, subscription: Subscription) -> None:
        """Wait until something has ended, a new waiter has come, or it is time to look anyway."""
        loop = asyncio.get_running_loop()
        waits = [loop.create_task(subscription.wait(LOOK_AGAIN)), loop.create_task(self._changed.wait())]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()  # a subscription that broke must not become a busy loop
        finally:
            for wait in waits:
                wait.cancel()

    async def look(self, task_id: str) -> TaskRecord:
        """The record of a task now."""
        (record,) = await self._hub.engine.get([task_id])
        if not isinstance(record, TaskRecord):
            raise no_record(task_id, record)
        return record

    async def _look(self) -> None:
        ids = list(self._futures)
        for task_id, record in zip(ids, await self._hub.engine.get(ids), strict=True):
            if not isinstance(record, TaskRecord):
                self._answer(task_id, no_record(task_id, record))
            elif record.state in ENDED:
                self._answer(task_id, record)

    def _answer(self, task_id: str, answer: TaskRecord | Exception) -> None:
        for future in self._futures.pop(task_id, []):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._queues.pop(task_id, None)

    def _fail(self, error: Exception) -> None:
        for task_id in list(self._futures):
            self._answer(task_id, error)

    async def close(self) -> None:
        """Wake every waiter."""
        if asyncio.get_running_loop() is not self._loop:
            return
        self._fail(Closed("the app was closed while waiting for a result."))
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)


def no_record(task_id: str, found: UnreadableTask | None) -> Exception:
    """The error about a task that is not there, or can't be read."""
    return unknown_task(task_id) if found is None else unreadable_task(task_id, found.problem)
