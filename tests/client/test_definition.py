"""What is refused when a task is defined, and what a Task says that other libraries' tasks have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from dibs import Context, Dibs, Task
from dibs.errors import InvalidArguments, InvalidOption
from dibs.testing import Sandbox


@pytest.fixture
def app() -> Iterator[Dibs]:
    with Dibs("memory://") as app:
        yield app


def late(number: int, ctx: Context) -> None: ...


def by_name_only(*, ctx: Context) -> None: ...


def twice(ctx: Context, other: Context) -> None: ...


def many() -> Iterator[int]:
    yield 1


async def many_async() -> AsyncIterator[int]:
    yield 1


PIPED: dict[str, Any] = {"__name__": "<stdin>"}
exec("def piped(): ...", PIPED)


class Mail:
    def send(self, to: str) -> None: ...

    @classmethod
    def make(cls) -> None: ...

    @staticmethod
    def count(numbers: list[int]) -> int:
        return len(numbers)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (late, "takes its Context as 'ctx': it must be the first parameter"),
        (by_name_only, "it must be the first parameter"),
        (twice, "takes its Context as 'other': it must be the first parameter, and the only one"),
        (many, "many yields, so calling it runs nothing"),
        (many_async, "many_async yields"),
        (Mail.send, "Mail.send is a method, and a worker has no object"),
        (Mail().send, "Mail.send is a method"),
        (Mail.make, "Mail.make is a method"),
        (Mail, "made from a function, not from"),
        (lambda: 1, "<lambda>' can't be a task's name.*give name="),
        (PIPED["piped"], "'<stdin>.piped' can't be a task's name.*give name="),
    ],
)
def test_what_could_not_run_is_refused_at_once(app: Dibs, function: Callable[..., Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        app.task(function)


def test_names_for_what_has_none_and_static_methods_are_fine(app: Dibs) -> None:
    task = app.task(name="double")(lambda number: 2 * number)
    with Sandbox(app, eager=True):
        assert task.enqueue(2).result() == 4
        assert app.task(Mail.count).enqueue([1, 2]).result() == 2


def test_a_lifespan_that_is_not_async_is_refused_with_the_right_spelling(app: Dibs) -> None:
    with pytest.raises(InvalidOption, match=r"Write async def many\(\) for def many\(\)"):
        app.lifespan(many)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="an async generator function"):
        app.lifespan(Mail().send)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("delay", r"write send.enqueue\(…\)"),
        ("send", r"write send.enqueue\(…\)"),
        ("apply_async", r"write send.using\(delay=…, priority=…\).enqueue\(…\)"),
        ("enqueue_call", "options go into using"),
        ("schedule", r"using\(delay=seconds\).*@app.schedule"),
        ("s", r"write send.call\(…\)"),
        ("retry", r"raise dibs.Retry\(after=seconds\)"),
        ("frobnicate", "a Task has no 'frobnicate'$"),
    ],
)
def test_what_other_libraries_call_it_says_what_to_write(app: Dibs, name: str, words: str) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(AttributeError, match=words):
        getattr(send, name)
    assert not hasattr(send.using(priority=3), name)


def test_a_task_with_a_context_called_in_place(app: Dibs) -> None:
    @app.task
    def tell(ctx: Context, number: int = 1) -> tuple[str, int]:
        return ctx.name, number

    @app.task
    async def outer(ctx: Context) -> list[tuple[str, int]]:
        return [tell(5), tell(ctx, 6)]

    with pytest.raises(InvalidArguments, match="takes a Context first, and no task is running here"):
        tell(number=1)
    with Sandbox(app, eager=True):
        assert outer.enqueue().result() == [(outer.name, 5), (outer.name, 6)]
        assert tell.definition.function is tell.__wrapped__


def test_an_async_task_called_in_place_gives_a_coroutine(app: Dibs) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    assert asyncio.run(double.using(priority=4)(3)) == 6


def test_a_task_of_another_app_is_refused(app: Dibs) -> None:
    with Dibs("memory://") as other:

        @other.task(queue="mail")
        def foreign() -> None: ...

        def own(task: Task[[], None]) -> list[Callable[[], object]]:
            return [
                lambda: app.enqueue(task),
                lambda: app.enqueue_many([task.call()]),
                lambda: app.enqueue_workflow(task.call()),
            ]

        for enqueue in own(foreign):
            with pytest.raises(InvalidOption, match=r"is another app's.*app.remote\('.*foreign', queue='mail'\)"):
                enqueue()


def test_bytes_need_an_annotation(app: Dibs) -> None:
    @app.task
    def untyped(data) -> None: ...  # type: ignore[no-untyped-def]

    @app.task
    def typed(data: bytes) -> int:
        return len(data)

    with pytest.raises(InvalidArguments, match=r"annotate that parameter \(data: bytes\)"):
        untyped.enqueue(b"abc")
    with Sandbox(app, eager=True):
        assert typed.enqueue(b"abc").result() == 3


def test_a_window_needs_a_key(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidOption, match="window needs a key"):
        work.using(window=5).enqueue()
    assert work.using(window=5).using(key="k").enqueue().id
