"""Calls that a type checker must accept. Checked by test_typing.py, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from dibs import Call, Context, Dibs, Handle

app = Dibs("memory://")


@app.task
def plain(number: int, text: str = "") -> str:
    return text * number


@app.task
async def coroutine(number: int) -> list[int]:
    return [number]


@app.task
def with_context(ctx: Context, number: int) -> float:
    return number / ctx.attempt


@app.task(queue="mail", priority="high", retries=5, timeout=timedelta(seconds=30))
async def with_both(ctx: Context, to: str, *, subject: str) -> None:
    ctx.logger.info("%s %s", to, subject)


def unmarked(number: int) -> None: ...


assert_type(plain.enqueue(1), Handle[str])
assert_type(plain.enqueue(1, text="x"), Handle[str])
assert_type(plain.using(priority=3, delay=5).enqueue(1, "x"), Handle[str])
assert_type(coroutine.enqueue(1), Handle[list[int]])
assert_type(with_context.enqueue(1), Handle[float])
assert_type(with_context.enqueue(number=1), Handle[float])
assert_type(with_both.enqueue("ada", subject="Hi"), Handle[None])
assert_type(plain.call(1), Call[str])
assert_type(coroutine.enqueue(1).result(timeout=5), list[int])
app.enqueue(plain, 1, text="x")
app.enqueue(unmarked, 1)
app.enqueue_many([plain.call(1), with_both.call("ada", subject="Hi")])


async def use() -> None:
    assert_type(await plain.aenqueue(1), Handle[str])
    assert_type(await with_both.aenqueue("ada", subject="Hi"), Handle[None])
    assert_type(await (await coroutine.aenqueue(1)), list[int])
    assert_type(await (await with_context.aenqueue(1)).aresult(timeout=5), float)
