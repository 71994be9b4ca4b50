"""A task as application code uses it: callable, enqueueable, with options that never collide with arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from inspect import iscoroutinefunction, signature
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from msgspec import Struct, structs

from dibs.attempt.context import Context, pass_on
from dibs.client.dependencies import Flow, Shape
from dibs.client.elsewhere import OF_TASKS
from dibs.client.handle import Handle
from dibs.client.options import CallOptions, Options, label_of, make_options
from dibs.client.producer import aenqueue, enqueue
from dibs.client.take import Placed, place
from dibs.core.results import TAKE, Placeholder, PlaceholderMet
from dibs.core.task import NewTask
from dibs.core.times import Duration, Instant
from dibs.engines.values import EnqueueAnswer, EnqueueOutcome
from dibs.errors import InvalidArguments, InvalidOption
from dibs.runtime.definition import TaskDefinition

if TYPE_CHECKING:
    from dibs.client.app import Dibs

__all__ = ["AsyncTask", "Call", "Decorator", "Running", "Task", "check_new", "check_own", "make_task"]

P = ParamSpec("P")
R = TypeVar("R")
Running = Coroutine[Any, Any, R]


class Call(Struct, Flow[R], frozen=True):
    """A call that has not been enqueued yet: for `enqueue_many`, `chain`, `group` and `take`."""

    task: Task[..., R]
    """The task that is called."""
    new: NewTask
    """What is enqueued."""
    needs: tuple[Call[Any], ...] = ()
    """Other calls that it waits for."""

    @property
    def id(self) -> str:
        """The id that its task will have."""
        return self.new.id

    @property
    def first_tasks(self) -> tuple[Call[Any], ...]:
        """The calls that nothing in it comes before: itself."""
        return (self,)

    @property
    def last_tasks(self) -> tuple[Call[Any], ...]:
        """The calls that must end for it to have ended: itself."""
        return (self,)

    @property
    def shape(self) -> Shape:
        """How its result is made up of results of tasks."""
        return self.new.id

    def __repr__(self) -> str:
        return f"<Call of {self.new.name} {self.id}>"


class Task(Generic[P, R]):
    """A function that can be enqueued. Calling it runs the function in place."""

    def __init__(self, app: Dibs, definition: TaskDefinition, options: Options) -> None:
        self._app = app
        self.definition = definition
        self.options = options
        self.name = definition.name
        self.__name__ = definition.function.__name__
        self.__qualname__ = definition.function.__qualname__
        self.__module__ = definition.function.__module__
        self.__doc__ = definition.function.__doc__
        self.__wrapped__ = definition.function

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    if not TYPE_CHECKING:  # otherwise no checker would find a misspelt attribute

        def __getattr__(self, name: str) -> NoReturn:
            advice = OF_TASKS.get(name)
            hint = f": {advice.format(self.__dict__.get('__name__', 'task'))}" if advice else ""
            raise AttributeError(f"a Task has no {name!r}{hint}", name=name, obj=self)

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, context: Context, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]  # it takes all that both take
        """Run the function here and now, as if it had no decorator; an async one gives a coroutine.

        If it takes a Context, that of the task in which this is called is passed on. Outside of tasks, give one first.
        """
        function = self.definition.function
        if self.definition.takes_context and not (args and isinstance(args[0], Context)):
            context = Context.current_or_none()
            if context is not None:
                return function(context, *args, **kwargs)
            if not self._fits(args, kwargs):
                raise InvalidArguments(
                    f"{self.name} takes a Context first, and no task is running here that could pass its own on: give "
                    "one, or enqueue it (in a test, dibs.testing.Sandbox runs it)."
                )
        return function(*args, **kwargs)

    def _fits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        try:
            signature(self.definition.function).bind(*args, **kwargs)
        except TypeError:
            return False
        return True

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Hand the call to the queue; returns when it is durable."""
        hub, new = self._app.hub, self._call(args, kwargs).new
        if hub.tracing is None:
            handle = self._handle(enqueue(hub, new, self.options), new)
        else:
            with hub.tracing.sending([new]) as (traced,):
                handle = self._handle(enqueue(hub, traced, self.options), new)
        handle._by_blocking = asyncio._get_running_loop() is not None
        return handle

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Hand the call to the queue; returns when it is durable."""
        hub, new = self._app.hub, self._call(args, kwargs).new
        if hub.tracing is None:
            return self._handle(await aenqueue(hub, new, self.options), new)
        with hub.tracing.sending([new]) as (traced,):
            return self._handle(await aenqueue(hub, traced, self.options), new)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The call as a value, checked, for `enqueue_many`, `chain`, `group` and `take`."""
        return self._call(args, kwargs)

    def using(self, **options: Unpack[CallOptions]) -> Self:
        """The same task with other options.

        `delay` (seconds) or `at` (aware datetime) say when; `deadline` raises its priority as it nears; when it
        `expires` before it has started, it is cancelled. `key` makes it idempotent for `window` (24 h; 0: while
        unfinished); with `replace`, a task that still waits under this key gets the new call instead, and with
        `debounce` it is put off as well, each time by so many seconds, `debounce_limit` in all. `after` names what
        must end first. `per` is the partition whose limits hold for it, `tenant` whose share of a fair queue it is
        charged to. `requires` names capabilities a worker must have; `block` waits that long for room in a full queue;
        `connection` enqueues inside your own transaction.
        """
        return type(self)(self._app, self.definition, make_options(self.options, options))

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call[R]:
        """The task to enqueue, everything checked."""
        hub, definition, options = self._app.hub, self.definition, self.options
        signature = definition.signature
        bound = signature.bind(args, kwargs)
        payload, placed = self._payload(bound)
        after, sources, said = options.after, options.sources, bound
        if placed is not None:
            after, sources, said = placed.after, placed.ends, {**placed.args, TAKE: placed.takes}
        context = Context.current_or_none()
        new = structs.replace(self._draft, id=options.id or hub.new_id(), args=payload)
        if context is not None:
            new = structs.replace(new, spec=pass_on(context, new.spec, options.headers))
        if options.varies or definition.per is not None or placed is not None:
            spec = structs.replace(
                new.spec,
                deadline=self._moment(options.deadline, options.deadline_in),
                expires_at=self._moment(options.expires_at, options.expires_in),
                partition=self._partition(bound),
                takes=placed is not None,
            )
            said_as = "" if options.key is None else signature.fingerprint(said)
            new = structs.replace(new, spec=spec, fingerprint=said_as, after=after)
        if not (options.replace or after):
            return Call(self, new)
        check_new(new)
        return Call(self, new, tuple(each for each in sources if isinstance(each, Call)))

    @cached_property
    def _draft(self) -> NewTask:
        """All that is the same for every call: copying it is far cheaper than making it each time."""
        its = self.definition
        if self.options.window is not None and self.options.key is None:
            raise InvalidOption("window needs a key: it says how long the key holds.")
        return self.options.draft(self._app.hub, its.name, its.queue, its.priority, its.requires)

    def _payload(self, bound: Mapping[str, Any]) -> tuple[bytes, Placed | None]:
        """The arguments as they are stored, and what is to be filled in."""
        signature, codec = self.definition.signature, self._app.hub.codec
        try:
            return signature.encode(bound, codec), None
        except PlaceholderMet:
            pass
        placed = place(bound, self.options.after, self.options.sources)
        return signature.encode_taking(placed.args, placed.takes, codec), placed

    def _moment(self, at: Instant | None, within: Duration | None) -> Instant | None:
        return at if within is None else self._app.hub.clock.now() + within

    def _partition(self, bound: Mapping[str, Any]) -> str | None:
        """What `per` names: given with the call, or the value of the parameter that the task declares."""
        per = self.definition.per
        if self.options.partition is not None or per is None:
            return self.options.partition
        value = bound[per] if per in bound else self.definition.signature.defaults[per]
        if isinstance(value, Placeholder):
            raise InvalidOption(f"{self.name} is limited per {per}, so that must be known now and can't be taken.")
        return None if value is None else label_of(value, f"{self.name} is limited per {per}, which")

    def _handle(self, answer: EnqueueAnswer, new: NewTask) -> Handle[R]:
        already = answer.outcome is not EnqueueOutcome.ENQUEUED
        return self._app._handle(answer.id, new.queue, self.definition, duplicate=already)


