"""The layers around every run, composed once. They are also the error hook: they see what the task raises.

Async functions run on the loop, around everything else. Generator functions run where the task's function runs: in its
thread, in its child process, or on the loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from dibs.attempt.context import Context
from dibs.core.options import shown
from dibs.errors import InvalidOption

__all__ = ["Layer", "Middleware", "Next", "check_middleware", "compose", "layers_in", "within"]

Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, Next], Awaitable[Any]]
Layer = Callable[[Context], Iterator[None]]


def check_middleware(layer: object) -> None:
    """Refuse what is neither an async function nor a generator function."""
    if is_kind(layer, isasyncgenfunction):
        advice = "is an async generator: leave the async out (it runs where the task runs), or await run() in it"
    elif is_kind(layer, iscoroutinefunction) or is_kind(layer, isgeneratorfunction):
        return
    else:
        advice = "is neither"
    raise InvalidOption(
        "a middleware is `async def layer(ctx, run): return await run()`, or a generator function "
        f"`def layer(ctx): …; yield; …`; {shown(layer)} {advice}."
    )


def is_kind(layer: object, test: Callable[[Any], bool]) -> bool:
    return test(layer) or (callable(layer) and test(type(layer).__call__))


def is_generator(layer: object) -> bool:
    return is_kind(layer, isgeneratorfunction)


def compose(middleware: Sequence[Middleware | Layer]) -> Middleware | None:
    """One callable for all layers that run on the loop, outermost first; None when there are none."""
    composed: Middleware | None = None
    for layer in reversed(middleware):
        if not is_generator(layer):
            outer: Middleware = layer  # type: ignore[assignment]  # checked when it was added
            composed = outer if composed is None else around(outer, composed)
    return composed


def around(layer: Middleware, inner: Middleware) -> Middleware:
    def run(context: Context, innermost: Next) -> Awaitable[Any]:
        return layer(context, lambda: inner(context, innermost))

    return run


def layers_in(middleware: Sequence[Middleware | Layer]) -> list[Callable[[Context], Any]]:
    """The layers that run where the task's function runs, outermost first, as context managers."""
    return [contextmanager(layer) for layer in middleware if is_generator(layer)]  # type: ignore[arg-type]


def within(layers: Sequence[Callable[[Context], Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside these layers: entered just before it is called, left with what it raised."""
    if iscoroutinefunction(function):

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with entered(layers):
                return await function(*args, **kwargs)

        return call_async

    def call(*args: Any, **kwargs: Any) -> Any:
        with entered(layers):
            return function(*args, **kwargs)

    return call


def entered(layers: Sequence[Callable[[Context], Any]]) -> ExitStack:
    """All layers, entered for the current task."""
    context = Context.current()
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(layer(context))
        return stack.pop_all()
