"""Running tasks in place: the parts of an app that a `Sandbox` replaces.

The loop runs in a background thread. A caller that blocks lends its own thread to the plain functions that its call
starts, so that a `def` task runs in the thread of the test: with its database connection, its debugger, its patches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context as Variables
from contextvars import ContextVar
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from dibs.core.retry import timeout_for
from dibs.core.states import State
from dibs.core.task import Lease, LeasedTask, NewTask, Settlement, TaskRecord
from dibs.core.times import SECOND, Instant
from dibs.engines.base import Engine, Joined, Subscription
from dibs.engines.memory import MemoryEngine
from dibs.engines.port import at_once
from dibs.engines.topics import ended_topic
from dibs.engines.values import EnqueueAnswer, EnqueueOutcome, Extension, Feature, Fired, NewWorkflow, SettleOutcome
from dibs.errors import UsageError
from dibs.runtime.coalesce import Coalescer
from dibs.runtime.hub import Hub
from dibs.runtime.loop import LoopRunner
from dibs.testing.clock import ManualClock

__all__ = ["DirectEnqueuer", "EagerEngine", "InlineEngine", "InlineRun", "InlineRunner", "borrowing", "call_plain"]

Result = TypeVar("Result")
Jobs = SimpleQueue[Callable[[], None] | None]

PARTS = ("meters", "engine", "features", "clock", "url", "payloads", "new_id", "runner", "enqueuer", "settler")
"""What belongs to the store, as opposed to what the app's author has defined."""

LENT: ContextVar[Jobs | None] = ContextVar("dibs_lent_thread", default=None)
"""Where to put functions for the thread that is blocked on the work under way."""

ENDED = ended_topic("")


class InlineRunner(LoopRunner):
    """Drives the loop in the background and lends blocked callers' threads to plain functions."""

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        if asyncio._get_running_loop() is self._loop and self._loop is not None:
            return super().run(work)  # which says what is wrong
        jobs: Jobs = SimpleQueue()
        try:
            self.serve()
            future = asyncio.run_coroutine_threadsafe(self._lend(work, jobs), self.loop)
        except BaseException:
            work.close()
            raise
        future.add_done_callback(lambda _: jobs.put(None))
        while (job := jobs.get()) is not None:
            job()
        return future.result()

    async def _lend(self, work: Coroutine[Any, Any, Result], jobs: Jobs) -> Result:
        LENT.set(jobs)
        return await self._with_engine(work)