class AsyncTask(Task[P, R]):
    """A task whose function is async: calling it in place gives a coroutine."""

    @overload  # type: ignore[override]
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Running[R]: ...
    @overload
    def __call__(self, context: Context, /, *args: P.args, **kwargs: P.kwargs) -> Running[R]: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]  # as above
        return super().__call__(*args, **kwargs)


def make_task(app: Dibs, definition: TaskDefinition, options: Options) -> Task[..., Any]:
    kind = AsyncTask if iscoroutinefunction(definition.function) else Task
    return kind(app, definition, options)


def check_own(app: Dibs, task: Task[P, R]) -> Task[P, R]:
    """Refuse a task of another app: it would go into that one's store, or its own workers would not find it."""
    if task._app.hub.definitions is not app.hub.definitions:
        raise InvalidOption(
            f"task {task.name} is another app's: enqueue it by itself ({task.__name__}.enqueue(…)), or name it here, "
            f"app.remote({task.name!r}, queue={task.definition.queue!r})."
        )
    return task


def check_new(new: NewTask) -> None:
    """Checks that need the whole call."""
    if new.replace and new.spec.key is None:
        raise InvalidOption("replace and debounce need a key: it says which task is meant.")
    if new.replace and new.after:
        raise InvalidOption("a task that replaces another (replace, debounce) can't wait for others, so it can't take.")
    if any(edge.id == new.id for edge in new.after):
        raise InvalidOption(f"task {new.id} can't wait for itself.")


class Decorator(Protocol):
    """What `@app.task(…)` returns: it turns a function into a Task with its signature, without Context."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Running[R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Running[R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
