"""Middleware that runs where the task runs: a generator function, entered and left around the task's function."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from worker_support import drain

from dibs import Context, Dibs
from dibs.attempt.middleware import Next
from dibs.errors import InvalidOption


def test_it_runs_in_the_thread_of_the_task(app: Dibs) -> None:
    seen: dict[str, list[Any]] = {}

    @app.middleware
    def layer(ctx: Context) -> Iterator[None]:
        seen[ctx.name] = [threading.current_thread()]
        yield
        seen[ctx.name].append(threading.current_thread())

    @app.task(name="in_thread")
    def in_thread() -> None:
        seen["in_thread"].append(threading.current_thread())

    @app.task(name="on_loop")
    async def on_loop() -> None:
        await asyncio.sleep(0)
        seen["on_loop"].append(threading.current_thread())

    in_thread.enqueue()
    on_loop.enqueue()
    drain(app)
    names = {task: {thread.name.rstrip("0123456789") for thread in threads} for task, threads in seen.items()}
    assert names == {"in_thread": {"dibs-task-"}, "on_loop": {"dibs-loop"}}
    assert [len(threads) for threads in seen.values()] == [3, 3]
    assert all(len(set(threads)) == 1 for threads in seen.values())


def test_errors_are_thrown_into_it_from_the_inside_out(app: Dibs) -> None:
    said: list[str] = []

    @app.middleware
    async def outermost(ctx: Context, run: Next) -> Any:
        try:
            return await run()
        except ValueError as error:
            said.append(f"outermost {error}")
            raise

    @app.middleware
    def outer(ctx: Context) -> Iterator[None]:
        try:
            yield
        except LookupError as error:
            said.append(f"outer {error}")
            raise ValueError("replaced") from error

    @app.middleware
    def inner(ctx: Context) -> Iterator[None]:
        try:
            yield
        finally:
            said.append("inner")

    @app.task(retries=0)
    def fails() -> None:
        raise LookupError("gone")

    handle = fails.enqueue()
    drain(app)
    assert said == ["inner", "outer gone", "outermost replaced"]
    error = handle.refresh().error
    assert error is not None
    assert (error.type, error.message) == ("ValueError", "replaced")


def test_an_error_of_the_layer_itself_is_a_failed_attempt(app: Dibs) -> None:
    ran = []

    @app.middleware
    def layer(ctx: Context) -> Iterator[None]:
        raise LookupError("no connection")
        yield

    @app.task(retries=0)
    def works() -> None:
        ran.append(1)

    handle = works.enqueue()
    drain(app)
    assert (handle.refresh().state, ran) == ("dead", [])


def test_it_runs_in_the_child_process() -> None:
    import layered_app

    handle, loop = layered_app.where.enqueue(), layered_app.runs_a_loop.enqueue()
    drain(layered_app.app)
    layer, task = handle.result(timeout=20)
    assert layer == task != os.getpid()
    assert loop.result(timeout=20) == "no loop here"


async def async_generator(ctx: Context) -> AsyncIterator[None]:
    yield


def plain(ctx: Context, run: Next) -> Any:
    return run()


@pytest.mark.parametrize(("layer", "words"), [(async_generator, "leave the async out"), (plain, "neither"), (3, "3")])
def test_other_kinds_are_refused_at_definition(app: Dibs, layer: Any, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        app.middleware(layer)
    assert app.hub.middleware == []


def test_objects_can_be_layers(app: Dibs) -> None:
    class Counts:
        count = 0

        def __call__(self, ctx: Context) -> Iterator[None]:
            self.count += 1
            yield

    layer = app.middleware(Counts())

    @app.task
    def works() -> None: ...

    works.enqueue()
    drain(app)
    assert layer.count == 1
