"""Blocking and async methods from one implementation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from dibs.runtime.hub import Hub

P = ParamSpec("P")
R = TypeVar("R")


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
