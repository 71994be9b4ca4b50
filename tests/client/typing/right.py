"""Calls that a type checker must accept. Checked by test_typing.py, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from dibs import Call, Context, Dibs, Handle, chain, group, take
from dibs.client.dependencies import Link
from dibs.client.flow import Chain, Group
from dibs.worker import TaskEnd

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
assert_type(plain(1), str)
assert_type(with_context(1), float)
assert_type(plain.using(priority="high")(1), str)
app.enqueue(plain, 1, text="x")
app.enqueue(unmarked, 1)
app.enqueue_many([plain.call(1), with_both.call("ada", subject="Hi")])

text = plain.call(1)
numbers = coroutine.call(1)
assert_type(take(text), str)
assert_type(take(numbers), list[int])
assert_type(group(text, plain.call(2)), Group[str])
assert_type(group(plain.call(number) for number in range(3)), Group[str])
assert_type(group([plain.call(1)]), Group[str])
assert_type(take(group(text)), list[str])
assert_type(take(group(group(text))), list[list[str]])
assert_type(chain(text, with_both.call("ada", subject="Hi"), numbers), Chain[list[int]])
assert_type(chain(text, group(text)), Chain[list[str]])
assert_type(take(chain(text, group(text))), list[str])
assert_type(take(plain.enqueue(1)), str)
with_both.call(take(text), subject=take(plain.enqueue(1)))
with_context.call(len(take(numbers)))
workflow = app.enqueue_workflow(chain(text, group(numbers)), name="both")
assert_type(workflow[text], Handle[str])
assert_type(workflow[numbers].result(), list[int])
assert_type(text.if_failed(), Link)
plain.using(after=text).enqueue(1)
plain.using(after=[text, plain.enqueue(1).otherwise("run"), group(text), "0190163d-8694-739b-aea5-966c26f8ad91"])
plain.using(per=5, tenant="acme", expires=timedelta(hours=1), key="k", debounce=5, debounce_limit=60)


@app.task(per="customer")
def per_customer(customer: int) -> None: ...


@app.schedule("0 9 * * *", tz="Europe/Zurich", kwargs={"number": 1})
@app.schedule(every=timedelta(minutes=5), name="often", args=[1])
@app.task(queue="mail")
def scheduled(ctx: Context, number: int) -> str:
    return str(number)


@app.schedule(every=60, jitter=5, catch_up="all", overlap="skip")
async def made_a_task(ctx: Context) -> float:
    return ctx.attempt


assert_type(scheduled.enqueue(1), Handle[str])
assert_type(made_a_task.enqueue(), Handle[float])
app.schedules.set("early", scheduled.using(priority=90), cron="0 6 * * *", kwargs={"number": 1})
app.queues.set("mail", per_task={"send": 3, "report": {"rate": 5}}, per_partition=1, fair=True, weights={"acme": 2})


app.queue("mail", policy="tiers", max_concurrent=3)
app.remote("mail.send", queue="mail").using(priority="low").enqueue(to="ada")
app.schedule("@daily")(plain)


@app.on_success
@app.on_failure
def tell(end: TaskEnd) -> None: ...


@app.task(executor="process", keep_result=False, on_failure=tell, backoff=[1, timedelta(minutes=1)])
def careful(number: int) -> None: ...


@app.task(backoff=lambda attempt: 2.0**attempt)
def patient(ctx: Context) -> int:
    ctx.snooze(60)


def wait(attempt: int, error: BaseException) -> float:
    return attempt if isinstance(error, OSError) else 0


app.task(backoff=wait)(unmarked)


async def use() -> None:
    assert_type(await coroutine(1), list[int])
    assert_type(await with_both("ada", subject="Hi"), None)
    async with app.worker() as worker:
        worker.stats()
    assert_type(await plain.aenqueue(1), Handle[str])
    assert_type(await with_both.aenqueue("ada", subject="Hi"), Handle[None])
    assert_type(await (await coroutine.aenqueue(1)), list[int])
    assert_type(await (await with_context.aenqueue(1)).aresult(timeout=5), float)
    async with Dibs("memory://") as other:
        assert_type(other, Dibs)
    await other.aclose()
