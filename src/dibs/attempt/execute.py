"""One attempt at a task: prepares its arguments, calls it inside the middleware, and encodes what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dibs.attempt import outcome
from dibs.attempt.context import CURRENT, Context, Link
from dibs.attempt.middleware import compose, layers_in, within
from dibs.attempt.payloads import arguments
from dibs.core.task import LeasedTask, Settlement
from dibs.errors import DibsError
from dibs.runtime.definition import TaskDefinition
from dibs.runtime.hub import Hub


class TaskRunner:
    """Runs the tasks of one app in this process, inside its middleware and with what its lifespan gave (`state`)."""

    def __init__(self, hub: Hub, state: Any = None) -> None:
        self._hub = hub
        self._middleware = compose(hub.middleware)
        self._layers = layers_in(hub.middleware)
        self._within: dict[str, Callable[..., Any]] = {}
        self.state = state

    def function_of(self, definition: TaskDefinition) -> Callable[..., Any]:
        """The task's function, inside the middleware that runs where the function does."""
        if not self._layers:
            return definition.function
        found = self._within.get(definition.name)
        if found is None:
            found = self._within[definition.name] = within(self._layers, definition.function)
        return found

    async def run(
        self,
        link: Link,
        definition: TaskDefinition,
        call: Callable[..., Awaitable[Any]],
        json: bytes | None = None,
        unready: Callable[[LeasedTask, DibsError], Settlement] = outcome.unready,
    ) -> Settlement:
        """Make one attempt. What this raises was raised by the task.

        `call` calls the task's function, in the thread where it belongs. `json` are the arguments, if they have been
        prepared elsewhere.
        """
        task = link.task
        context = Context(link, self.state, self._hub)
        CURRENT.set(context)
        try:
            if json is None:
                json = await arguments(self._hub, task)
            args, kwargs = definition.signature.decode(json)
        except DibsError as error:
            return unready(task, error)
        link.begin()
        if definition.takes_context:
            args.insert(0, context)
        if self._middleware is None:
            value = await call(*args, **kwargs)
        else:
            value = await self._middleware(context, lambda: call(*args, **kwargs))
        return outcome.returned(task, definition, value, self._hub.codec)
