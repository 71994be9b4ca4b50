"""A `Sandbox`: an app on a store in memory, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from datetime import datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction
from itertools import count
from types import TracebackType
from typing import Any, Self, cast

import msgspec
from msgspec import Struct, structs

from dibs.attempt import outcome
from dibs.attempt.context import CURRENT
from dibs.attempt.execute import TaskRunner
from dibs.attempt.hooks import call_hooks, end_of, hooks_for
from dibs.attempt.payloads import keep_result
from dibs.blobs.memory import MemoryBlobs
from dibs.client.app import Dibs
from dibs.client.info import TaskInfo, task_info
from dibs.client.task import Task
from dibs.core.codec import as_json
from dibs.core.options import (
    CAPABILITIES,
    check_flag,
    check_kind,
    check_mapping,
    check_names,
    check_number,
    shown,
)
from dibs.core.priority import parse_priority
from dibs.core.states import State
from dibs.core.task import LeasedTask, Outcome, Settlement, TaskRecord
from dibs.core.times import LATEST, Duration, Instant, duration
from dibs.engines.base import Engine
from dibs.engines.values import ClaimRequest, Feature, Query
from dibs.errors import DibsError, InvalidOption, UsageError
from dibs.runtime.definition import TaskDefinition
from dibs.runtime.hub import Hub
from dibs.runtime.loop import LoopRunner
from dibs.runtime.payloads import Payloads
from dibs.runtime.queue_settings import declare_queues
from dibs.testing.clock import ManualClock
from dibs.testing.inline import (
    DirectEnqueuer,
    EagerEngine,
    InlineEngine,
    InlineRun,
    InlineRunner,
    borrowing,
    call_plain,
)

__all__ = ["Sandbox"]

WORKER = "dibs.testing"
MOST_MOVES = 10_000
MOST_RUNS = 1_000_000

Named = Task[..., Any] | Callable[..., Any] | str
"""A task, a plain function of an allowed module, or a task's name."""


NOT_GIVEN: Any = object()
"""None is a state like any other."""


