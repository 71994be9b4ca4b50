"""A task as application code holds it: callable, enqueueable, with options that never collide with arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar
from uuid import UUID

from msgspec import Struct

from dibs.client.handle import Handle
from dibs.client.options import Options, Span, make_options
from dibs.client.producer import enqueue, enqueue_async
from dibs.core.task import NewTask
from dibs.engines.base import EnqueueAnswer, EnqueueOutcome
from dibs.runtime.definition import TaskDefinition
from dibs.worker.context import Context

if TYPE_CHECKING:
    from dibs.client.app import Dibs

__all__ = ["Call", "Task"]

P = ParamSpec("P")
R = TypeVar("R")


class Call(Struct, Generic[R], frozen=True):
    """A call that has not been enqueued yet: for `enqueue_many`."""

    task: Task[..., R]
    new: NewTask


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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function here and now, as if it had no decorator."""
        return self.definition.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Hand the call to the queue; returns when it is durable."""
        new = self._new(args, kwargs)
        return self._handle(enqueue(self._app.hub, new, self.options), new)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Hand the call to the queue; returns when it is durable."""
        new = self._new(args, kwargs)
        hub = self._app.hub
        if self.options.connection is not None:
            return self._handle(enqueue(hub, new, self.options), new)
        return self._handle(await hub.runner.arun(enqueue_async(hub, new, self.options)), new)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The call as a value, checked, for `enqueue_many`."""
        return Call(self, self._new(args, kwargs))

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | str | None = None,
        delay: Span | None = None,
        at: datetime | None = None,
        deadline: datetime | Span | None = None,
        retries: int | None = None,
        timeout: Span | None = None,
        lease: Span | None = None,
        key: str | None = None,
        window: Span | None = None,
        requires: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | UUID | None = None,
        block: Span | None = None,
        connection: Any = None,
    ) -> Task[P, R]:
        """The same task with other options.

        `delay` (seconds) or `at` (aware datetime) say when; `deadline` raises its priority as it nears; `key` makes
        it idempotent for `window` (24 h; 0: while unfinished); `requires` names capabilities a worker must have;
        `block` waits that long for room in a full queue; `connection` enqueues inside your own transaction.
        """
        given = {
            "queue": queue,
            "priority": priority,
            "delay": delay,
            "at": at,
            "deadline": deadline,
            "retries": retries,
            "timeout": timeout,
            "lease": lease,
            "key": key,
            "window": window,
            "requires": requires,
            "metadata": metadata,
            "headers": headers,
            "id": id,
            "block": block,
            "connection": connection,
        }
        return Task(self._app, self.definition, make_options(self.options, given))

    def _new(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewTask:
        """The task to enqueue, everything checked."""
        hub, definition, options = self._app.hub, self.definition, self.options
        signature = definition.signature
        bound = signature.bind(args, kwargs)
        payload = signature.encode(bound, hub.codec)
        context = Context.current_or_none()
        headers = options.headers
        if headers is None:
            headers = {} if context is None else dict(context.headers)
        deadline = options.deadline
        if options.deadline_in is not None:
            deadline = hub.clock.now() + options.deadline_in
        return NewTask(
            id=options.id or hub.new_id(),
            queue=options.queue or definition.queue,
            name=definition.name,
            args=payload,
            priority=definition.priority if options.priority is None else options.priority,
            delay=options.delay,
            at=options.at,
            deadline=deadline,
            options=options.options,
            app_options=hub.defaults,
            key=options.key,
            window=options.window,
            fingerprint="" if options.key is None else signature.fingerprint(bound),
            requires=definition.requires if options.requires is None else options.requires,
            metadata=options.metadata,
            headers=headers,
            parent=None if context is None else context.id,
        )

    def _handle(self, answer: EnqueueAnswer, new: NewTask) -> Handle[R]:
        return self._app._handle(
            answer.id, new.queue, self.definition, duplicate=answer.outcome is EnqueueOutcome.DUPLICATE
        )
