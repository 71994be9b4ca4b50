"""`Dibs`: the app object. A plain value: two in one process are independent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from datetime import datetime, timedelta
from inspect import isasyncgenfunction, isgeneratorfunction
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, Never, ParamSpec, Self, TypeVar, Unpack, overload

from msgspec import structs

from dibs.attempt.context import Context
from dibs.attempt.hooks import TaskEnd, check_hook
from dibs.attempt.middleware import Layer, Middleware, check_middleware
from dibs.blobs import BlobStore
from dibs.client import consumer as low_level
from dibs.client.audit import check_wanted, read_audit
from dibs.client.blocking import blocking
from dibs.client.by_name import define_by_name
from dibs.client.define import define, functions_of, importable
from dibs.client.dependencies import Flow
from dibs.client.events import EventFeed
from dibs.client.flow import group
from dibs.client.handle import Handle
from dibs.client.info import (
    AuditLine,
    ChoreInfo,
    TaskInfo,
    chore_info,
    task_info,
)
from dibs.client.options import (
    Options,
    RecurrenceOptions,
    SharedOptions,
    Span,
    TaskOptions,
    check_known,
    shared_options,
)
from dibs.client.queues import QueueChanges, Queues, declare_queue
from dibs.client.result_waiter import ResultWaiter
from dibs.client.schedule_template import ScheduleDecorator, declare, make_recurrence
from dibs.client.schedules import Schedules
from dibs.client.series import Point, check_range, read_series
from dibs.client.stats import QueueStats, check_window, read_position, read_stats
from dibs.client.steps import Steps
from dibs.client.task import AsyncTask, Call, Decorator, Running, Task, check_own, make_task
from dibs.client.tasks import Tasks, ranked_infos, read_task
from dibs.client.why import Why, explain
from dibs.client.workers import Workers
from dibs.client.workflow_batch import assemble, enqueue_in_order
from dibs.client.workflows import Workflow, Workflows, begin
from dibs.core.codec import Codec, PayloadCodec
from dibs.core.options import (
    CAPABILITIES,
    MODULES,
    PAGE_LIMIT,
    QUEUES,
    check_items,
    check_label,
    check_name,
    check_names,
    check_number,
    check_reference,
    shown,
)
from dibs.core.priority import Bound
from dibs.core.times import patience
from dibs.engines.base import Engine
from dibs.engines.open import needs_token, open_engine, shown_url, with_accelerator, with_token
from dibs.engines.values import EnqueueOutcome
from dibs.errors import InvalidOption
from dibs.observe.tracing import sending
from dibs.runtime.clock import Clock, SystemClock
from dibs.runtime.definition import TaskDefinition
from dibs.runtime.environment import default_blobs, default_token, default_url, host
from dibs.runtime.hub import Hub
from dibs.runtime.payloads import make_payloads

if TYPE_CHECKING:
    from dibs.worker import Worker

__all__ = ["Dibs"]

P = ParamSpec("P")
R = TypeVar("R")
AnyHook = TypeVar("AnyHook", bound=Callable[[TaskEnd], Any])
AnyMiddleware = TypeVar("AnyMiddleware", bound=Middleware | Layer)


class Dibs:
    """A task queue on the store that `url` names (or `DIBS_URL`, or a file `dibs.db` here).

    `retries`, `timeout`, `lease`, `retry_base`, `retry_cap` and `timeout_growth` are this app's defaults; queues, tasks
    and calls can override them. `allow` names modules whose plain functions may be enqueued without a decorator.
    Arguments and results over `inline_limit` bytes (256 KiB) go to `blobs` (or `DIBS_BLOBS`): a directory, an S3 URL.
    `client` is this app's name for limits on enqueueing, by default the host's. `accelerator` is the URL of a Redis
    beside a PostgreSQL store. `token` (or `DIBS_TOKEN`) is for the URL of a Dibs server.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        payload_codec: PayloadCodec | None = None,
        also_reads: Iterable[PayloadCodec] = (),
        blobs: str | PathLike[str] | BlobStore | None = None,
        inline_limit: int | None = None,
        allow: Iterable[str] = (),
        client: str | None = None,
        accelerator: str | None = None,
        token: str | None = None,
        clock: Clock | None = None,
        engine: Engine | None = None,
        **defaults: Unpack[SharedOptions],
    ) -> None:
        known = {*SharedOptions.__annotations__, *(Dibs.__init__.__kwdefaults__ or ())}
        check_known(defaults, known, "Dibs()")
        self.url = default_url() or "sqlite:///dibs.db" if url is None else url
        if accelerator is not None:
            self.url = with_accelerator(self.url if engine is None else "", accelerator)
        if token is None and needs_token(self.url):
            token = default_token()
        if token is not None:
            self.url = with_token(self.url, token)
        hub = Hub(
            open_engine(self.url) if engine is None else check_engine(engine),
            clock=SystemClock() if clock is None else check_clock(clock),
            codec=Codec(payload_codec, also_reads),
            defaults=shared_options(defaults, "Dibs()"),
            url=self.url,
            payloads=make_payloads(default_blobs() if blobs is None else blobs, inline_limit),
        )
        if engine is not None and url is None:  # the default URL does not lead to it
            hub.store_name = type(engine).__name__
        self.allow = check_names(allow, "allow", MODULES)
        hub.load_allowed = self._load_allowed
        hub.client = host() if client is None else check_label(client, "client")
        self._use(hub)

    def _use(self, hub: Hub) -> None:
        self.hub = hub
        self.queues = Queues(hub)
        self.schedules = Schedules(self)
        self.tasks = Tasks(hub)
        self.steps = Steps(hub)
        self.workers = Workers(hub)
        self.workflows = Workflows(hub)
        self._consumer = low_level.Consumer(hub)
        self._waiter = ResultWaiter(hub)
        self.claim, self.aclaim = self._consumer.claim, self._consumer.aclaim
        self.settle, self.asettle = self._consumer.settle, self._consumer.asettle
        self.extend, self.aextend = self._consumer.extend, self._consumer.aextend

    def _on(self, hub: Hub) -> Dibs:
        """The same app as others may see it, through a hub whose engine limits them."""
        found = copy(self)
        found._use(hub)
        return found

    def __repr__(self) -> str:
        return f"<Dibs {shown_url(self.url)}>"

    # Defining tasks.

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Running[R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Running[R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> Decorator: ...

    def task(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Make a function a task: ``@app.task``, or with options, ``@app.task(queue="mail", retries=5)``.

        Its first parameter may be a `Context`. Arguments are stored by name as JSON, and checked against its
        annotations when it is enqueued, and so is what it returns, when it has run. Generators and methods are refused.
        """
        check_known(options, TaskOptions.__annotations__, "a task")
        shared = shared_options(options, "a task")
        own: dict[str, Any] = {
            name: value for name, value in options.items() if name not in SharedOptions.__annotations__
        }

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            definition = define(function, options=shared, **own)
            self.hub.define(definition)
            return make_task(self, definition, Options(options=shared))

        return decorate if function is None else decorate(function)

    def schedule(
        self,
        cron: str | None = None,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **recurrence: Unpack[RecurrenceOptions],
    ) -> ScheduleDecorator:
        """Enqueue a task again and again: ``@app.schedule("0 9 * * mon-fri", tz="Europe/Zurich")``.

        Workers of this app declare it in the store; the leading one fires. `every` (seconds) instead of cron keeps a
        fixed rate. `jitter` spreads the starts. `catch_up` decides about missed fires: "skip", "one" task for all of
        them, or "all", the newest `catch_up_limit`. `overlap="skip"` skips fires while the last task is unfinished. A
        second schedule of a task needs a `name`; the first has the task's.
        """
        fires = make_recurrence(cron, recurrence)

        def decorate(function: Any, /) -> Any:
            task = function if isinstance(function, Task) else self.task(function)
            declare(self.hub, task, name, fires, args, kwargs)
            return task

        return decorate

    def queue(self, name: str, **settings: Unpack[QueueChanges]) -> None:
        """Declare settings of a queue in code: ``app.queue("mail", max_concurrent=5, per_partition=1)``.

        Workers of this app write them to the store when they start, before they take tasks; what only enqueues writes
        nothing. Only what has changed in the code since it was last written is written, setting by setting: so what an
        operator sets later (`app.queues.set`, `dibs queues set`) stays, through every restart, until the code says
        something else than it did. A setting that the code no longer declares goes back to its default. When two
        versions of the code run, the worker that started last decides.
        """
        declare_queue(self.hub, name, settings)

    def on_success(self, hook: AnyHook) -> AnyHook:
        """Call a function of one argument (`TaskEnd`) when a task of this app has completed; plain or async.

        The worker that ran the task calls it once the store has taken the outcome: in a thread, or on the worker's loop
        if it is async. The task's own hook (`@app.task(on_success=…)`) comes first, then those of the app in the order
        of adding. What a hook raises is logged, and changes nothing. It is called once at most, and not at all if the
        worker ends, is killed or loses the task's lease at that moment. Tasks that other code settles (`app.settle`, a
        worker in another language) have no hooks. What must not be missed belongs into the task, or into a task that
        waits for it.
        """
        self.hub.on_success.append(check_hook(hook, "on_success"))
        return hook

    def on_failure(self, hook: AnyHook) -> AnyHook:
        """Call a function of one argument (`TaskEnd`) when a task of this app is dead after its last attempt.

        As `on_success`. It is not called after an attempt that is followed by another (middleware sees each one), when
        a task is cancelled or expires, nor when it becomes dead without a run of its own ending: with its worker
        (reason `lost`), with its queue, or because of a task that it waits for. `app.events("task.dead")` tells all.
        """
        self.hub.on_failure.append(check_hook(hook, "on_failure"))
        return hook

    def middleware(self, middleware: AnyMiddleware) -> AnyMiddleware:
        """Wrap every run; the first one added is the outermost.

        `async def layer(ctx, run)` runs on the loop. A generator function `def layer(ctx): …; yield; …` is entered and
        left where the task's function runs: in its thread, its child process, or on the loop.
        """
        check_middleware(middleware)
        self.hub.middleware.append(middleware)
        return middleware

    def lifespan(self, resources: Callable[[], AsyncIterator[Any]]) -> Callable[[], AsyncIterator[Any]]:
        """An async generator function that makes what tasks need, yields it as `ctx.state`, and cleans up.

        It runs once in each worker, on its loop, and once in each executor process.
        """
        if not isasyncgenfunction(resources):
            name = getattr(resources, "__name__", "resources")
            hint = f" Write async def {name}() for def {name}()." if isgeneratorfunction(resources) else ""
            raise InvalidOption(
                "a lifespan is an async generator function: async def resources(): …; yield state; …, and "
                f"{shown(resources)} is none.{hint}"
            )
        self.hub.lifespan = asynccontextmanager(resources)
        return resources

    # Enqueueing.

    def enqueue(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Handle[Any]:
        """Enqueue a task, or a plain function of an allowed module."""
        return self._task_of(function).enqueue(*args, **kwargs)

    async def aenqueue(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Handle[Any]:
        """Enqueue a task, or a plain function of an allowed module."""
        return await self._task_of(function).aenqueue(*args, **kwargs)

    async def aenqueue_many(self, calls: Iterable[Call[Any]]) -> list[Handle[Any]]:
        """Enqueue calls (``task.call(…)``), all or none; what was there before is marked `duplicate`.

        Calls may wait for each other (``using(after=…)``), in whatever order they are given.
        """
        batch: list[Call[Any]] = check_items(calls, "enqueue_many()", Call, "calls (task.call(…))")
        for call in batch:
            check_own(self, call.task)
            if call.task.options.connection is not None or call.task.options.block is not None:
                raise InvalidOption("enqueue_many is one transaction of its own: leave connection= and block= out.")
        with sending(self.hub.tracing, [call.new for call in batch]) as tasks:
            answers = await self.hub.runner.arun(enqueue_in_order(self.hub, tasks))
        return [
            self._handle(
                answer.id,
                call.new.queue,
                call.task.definition,
                duplicate=answer.outcome is not EnqueueOutcome.ENQUEUED,
            )
            for call, answer in zip(batch, answers, strict=True)
        ]

    enqueue_many = blocking(aenqueue_many)

    async def aenqueue_workflow(self, flow: Flow[Any], name: str = "") -> Workflow:
        """Enqueue a call, chain or group with everything that it takes results from: all or nothing."""
        if self.hub.tracing is None:
            return await begin(self, flow, name)
        batch = assemble(flow)
        with self.hub.tracing.sending(batch.tasks) as tasks:
            traced = {new.id: new for new in tasks}
            # The edges are in the tasks now, so a group of them is the same workflow.
            calls = [structs.replace(call, new=traced[call.id], needs=()) for call in batch.calls]
            return await begin(self, group(calls), name)

    enqueue_workflow = blocking(aenqueue_workflow)

    def remote(self, name: str, *, queue: str = "default", **others: Never) -> Task[..., Any]:
        """A task by its name, for programs that don't have its code: ``app.remote("mail.send", queue="mail")``.

        It takes options and is enqueued like any task, with arguments by name: ``.enqueue(to="ada")``. The worker that
        runs it checks them. The task's own queue, priority, retries and timeout are not known here: give them with
        `using`, or to the queue. With `key`, defaults of parameters don't count as arguments. Results are plain JSON.
        """
        check_known(others, ("queue",), "app.remote()")
        return Task(self, define_by_name(name, queue), Options())

    def task_named(self, name: str) -> Task[..., Any]:
        """The task of this name, for callers that have only the name."""
        definition = self.hub.definition(name)
        return make_task(self, definition, Options(options=definition.options))

    def _task_of(self, function: Callable[..., Any]) -> Task[..., Any]:
        if isinstance(function, Task):
            return check_own(self, function)
        definition = define(function, name=importable(function, self.allow))
        self.hub.define(definition)
        return make_task(self, definition, Options())

    def _load_allowed(self) -> None:
        """Define every function of the allowed modules, so that workers know their names."""
        for module in self.allow:
            for name, function in functions_of(module):
                try:
                    definition = define(function, name=name)
                except InvalidOption:  # for example, it takes *args: it can't be enqueued, so workers need not know it
                    continue
                self.hub.define(definition)

    # Following tasks.

    async def ahandle(self, task_id: str) -> Handle[Any]:
        """A handle for a task that is known by its id."""
        info = await self.hub.runner.arun(read_task(self.hub, task_id))
        handle = self._handle(info.id, info.queue, self.hub.definitions.get(info.name))
        handle.info = info
        return handle

    handle = blocking(ahandle)

    def _handle(
        self, task_id: str, queue: str, definition: TaskDefinition | None, duplicate: bool = False
    ) -> Handle[Any]:
        return Handle(self.tasks, self._waiter, task_id, queue, definition, duplicate)

    async def await_all(self, handles: Iterable[Handle[Any]], timeout: float | None = None) -> list[TaskInfo]:
        """Wait until all have ended, however they ended; TimeoutError if that takes too long."""

        given: list[Handle[Any]] = check_items(handles, "wait()", Handle, "handles (app.handle(id) gives one)")
        longest = patience(timeout, "timeout")

        async def all_ended() -> list[TaskInfo]:
            async with asyncio.timeout(longest):
                records = await asyncio.gather(*(handle._ended() for handle in given))
            return [task_info(record, self.hub.codec) for record in records]

        return await self.hub.runner.arun(all_ended())

    def wait(self, handles: Iterable[Handle[Any]], timeout: float | None = None) -> list[TaskInfo]:
        """Wait until all have ended, however they ended; TimeoutError if that takes too long."""
        self.hub.runner.serve()
        return self.hub.runner.run(self.await_all(handles, timeout))

    # Asking.

    async def awhy(self, task_id: str) -> Why:
        """In one line: why a task is not running yet, and when that ends."""
        wanted = check_reference(task_id, "a task's id")
        return await self.hub.runner.arun(explain(self.hub.engine, wanted, self.hub.clock.now()))

    why = blocking(awhy)

    async def apeek(self, queue: str = "default", limit: int = 10) -> list[TaskInfo]:
        """The next tasks of a queue in claim order."""
        name, count = check_name(queue, "queue"), check_number(limit, "limit", 1, PAGE_LIMIT)
        peeked = await self.hub.runner.arun(self.hub.engine.peek(name, count, now=self.hub.clock.store_now()))
        return await self.hub.runner.arun(ranked_infos(self.hub, peeked.tasks))

    peek = blocking(apeek)

    async def abound(self, queue: str = "default") -> Bound:
        """How long a task of this queue can be overtaken by more urgent ones."""
        return (await self.queues.aget(queue)).bound

    bound = blocking(abound)

    async def astats(self, queue: str | None = None, window: Span = timedelta(hours=1)) -> QueueStats:
        """What a queue, or all of them, did over the last `window`, what is in it now, and its totals."""
        name = None if queue is None else check_name(queue, "queue")
        span = check_window(window)
        return await self.hub.runner.arun(read_stats(self.hub.engine, name, span, self.hub.clock.now()))

    stats = blocking(astats)

    async def aseries(
        self,
        queue: str | None = None,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        resolution: Span = 60,
    ) -> list[Point]:
        """What ended over time, in points of `resolution` seconds: the last hour by default, and at most 7 days."""
        name, now = None if queue is None else check_name(queue, "queue"), self.hub.clock.now()
        asked = check_range(start, end, resolution, now)
        return await self.hub.runner.arun(read_series(self.hub.engine, name, asked))

    series = blocking(aseries)

    async def aaudit(
        self,
        limit: int = 100,
        *,
        before: int | None = None,
        actor: str | None = None,
        act: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
    ) -> list[AuditLine]:
        """Who changed what through the admin methods and commands, newest first.

        `before`: only lines whose number (`n`) is lower, to go on where an earlier call ended. `target` is the id or
        name of what was changed; tasks are also found among several that were changed at once.
        """
        count = check_number(limit, "limit", 1, PAGE_LIMIT)
        wanted = check_wanted(before, actor, act, target, since)
        return await self.hub.runner.arun(read_audit(self.hub.engine, count, wanted))

    audit = blocking(aaudit)

    def events(
        self, topics: str | Sequence[str] = (), *, queues: Sequence[str] = (), cursor: str | None = None
    ) -> EventFeed:
        """What happens to tasks, workers and queues from now on, or since `cursor`: ``for event in app.events():``, or
        ``async for``.

        `topics` are families (task, worker, queue, system) or types (task.failed); by default all that is stored.
        `queues` limits events of tasks and queues. `event.cursor` resumes after it for a few minutes.
        """
        return EventFeed(self.hub, topics, queues, cursor)

    async def achores(self) -> list[ChoreInfo]:
        """The last run of each chore of the leading worker."""
        about, now = await self.hub.runner.arun(self.hub.engine.about()), self.hub.clock.now()
        return [chore_info(record, now) for record in about.chores]

    chores = blocking(achores)

    async def aposition(self, task_id: str) -> tuple[int, datetime | None]:
        """How many tasks are ahead of a pending one (at most 10,000 are counted), and when it should start."""
        return await self.hub.runner.arun(read_position(self.hub, task_id))

    position = blocking(aposition)

    # Running.

    def worker(
        self,
        *,
        queues: Sequence[str] = (),
        concurrency: int = 10,
        capabilities: Sequence[str] = (),
        reserve: Mapping[int, int] | None = None,
        in_order: bool = False,
        name: str | None = None,
        until_idle: bool = False,
    ) -> Worker:
        """A worker in this process: ``with app.worker(): …``, or `start()` and `stop()`."""
        from dibs.worker import Worker, WorkerSettings  # late: a process that only enqueues needs no worker

        settings = WorkerSettings(
            queues=check_names(queues, "queues", QUEUES),
            concurrency=concurrency,
            capabilities=check_names(capabilities, "capabilities", CAPABILITIES),
            reserve={} if reserve is None else reserve,
            in_order=in_order,
            name=name,
            until_idle=until_idle,
        )
        return Worker(self.hub, settings)

    def close(self) -> None:
        """Raise `Closed` in every waiter and close the store. A second call does nothing."""
        self.hub.runner.close(self._close)

    async def aclose(self) -> None:
        """`close` for async code, without blocking your loop."""
        await self.hub.runner.aclose(self._close)

    async def _close(self) -> None:
        await self._waiter.close()
        await self.hub.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def check_clock(clock: object) -> Clock:
    if not isinstance(clock, Clock):
        raise InvalidOption(f"clock must have now() and store_now(), and {shown(clock)} has not.")
    return clock


def check_engine(engine: Engine) -> Engine:
    if not isinstance(getattr(engine, "features", None), frozenset):
        raise InvalidOption(f"engine must be an Engine, not {shown(engine)}. To name a store, give its URL.")
    return engine