async def call_plain(function: Callable[[], Any]) -> Any:
    """Call in the thread that is blocked on this work; if there is none, in a new one."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def job() -> None:
        try:
            # Fresh context variables for each call, as in a worker's threads.
            ended: tuple[Any, BaseException | None] = (Variables().run(function), None)
        except KeyboardInterrupt as error:  # the user wants the tests to stop
            loop.call_soon_threadsafe(answer.set_result, (None, error))
            raise
        except BaseException as error:
            ended = (None, error)
        loop.call_soon_threadsafe(answer.set_result, ended)

    jobs = LENT.get()
    if jobs is None:
        await asyncio.to_thread(job)
    else:
        jobs.put(job)
    value, error = await answer
    if error is not None:
        raise error
    return value


class InlineEngine(MemoryEngine):
    """A memory engine that remembers what was enqueued and calls a function after each fire of a schedule."""

    _features = MemoryEngine._features | {Feature.TRANSACTIONS}

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[str] = []
        self.required: set[str] = set()
        """The capabilities that accepted tasks require."""
        self.after_fire: Callable[[], Awaitable[None]] | None = None

    async def enqueue(
        self,
        tasks: Sequence[NewTask],
        *,
        atomic: bool = False,
        workflow: NewWorkflow | None = None,
        now: Instant | None = None,
    ) -> list[EnqueueAnswer]:
        answers = await super().enqueue(tasks, atomic=atomic, workflow=workflow, now=now)
        self.accept([answer.id for answer in answers if answer.outcome is EnqueueOutcome.ENQUEUED])
        return answers

    async def fire(self, *, now: Instant | None = None) -> Fired:
        fired = await super().fire(now=now)
        self.accept(fired.tasks)
        if self.after_fire is not None and fired.tasks:
            await self.after_fire()
        return fired

    def accept(self, ids: Sequence[str]) -> None:
        self.accepted += ids
        self.required.update(*(record.requires for record in self.records(ids)))

    def subscribe(self, topics: Collection[str]) -> Subscription:
        subscription = super().subscribe(topics)
        if all(topic.startswith(ENDED) for topic in topics):
            return EndedSubscription(subscription, self)
        return subscription

    def join(self, connection: Any) -> Joined:
        """There is nothing to join: what is enqueued stays, and a completion holds if the task then returns."""
        return InlineJoined(self)

    @property
    def has_workers(self) -> bool:
        """Whether a real worker runs on this store."""
        return bool(at_once(self.workers()))

    def record(self, task_id: str) -> TaskRecord | None:
        """A task, from any thread."""
        return next(iter(self.records([task_id])), None)

    def records(self, ids: Sequence[str]) -> list[TaskRecord]:
        """Those of these tasks that are still there, from any thread."""
        return [record for record in at_once(self.get(ids)) if isinstance(record, TaskRecord)]

    def extend_now(self, extension: Extension, now: Instant) -> None:
        """`extend`, from any thread."""
        at_once(self.extend([extension], now=now))


class EagerEngine:
    """Around a measured engine: runs what is due after each enqueue.

    What tasks raise there is no error of the store, so it must not come from within a verb.
    """

    def __init__(self, engine: Engine, run_due: Callable[[], Awaitable[None]]) -> None:
        self._engine = engine
        self._run_due = run_due

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def enqueue(self, *args: Any, **kwargs: Any) -> list[EnqueueAnswer]:
        answers = await self._engine.enqueue(*args, **kwargs)
        await self._run_due()
        return answers


class InlineJoined:
    """Stands for the user's transaction in a sandbox, whose store can't know whether it commits.

    What is enqueued in it is not run at once, not even eagerly: no worker would see it before the commit.
    """

    waits = None

    def __init__(self, engine: InlineEngine) -> None:
        self._engine = engine

    async def enqueue(self, tasks: Sequence[NewTask], *, now: Instant | None = None) -> list[EnqueueAnswer]:
        return await self._engine.enqueue(tasks, atomic=True, now=now)

    async def complete(self, settlement: Settlement, *, now: Instant | None = None) -> SettleOutcome:
        record, lease = self._engine.record(settlement.lease.id), settlement.lease
        is_current = record is not None and record.state is State.RUNNING and record.lease == lease.number
        return SettleOutcome.DONE if is_current else SettleOutcome.REFUSED

    async def prepare(self) -> None:
        """Nothing is ever missing."""


class EndedSubscription:
    """Makes waiting for a task that nothing will run an error, instead of a test that hangs."""

    def __init__(self, subscription: Subscription, engine: InlineEngine) -> None:
        self._subscription = subscription
        self._engine = engine

    async def wait(self, timeout: float) -> bool:
        if not self._engine.has_workers:
            raise UsageError(
                "the task has not ended, and nothing runs by itself in a Sandbox: "
                "call run_due() or run_until_idle() first."
            )
        return await self._subscription.wait(timeout)

    def close(self) -> None:
        self._subscription.close()


@contextmanager
def borrowing(hub: Hub, other: Hub) -> Iterator[None]:
    """While this lasts, `hub` has the store, clock and loop of `other`."""
    own = {part: getattr(hub, part) for part in PARTS}
    vars(hub).update((part, getattr(other, part)) for part in PARTS)
    try:
        yield
    finally:
        vars(hub).update(own)


class DirectEnqueuer(Coalescer[NewTask, EnqueueAnswer]):
    """One enqueue at a time: gathering them would have a task that enqueues wait for the flush that runs it."""

    async def submit(self, item: NewTask) -> EnqueueAnswer:
        return await self._runner.arun(self._flush_one(item))

    def submit_blocking(self, item: NewTask) -> EnqueueAnswer:
        return self._runner.run(self._flush_one(item))

    async def _flush_one(self, item: NewTask) -> EnqueueAnswer:
        return (await self._flush([item]))[0]


class InlineRun:
    """The link between a task's context and its run in a sandbox. Time is the manual clock's."""

    def __init__(self, task: LeasedTask, engine: InlineEngine, clock: ManualClock) -> None:
        self.task = task
        self.lease_lost = False
        self.completion: Settlement | None = None
        self._engine = engine
        self._clock = clock
        self._timeout = timeout_for(task.options, task.attempts)

    @property
    def timed_out(self) -> bool:
        """Whether the clock was moved past the timeout while the task ran."""
        return self._timeout is not None and self._clock.now() > self.task.claimed_at + self._timeout

    @property
    def stopping(self) -> str | None:
        record = self._engine.record(self.task.id)
        if record is not None and record.cancel_reason is not None:
            return record.cancel_reason or "cancelled"
        return "timed out" if self.timed_out else None

    @property
    def valid_until(self) -> float:
        record = self._engine.record(self.task.id)
        expires_at = self.task.lease_expires_at if record is None else record.lease_expires_at or 0
        return self._on_monotonic(expires_at)

    @property
    def timeout_at(self) -> float | None:
        return None if self._timeout is None else self._on_monotonic(self.task.claimed_at + self._timeout)

    def _on_monotonic(self, moment: Instant) -> float:
        return monotonic() + (moment - self._clock.now()) / SECOND

    def begin(self) -> None:
        """The time counts from the claim, on the manual clock."""

    def report(self, fraction: float, message: str) -> None:
        self._extend(self.task.options.lease, fraction, message)

    def keep(self, seconds: float) -> None:
        self._extend(round(seconds * SECOND), None, "")

    def completes(self, settlement: Settlement) -> None:
        self.completion = settlement

    def waiting(self, queue: str) -> AbstractContextManager[None]:
        return nullcontext()  # there are no slots; what nothing will run is refused by `EndedSubscription`

    def _extend(self, by: int, fraction: float | None, message: str) -> None:
        extension = Extension(Lease(self.task.id, self.task.lease), by, fraction, message)
        self._engine.extend_now(extension, self._clock.now())
