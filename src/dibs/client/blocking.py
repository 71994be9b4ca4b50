"""Blocking and async methods from one implementation, and what those that administer a store share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from dibs.core.times import Instant
from dibs.runtime.hub import Hub

P = ParamSpec("P")
R = TypeVar("R")


class Admin:
    """Reads and changes one kind of thing in the store."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    @property
    def _now(self) -> Instant | None:
        return self.hub.clock.store_now()

    async def _ask(self, work: Coroutine[Any, Any, R]) -> R:
        """The answer to a verb of the engine, on the app's own loop."""
        return await self.hub.runner.arun(work)


class HasHub(Protocol):
    @property
    def hub(self) -> Hub: ...


S = TypeVar("S", bound=HasHub)


def blocking(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]], waits: str = ""
) -> Callable[Concatenate[S, P], R]:
    """The blocking twin of an async method: ``get = blocking(aget)``.

    `waits` names the argument that lets it wait for other callers' work: these must then be able to use the loop.
    """

    @wraps(method)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.get(waits):
            self.hub.runner.serve()
        return self.hub.runner.run(method(self, *args, **kwargs))

    run.__name__ = method.__name__.removeprefix("a")
    run.__doc__ = f"{(method.__doc__ or '').rstrip()}\n\nBlocks; `{method.__name__}` is the async form."
    return run
