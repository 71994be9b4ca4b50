"""A handle: a task's id, the last snapshot of it, and the way to its result."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from dibs.attempt.context import Context, holding_slot
from dibs.client.blocking import blocking
from dibs.client.dependencies import Shape, Source
from dibs.client.elsewhere import OF_HANDLES
from dibs.client.info import HistoryLine, TaskInfo, task_info, unreadable_task
from dibs.client.result_waiter import ResultWaiter
from dibs.client.tasks import Cancelled, Tasks, read_task
from dibs.core.codec import REDACTED
from dibs.core.states import ENDED, State
from dibs.core.task import TaskRecord
from dibs.core.times import patience
from dibs.errors import NotAllowed, ResultGone, TaskCancelled, TaskFailed, UnknownTask, WrongThread
from dibs.runtime.definition import TaskDefinition

__all__ = ["Handle"]

R = TypeVar("R")

LOOK = 1.0
"""Seconds that one look at the store may take, even if the caller does not want to wait at all."""


class Handle(Source[R]):
    """One task. ``handle.result()`` blocks for its result, ``await handle`` awaits it."""

    def __init__(
        self,
        tasks: Tasks,
        waiter: ResultWaiter,
        task_id: str,
        queue: str,
        definition: TaskDefinition | None,
        duplicate: bool = False,
    ) -> None:
        self.hub = tasks.hub
        self._tasks = tasks
        self.id = task_id
        self.queue = queue
        self.duplicate = duplicate
        """Whether the key already stood for this task, so that no new one was stored."""
        self.info: TaskInfo | None = None
        """The last snapshot read; `refresh` reads another."""
        self._by_blocking = False
        """Whether a blocking enqueue in async code gave it: then ``await handle`` is most likely a mistake."""
        self._waiter = waiter
        self._definition = definition

    def __repr__(self) -> str:
        return f"<Handle {self.id} in {self.queue}>"

    if not TYPE_CHECKING:  # otherwise no checker would find a misspelt attribute

        def __getattr__(self, name: str) -> NoReturn:
            advice = OF_HANDLES.get(name)
            hint = f": {advice}" if advice else ""
            raise AttributeError(f"a Handle has no {name!r}{hint}", name=name, obj=self)

    @property
    def last_tasks(self) -> tuple[Handle[R]]:
        """The tasks that must end for it to have ended: itself."""
        return (self,)

    @property
    def shape(self) -> Shape:
        """How its result is made up of results of tasks."""
        return self.id

    async def arefresh(self) -> TaskInfo:
        """Read the task again."""
        info = await self.hub.runner.arun(read_task(self.hub, self.id))
        if info.unreadable is not None:
            raise unreadable_task(info.id, info.unreadable)
        self.info = info
        return info

    refresh = blocking(arefresh)

    async def aresult(self, timeout: float | None = None) -> R:
        """The result, once the task has completed; raises TaskFailed, TaskCancelled, ResultGone or TimeoutError."""
        return await self.hub.runner.arun(self._result(patience(timeout, "timeout")))

    def result(self, timeout: float | None = None) -> R:
        """The result, once the task has completed; raises TaskFailed, TaskCancelled, ResultGone or TimeoutError.

        Blocks; `aresult` (or ``await handle``) is the async form. Inside a task it raises: it would hold a slot.
        """
        if Context.current_or_none() is not None:
            raise WrongThread(
                "a blocking result() inside a task would hold a slot while waiting for another task: "
                "enqueue a follow-up instead."
            )
        longest = patience(timeout, "timeout")
        self.hub.runner.serve()
        return self.hub.runner.run(self._result(longest))

    def __await__(self) -> Generator[Any, Any, R]:
        if self._by_blocking:
            raise WrongThread(
                "enqueue() in async code blocks the event loop, and this await would wait for the task's result: write "
                "await task.aenqueue(…). To wait for the result, await handle.aresult()."
            )
        return self.aresult().__await__()

    async def _result(self, timeout: float | None) -> R:
        missing = "had not ended"
        is_short = timeout is not None and timeout < LOOK
        try:
            async with asyncio.timeout(LOOK if is_short else timeout):
                record = await (self._look(timeout) if is_short else self._ended())
                self.info = task_info(record, self.hub.codec)
                if record.state is not State.COMPLETED:
                    raise failure_of(record)
                missing = "has completed, but its result had not been fetched"
                payload = None if record.result is None else await self.hub.payloads.afetched(record.result)
        except TimeoutError:
            raise TimeoutError(f"task {self.id} {missing} after {timeout:g} s.") from None
        except UnknownTask as error:
            raise ResultGone(str(error), task_id=self.id) from None
        if payload == REDACTED:
            raise NotAllowed(f"the result of task {self.id} is hidden: the token needs the scope payloads.")
        return cast(R, self._decoded(payload))

    async def _look(self, timeout: float | None) -> TaskRecord:
        """The record, if the task has ended: however short the time is, the store is asked once."""
        record = await self._waiter.look(self.id)
        if record.state in ENDED:
            return record
        if not timeout:
            raise TimeoutError
        async with asyncio.timeout(timeout):
            return await self._ended()

    async def _ended(self) -> TaskRecord:
        """The record once the task has ended. In a task, that holds a slot."""
        if Context.current_or_none() is not None:
            record = await self._waiter.look(self.id)
            if record.state in ENDED:
                return record
        with holding_slot(self.hub, self.queue):
            return await self._waiter.ended(self.id, self.queue)

    def _decoded(self, payload: bytes | None) -> object:
        """A result as the task's return annotation declares it, or as plain JSON if the task is not known here."""
        codec = self.hub.codec
        if self._definition is not None:
            return self._definition.signature.decode_result(payload, codec, self.id)
        return None if payload is None else codec.decode(payload)

    async def acancel(self, reason: str = "") -> Cancelled:
        """Cancel it: "cancelled", or "asked to stop" if it was running; false if it had ended before."""
        return await self._tasks.acancel(self.id, reason)

    cancel = blocking(acancel)

    async def ahistory(self) -> list[HistoryLine]:
        """What happened to it besides clean runs, oldest first."""
        return await self._tasks.ahistory(self.id)

    history = blocking(ahistory)

    async def adependents(self, limit: int = 100) -> list[TaskInfo]:
        """Tasks that wait for this one, oldest first."""
        return await self._tasks.adependents(self.id, limit)

    dependents = blocking(adependents)


def failure_of(record: TaskRecord) -> TaskFailed | TaskCancelled:
    """The exception that stands for how a task ended."""
    if record.state is State.CANCELLED:
        note = f": {record.note}" if record.note else ""
        text = f"task {record.id} ({record.name}) was cancelled, reason {record.reason}{note}"
        return TaskCancelled(text, task_id=record.id, reason=str(record.reason))
    failure = record.failure
    error = f": {failure.type}: {failure.message}" if failure else ""
    failed = TaskFailed(
        f"task {record.id} ({record.name}) is dead, reason {record.reason}{error}",
        task_id=record.id,
        reason=str(record.reason),
        error_type=failure.type if failure else "",
        error_message=failure.message if failure else "",
        traceback=failure.traceback if failure else "",
    )
    if failed.traceback:  # Python shows notes of an exception that nothing catches
        failed.add_note(f"Where the task failed:\n{failed.traceback.rstrip()}")
    return failed
