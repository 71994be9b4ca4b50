"""Calls that a type checker must refuse, one per marked line. Checked by test_typing.py, never run."""

from __future__ import annotations

from dibs import Context, Dibs

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


@app.task(queue="mail")
async def with_both(ctx: Context, to: str, *, subject: str) -> None: ...


def unmarked(number: int) -> None: ...


plain.enqueue()  # wrong: the argument is missing
plain.enqueue("one")  # wrong: not a number
plain.enqueue(1, txet="x")  # wrong: misspelt
plain.enqueue(1, priority=90)  # wrong: options go into using()
plain.using(prioritty=90).enqueue(1)  # wrong: no such option
plain.using(priority=3.5)  # wrong: a whole number or a name
coroutine.enqueue("one")  # wrong: not a number
with_context.enqueue("one")  # wrong: not a number
with_context.enqueue()  # wrong: the argument is missing
with_both.enqueue("ada")  # wrong: the subject is missing
with_both.call(5, subject="Hi")  # wrong: not a text
app.enqueue(unmarked, "one")  # wrong: not a number
app.task(queu="mail")  # wrong: no such option
app.queues.set("mail", agin=5)  # wrong: no such setting


async def use() -> None:
    await plain.aenqueue("one")  # wrong: not a number
    await with_both.aenqueue("ada", "Hi")  # wrong: by name only
    text: str = await (await coroutine.aenqueue(1))  # wrong: it gives a list
    del text