class Sandbox:
    """While open, everything that holds `app` (its tasks, queues, handles) uses a new, empty store in memory.

    Nothing runs by itself: call `run_due` or `run_until_idle`. With `eager`, each enqueue runs what is due before it
    returns, except enqueues in a transaction of your own (`using(connection=…)`): the sandbox can't see when that
    commits, so call `run_due` after it.

    Runs take the same decisions as in a worker: retries, delays, ends, history. `def` tasks run in the thread of the
    test, process tasks too, and so do hooks; timeouts count on the manual clock. Queues have the settings that the app
    declares (`app.queue`).

    `reraise` gives the test the exceptions that tasks raise, after they are settled. `capabilities` are what the
    sandbox offers (None: whatever tasks require). `state` becomes `ctx.state`; by default the app's lifespan makes it.
    """

    def __init__(
        self,
        app: Dibs,
        *,
        clock: ManualClock | None = None,
        eager: bool = False,
        reraise: bool = False,
        capabilities: tuple[str, ...] | None = None,
        state: Any = NOT_GIVEN,
    ) -> None:
        self.app = check_kind(app, "app", Dibs)
        self.clock = ManualClock() if clock is None else check_kind(clock, "clock", ManualClock)
        self.eager = check_flag(eager, "eager")
        self.reraise = check_flag(reraise, "reraise")
        self._capabilities = None if capabilities is None else check_names(capabilities, "capabilities", CAPABILITIES)
        self._state = state
        self._hub = app.hub
        self._open: ExitStack | None = None
        self._resources: AsyncExitStack | None = None
        self._sequences = count(1)

    # Opening and closing.

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Put the app on memory."""
        if self._open is not None:
            raise UsageError("this Sandbox is open already.")
        self._engine = InlineEngine()
        self._opened_at = self.clock.now()
        self._declared: set[str] = set()
        # The app's own blob store is not touched, and never swept: its blobs belong to tasks that are not known here.
        blobs = None if self._hub.payloads.blobs is None else MemoryBlobs()
        inner = Hub(
            self._engine,
            clock=self.clock,
            codec=self._hub.codec,
            defaults=self._hub.defaults,
            url="memory://",
            payloads=Payloads(blobs, self._hub.payloads.limit),
        )
        inner.features -= {Feature.INLINE}  # enqueues have to go through the sandbox's own enqueuer
        inner.runner = InlineRunner(inner.engine.open, inner.forget)
        inner.enqueuer = DirectEnqueuer(inner.runner, inner._flush_enqueues)
        if self.eager:
            self._engine.after_fire = self._run_after_enqueue
            inner.engine = cast(Engine, EagerEngine(inner.engine, self._run_after_enqueue))
        with ExitStack() as stack:
            stack.enter_context(borrowing(self._hub, inner))
            stack.callback(inner.runner.close, self._finish)
            if self._hub.queues:
                inner.runner.run(declare_queues(self._hub))
            self._open = stack.pop_all()

    def close(self) -> None:
        """Give the app back to its own store. Closing twice is fine."""
        stack, self._open = self._open, None
        if stack is not None:
            stack.close()

    async def _finish(self) -> None:
        await self.app._waiter.close()
        if self._resources is not None:
            await self._resources.aclose()
            self._resources = None

    # Running.

    def run_due(self, limit: int | None = None) -> list[TaskInfo]:
        """Run what is due now, in claim order, and what becomes due by that; at most `limit` runs.

        Answers the tasks as they are after their runs.
        """
        return self._runner.run(self._run_due(check_limit(limit)))

    async def arun_due(self, limit: int | None = None) -> list[TaskInfo]:
        """`run_due` for async code."""
        return await self._runner.arun(self._run_due(check_limit(limit)))

    def run_until_idle(self, limit: int = 1000) -> list[TaskInfo]:
        """Run everything, moving the clock through delays, backoff and the ends of abandoned leases.

        Answers the tasks as they are after their runs. More than `limit` runs are an error: tasks that enqueue
        themselves again never come to an end.
        """
        return self._runner.run(self._run_until_idle(check_number(limit, "limit", 0, MOST_RUNS)))

    async def arun_until_idle(self, limit: int = 1000) -> list[TaskInfo]:
        """`run_until_idle` for async code."""
        return await self._runner.arun(self._run_until_idle(check_number(limit, "limit", 0, MOST_RUNS)))

    def advance(self, seconds: float | timedelta) -> datetime:
        """Let time pass, the app's schedules firing on the way, each at its time; answers the new present.

        What they enqueue waits for `run_due`. Moving the sandbox's `clock` itself fires nothing.
        """
        return self._runner.run(self._advance(duration(seconds, "advance()")))

    async def aadvance(self, seconds: float | timedelta) -> datetime:
        """`advance` for async code."""
        return await self._runner.arun(self._advance(duration(seconds, "advance()")))

    async def _advance(self, span: Duration) -> datetime:
        until = check_number(self.clock.now() + span, "the time to move to", 0, LATEST)
        for name in self._hub.schedules.keys() - self._declared:
            each = self._hub.schedules[name]
            await self._engine.set_schedule(name, each.recurrence, each.task, declared=True, now=self._opened_at)
            self._declared.add(name)
        for _ in range(MOST_MOVES):
            now = self.clock.now()
            await self._engine.fire(now=now)
            active = [record for record in await self._engine.schedules() if not record.paused]
            due = min((record.next_fire_at for record in active if record.next_fire_at > now), default=until + 1)
            if due > until:
                return self.clock.move_to_instant(until)
            self.clock.move_to_instant(due)
        raise AssertionError(f"schedules fired more than {MOST_MOVES:,} times on the way: advance less at a time.")

    @property
    def _runner(self) -> LoopRunner:
        if self._open is None:
            raise UsageError("this Sandbox is not open: use it as a context manager, or call start().")
        return self._hub.runner

    async def _run_after_enqueue(self) -> None:
        await self._run_due(None)

    async def _run_due(self, limit: int | None) -> list[TaskInfo]:
        ran: list[TaskInfo] = []
        while limit is None or len(ran) < limit:
            task, _ = await self._claim()
            if task is None:
                break
            ran.append(await self._run(task))
        return ran

    async def _run_until_idle(self, limit: int) -> list[TaskInfo]:
        ran: list[TaskInfo] = []
        for _ in range(MOST_MOVES):
            task, due_at = await self._claim()
            if task is not None:
                if len(ran) == limit:
                    await self._engine.settle([outcome.released(task, "enough")], now=self.clock.now())
                    raise AssertionError(f"still not idle after {limit:,} runs; the next would be of {task.name}.")
                ran.append(await self._run(task))
                continue
            moments = [moment for moment in (due_at, await self._next_loss()) if moment is not None]
            if not moments:
                return ran
            self.clock.move_to_instant(max(min(moments), self.clock.now() + 1))
        raise AssertionError(f"still not idle after moving the clock {MOST_MOVES:,} times.")

    async def _claim(self) -> tuple[LeasedTask | None, Instant | None]:
        """The next task to run, or when to look again."""
        now, engine = self.clock.now(), self._engine
        await engine.rescue(now=now)
        await self._rerank(now)
        self._hub.load_allowed()
        request = ClaimRequest(
            worker=WORKER,
            sequence=next(self._sequences),
            queues=tuple(record.name for record in await engine.queues()),
            limit=1,
            names=tuple(self._hub.definitions),
            capabilities=tuple(sorted(self._engine.required)) if self._capabilities is None else self._capabilities,
        )
        claimed = await engine.claim(request, now=now)
        due_at = None if claimed.next_due_in is None else now + claimed.next_due_in
        return (claimed.tasks[0] if claimed.tasks else None), due_at

    async def _rerank(self, now: Instant) -> None:
        """Steps of deadlines and tiers count from the moment they fall due."""
        term = await self._engine.lead(WORKER, now=now)
        while term is not None and (await self._engine.chore("rerank", term, now=now)).more:
            pass

    async def _next_loss(self) -> Instant | None:
        """When the first lease ends that was claimed elsewhere and not settled."""
        page = await self._engine.search(Query(states=(State.RUNNING,), limit=1000))
        ends = [task.lease_expires_at for task in page.records if task.worker != WORKER]
        return min((end for end in ends if end is not None), default=None)

    async def _run(self, task: LeasedTask) -> TaskInfo:
        """One run from lease to settlement."""
        run = InlineRun(task, self._engine, self.clock)
        runner, definition = TaskRunner(self._hub, await self._make_state()), self._hub.definitions[task.name]
        settlement, error = await asyncio.get_running_loop().create_task(self._attempt(runner, run, definition))
        if run.completion is not None and error is None:
            settlement = run.completion
        elif settlement.outcome is not Outcome.COMPLETED and (reason := run.stopping) is not None and not run.timed_out:
            settlement = outcome.cancelled(task, reason)
        elif run.timed_out:
            settlement = outcome.timed_out(task, self.clock.now() - task.claimed_at)
        settlement = outcome.with_backoff(task, definition, settlement)
        (answer,) = await self._engine.settle([settlement], now=self.clock.now())
        if answer.state is not None and (hooks := hooks_for(self._hub, definition, answer.state)):
            await call_hooks(hooks, end_of(task, settlement, answer.state), call_plain)
        if error is not None and self.reraise and settlement.outcome is not Outcome.SNOOZED:
            raise error
        record = self._engine.record(task.id)
        assert record is not None
        return self._info(record)

    def _info(self, record: TaskRecord) -> TaskInfo:
        """A snapshot that shows large payloads as well, so that a test can look at them."""
        fetched = self._hub.payloads.fetched
        result = None if record.result is None else fetched(record.result)
        return task_info(structs.replace(record, args=fetched(record.args), result=result), self._hub.codec)

    async def _attempt(
        self, runner: TaskRunner, run: InlineRun, definition: TaskDefinition
    ) -> tuple[Settlement, BaseException | None]:
        """Run, and keep the result. Nothing is raised: SystemExit would end the loop."""
        task, errors = run.task, list[BaseException]()

        def unready(task: LeasedTask, error: DibsError) -> Settlement:
            errors.append(error)
            return outcome.unready(task, error)

        try:
            settlement = await runner.run(run, definition, partial(self._call, runner, definition), unready=unready)
        except BaseException as error:
            return outcome.failed(task, definition, error), error
        return await keep_result(self._hub, task, settlement), errors[0] if errors else None

    async def _call(self, runner: TaskRunner, definition: TaskDefinition, /, *args: Any, **kwargs: Any) -> Any:
        function, context = runner.function_of(definition), CURRENT.get()
        if iscoroutinefunction(function):
            return await function(*args, **kwargs)

        def call() -> Any:
            CURRENT.set(context)
            return function(*args, **kwargs)

        return await call_plain(call)

    async def _make_state(self) -> Any:
        """`ctx.state`: as given, or made once by the lifespan."""
        if self._state is not NOT_GIVEN:
            return self._state
        if self._resources is None:
            self._resources = AsyncExitStack()
            lifespan = self._hub.lifespan
            self._made = None if lifespan is None else await self._resources.enter_async_context(lifespan())
        return self._made

    # Looking.

    def enqueued(self, task: Named | None = None, *, queue: str | None = None) -> list[TaskInfo]:
        """What has been enqueued since the sandbox was opened, in that order, as it is now."""
        infos = [self._info(record) for record in self._engine.records(self._engine.accepted)]
        wanted = None if task is None else name_of(task)
        return [info for info in infos if wanted in (None, info.name) and queue in (None, info.queue)]

    def assert_enqueued(
        self,
        task: Named,
        args: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        priority: int | str | None = None,
        key: str | None = None,
        count: int | None = None,
    ) -> list[TaskInfo]:
        """Fail unless such a task was enqueued (exactly `count` times, if given); answers those that were.

        `args` are arguments by name; those that are not mentioned don't matter.
        """
        if count is not None:
            check_number(count, "count", 0, MOST_RUNS)
        wanted = Expected(
            name_of(task), as_stored(args), queue, None if priority is None else parse_priority(priority), key
        )
        found = [info for info in self.enqueued() if wanted.fits(info)]
        if (count is None and not found) or (count is not None and len(found) != count):
            times = "" if count is None else f" {times_of(count)}"
            were = "" if count is None else f" but {times_of(len(found))}"
            raise AssertionError(f"{wanted} was not enqueued{times}{were}. {self._listing()}")
        return found

    def assert_not_enqueued(
        self, task: Named | None = None, args: Mapping[str, Any] | None = None, *, queue: str | None = None
    ) -> None:
        """Fail if such a task was enqueued; without arguments: if anything was."""
        wanted = Expected(None if task is None else name_of(task), as_stored(args), queue)
        if any(wanted.fits(info) for info in self.enqueued()):
            raise AssertionError(f"{wanted} was enqueued. {self._listing()}")

    def _listing(self) -> str:
        lines = [
            f"\n  {call_text(info.name, info.args)} in {info.queue}, priority {info.priority}, {info.state}"
            for info in self.enqueued()
        ]
        return f"Enqueued:{''.join(lines)}" if lines else "Nothing was enqueued."


class Expected(Struct, frozen=True):
    """What an assertion looks for; None matches all."""

    name: str | None
    args: dict[str, Any] | None = None
    queue: str | None = None
    priority: int | None = None
    key: str | None = None

    def fits(self, info: TaskInfo) -> bool:
        facts = {"name": info.name, "queue": info.queue, "priority": info.priority, "key": info.key}
        given = all(getattr(self, name) in (None, value) for name, value in facts.items())
        return given and all(
            name in info.args and info.args[name] == value for name, value in (self.args or {}).items()
        )

    def __str__(self) -> str:
        call = call_text(self.name or "a task", self.args)
        facts = {"queue": self.queue, "priority": self.priority, "key": self.key}
        return call + "".join(f" with {name} {shown(value)}" for name, value in facts.items() if value is not None)


def check_limit(limit: object) -> int | None:
    return None if limit is None else check_number(limit, "limit", 0, MOST_RUNS)


def name_of(task: Named) -> str:
    """The name that a task is stored under."""
    if isinstance(task, str):
        return task
    if isinstance(task, Task):
        return task.name
    if not hasattr(task, "__qualname__"):
        raise InvalidOption(f"a task is named by itself, its function or its name, not by {shown(task)}.")
    return f"{task.__module__}:{task.__qualname__}"


def as_stored(args: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Arguments in the form in which a snapshot shows them."""
    if args is None:
        return None
    given = dict(check_mapping(args, "args", "{'to': 'ada'}"))
    return msgspec.json.decode(as_json(given, "the arguments that are looked for"), type=dict[str, Any])


def call_text(name: str, args: Mapping[str, Any] | None) -> str:
    return name if args is None else f"{name}({', '.join(f'{name}={shown(value)}' for name, value in args.items())})"


def times_of(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
