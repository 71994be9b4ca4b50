"""The layers around every run, composed once. They are also the error hook: they see what the task raises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dibs.attempt.context import Context

__all__ = ["Middleware", "Next", "compose"]

Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, Next], Awaitable[Any]]


def compose(middleware: Sequence[Middleware]) -> Middleware | None:
    """One callable for all layers, outermost first; None when there are none."""
    composed: Middleware | None = None
    for layer in reversed(middleware):
        composed = layer if composed is None else around(layer, composed)
    return composed


def around(layer: Middleware, inner: Middleware) -> Middleware:
    def run(context: Context, innermost: Next) -> Awaitable[Any]:
        return layer(context, lambda: inner(context, innermost))

    return run
