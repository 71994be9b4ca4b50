"""Tasks by their name, in a program that has not their code."""

from __future__ import annotations

import asyncio

import pytest

from dibs import Dibs, State, take
from dibs.errors import IdempotencyConflict, InvalidArguments, InvalidOption, UsageError

from .conftest import TIMEOUT, MakeApp


@pytest.fixture
def url(url: str, request: pytest.FixtureRequest) -> str:
    if url == "memory://":
        pytest.skip("two apps share a store")
    return url


def test_a_task_by_its_name_runs_where_its_code_is(make_app: MakeApp) -> None:
    worker, web = make_app(), make_app()

    @worker.task(name="mail.send", queue="mail")
    def send(to: str, copies: int = 1) -> list[str]:
        return [to] * copies

    remote = web.remote("mail.send", queue="mail")
    handle = remote.using(priority="high", metadata={"order": 7}).enqueue(to="ada", copies=2)
    with worker.worker():
        assert handle.result(TIMEOUT) == ["ada", "ada"]
        assert asyncio.run(awaited(remote)) == ["bob"]
    info = handle.refresh()
    assert (info.queue, info.priority, info.metadata) == ("mail", 70, {"order": 7})
    assert worker.handle(handle.id).result(TIMEOUT) == ["ada", "ada"]
    assert repr(remote) == "<Task mail.send>"


async def awaited(remote: object) -> object:
    return await (await remote.aenqueue(to="bob"))  # type: ignore[attr-defined]


def test_arguments_go_by_name_and_the_worker_checks_them(make_app: MakeApp) -> None:
    worker, web = make_app(), make_app()

    @worker.task(name="add", retries=0)
    def add(a: int, b: int) -> int:
        return a + b

    remote = web.remote("add")
    with pytest.raises(InvalidArguments, match="must be given by name"):
        remote.enqueue(1, 2)
    with pytest.raises(UsageError, match="the code of add is not here"):
        remote(a=1)
    with pytest.raises(InvalidOption, match="a task's name must be"):
        web.remote("no name")
    wrong = remote.enqueue(a="one", b=2)
    calls = [remote.call(a=1, b=1), remote.call(a=2, b=2)]
    many = web.enqueue_many(calls)
    first = remote.call(a=1, b=2)
    flow = web.enqueue_workflow(remote.call(a=10, b=take(first)))
    with worker.worker():
        web.wait([wrong, *many], TIMEOUT)
        assert [handle.result() for handle in many] == [2, 4]
        assert flow.wait(TIMEOUT).state == "completed"
    assert wrong.refresh().state is State.DEAD


def test_a_key_means_the_same_by_name_if_all_arguments_are_given(make_app: MakeApp) -> None:
    worker, web = make_app(), make_app()

    @worker.task(name="add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    mine = add.using(key="k").enqueue(1)
    assert web.remote("add").using(key="k").enqueue(a=1, b=1).id == mine.id
    with pytest.raises(IdempotencyConflict):
        web.remote("add").using(key="k").enqueue(a=1)


def test_a_schedule_of_a_task_by_its_name(app: Dibs) -> None:
    info = app.schedules.set("nightly", app.remote("report.build", queue="reports"), cron="@daily", kwargs={"day": 1})
    assert (info.task, info.queue, info.args, info.cron) == ("report.build", "reports", {"day": 1}, "0 0 * * *")
