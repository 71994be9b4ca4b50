"""Calls that a type checker must refuse, one per marked line. Checked by test_typing.py, never run."""

from __future__ import annotations

from dibs import Context, Dibs, chain, group, take

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
app.task(executor="threads")  # wrong: no such executor
app.task(backoff="often")  # wrong: a list or a function
app.task(keep_result="no")  # wrong: true or false
plain.using(priority="hihg")  # wrong: no such name
plain("one")  # wrong: not a number
with_context("one")  # wrong: not a number
app.queues.set("mail", policy="tires")  # wrong: no such policy
app.queue("mail", polcy="tiers")  # wrong: no such setting
app.schedule("@daily", catch_up="al")  # wrong: skip, one or all
app.schedule(every=60, overlap="skp")  # wrong: allow or skip
plain.delay(1)  # wrong: a task has no such method
app.queues.set("mail", agin=5)  # wrong: no such setting
app.queues.set("mail", fair="yes")  # wrong: true or false
app.schedule(evry=60)  # wrong: no such option
app.schedules.set("early", plain, corn="0 6 * * *")  # wrong: no such option
app.schedule(every=60, args=[1])(plain).enqueue("one")  # wrong: not a number

text = plain.call(1)
plain.call(take(text))  # wrong: it gives a text
plain.call(take(group(text)))  # wrong: it gives a list
plain.call(take(chain(coroutine.call(1), text)))  # wrong: the last one gives a text
take(plain)  # wrong: a task is no call
chain(text, plain)  # wrong: a task is no call
group(1, 2)  # wrong: numbers are no calls
app.enqueue_workflow(plain)  # wrong: a task is no call
text.otherwise("rerun")  # wrong: no such rule
plain.using(after=[1])  # wrong: numbers can't be waited for
plain.using(per=["a"])  # wrong: a text or a number
number: int = app.enqueue_workflow(text)[text].result()  # wrong: it gives a text


async def use() -> None:
    nothing: int = coroutine(1)  # wrong: a coroutine
    items: str = await coroutine(1)  # wrong: it gives a list
    await plain.aenqueue("one")  # wrong: not a number
    await with_both.aenqueue("ada", "Hi")  # wrong: by name only
    text: str = await (await coroutine.aenqueue(1))  # wrong: it gives a list
    del text, nothing, items
