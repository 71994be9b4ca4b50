"""Bring your own loop: claim, extend, settle."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from dibs import Dibs, State
from dibs.core.times import when
from dibs.errors import InvalidOption, LeaseLost
from dibs.testing import ManualClock

from .conftest import TIMEOUT


@pytest.fixture
def shop(still: Dibs) -> Dibs:
    @still.task(name="work", retries=1)
    def work(number: int = 0) -> int: ...

    return still


def add(app: Dibs, **options: object) -> str:
    return app.task_named("work").using(**options).enqueue(7).id  # type: ignore[arg-type]


def test_a_claim_tells_what_to_do(shop: Dibs, dibs_clock: ManualClock) -> None:
    task = add(shop, lease=45)
    (claim,) = shop.claim()
    assert (claim.id, claim.name, claim.queue, claim.args, claim.attempt) == (task, "work", "default", {"number": 7}, 1)
    assert claim.expires_at == dibs_clock.time + timedelta(seconds=45)
    assert repr(claim) == f"<Claim work {task} lease 1>"
    assert shop.settle(claim, result={"n": 1}) is True
    assert shop.settle(claim, result={"n": 1}) is True  # a repeat, after a lost reply
    info = shop.tasks.get(task)
    assert (info.state, info.result) == (State.COMPLETED, {"n": 1})


def test_a_report_may_carry_metadata(shop: Dibs) -> None:
    task = add(shop, metadata={"customer": 1})
    (claim,) = shop.claim()
    with pytest.raises(InvalidOption, match="metadata must be"):
        shop.settle(claim, metadata=["batch"])  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="more than"):
        shop.settle(claim, metadata={"batch": "x" * 1_000_000})
    assert shop.settle(claim, result=1, metadata={"batch": 7}) is True
    info = shop.tasks.get(task)
    assert (info.state, info.result, info.metadata) == (State.COMPLETED, 1, {"customer": 1, "batch": 7})


def test_a_claim_may_choose(shop: Dibs) -> None:
    add(shop, queue="a", requires=["gpu"])
    assert shop.claim(["a", "b"]) == []
    assert shop.claim(["a"], capabilities=["gpu"], names=["else"]) == []
    (claim,) = shop.claim(["a"], capabilities=["gpu"], names=["work"], lease=5)
    assert claim.task.lease_expires_at - claim.task.claimed_at == 5_000_000


def test_every_outcome(shop: Dibs, dibs_clock: ManualClock) -> None:
    states = {}
    for outcome, after in [
        ("failed", 9),
        ("permanent", None),
        ("cancelled", None),
        ("released", None),
        ("snoozed", 60),
    ]:
        task = add(shop, queue=outcome)
        (claim,) = shop.claim([outcome])
        assert shop.settle(claim, outcome, after=after)
        info = shop.tasks.get(task)
        states[outcome] = (
            info.state,
            info.failed_attempts,
            info.due_at and (info.due_at - dibs_clock.time).total_seconds(),
        )
    assert states == {
        "failed": (State.RETRYING, 1, 9.0),
        "permanent": (State.DEAD, 1, None),
        "cancelled": (State.CANCELLED, 0, None),
        "released": (State.PENDING, 0, None),
        "snoozed": (State.SCHEDULED, 0, 60.0),
    }


def test_retries_run_out(shop: Dibs, dibs_clock: ManualClock) -> None:
    task = add(shop)
    shop.settle(shop.claim()[0], "failed", error="first")
    due = shop.tasks.get(task).due_at
    assert due is not None
    assert 0.9 <= (due - dibs_clock.time).total_seconds() <= 1.1
    dibs_clock.advance(2)
    shop.settle(shop.claim()[0], "failed", error="second")
    info = shop.tasks.get(task)
    assert (info.state, info.reason, info.error and info.error.message) == (State.DEAD, "exhausted", "second")


def test_a_lost_lease_can_do_nothing(shop: Dibs, dibs_clock: ManualClock) -> None:
    task = add(shop)
    (zombie,) = shop.claim()
    dibs_clock.advance(31)
    (heir,) = shop.claim()
    assert (heir.id, heir.lease.number) == (task, 2)
    assert shop.settle(zombie, result=1) is False
    with pytest.raises(LeaseLost, match=f"lease 1 of task {task} is lost: another worker may run it now"):
        shop.extend(zombie)
    shop.settle(heir, result=2)
    assert shop.tasks.get(task).result == 2
    assert shop.stats().counters["refused_writes"] == 1


def test_extending_keeps_a_lease(shop: Dibs, dibs_clock: ManualClock) -> None:
    add(shop)
    (claim,) = shop.claim()
    for _ in range(3):
        dibs_clock.advance(20)
        shop.extend(claim, by=30)
    assert claim.expires_at == when(dibs_clock.now() + 30_000_000)
    assert shop.claim() == []
    assert shop.settle(claim)


def test_a_claim_waits_for_work(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    asked = threading.Event()
    claims: list[str] = []

    def consume() -> None:
        async def use() -> None:
            waiting = asyncio.ensure_future(app.aclaim(wait=TIMEOUT))
            asked.set()
            claims.extend(claim.id for claim in await waiting)

        asyncio.run(use())

    thread = threading.Thread(target=consume)
    thread.start()
    assert asked.wait(TIMEOUT)
    handle = work.enqueue()
    thread.join(TIMEOUT)
    assert claims == [handle.id]


def test_a_claim_waits_for_a_delay(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    handle = work.using(delay=0.02).enqueue()
    assert [claim.id for claim in app.claim(wait=TIMEOUT)] == [handle.id]


def test_a_claim_that_finds_nothing_is_empty(app: Dibs) -> None:
    assert app.claim(wait=0.01) == []


def test_what_is_wrong_is_said(shop: Dibs) -> None:
    add(shop)
    (claim,) = shop.claim()
    with pytest.raises(InvalidOption) as caught:
        shop.settle(claim, "done")
    assert str(caught.value) == (
        "outcome must be one of completed, failed, permanent, cancelled, released, snoozed, not 'done'."
    )
    with pytest.raises(InvalidOption, match="limit must be a whole number"):
        shop.claim(limit=0)
    with pytest.raises(InvalidOption, match="by must not be negative"):
        shop.extend(claim, by=-1)


def test_arguments_that_are_no_json_cost_no_other_task(tmp_path: Path) -> None:
    with Dibs(f"sqlite:///{tmp_path}/x.db", retry_base=0) as app:
        work = app.task(name="work")(lambda n: n)
        handles = [work.enqueue(n) for n in range(3)]
        with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
            connection.execute("UPDATE dibs_tasks SET args = '{' WHERE id = ?", (handles[1].id,))
            connection.commit()
        assert [claim.args["n"] for claim in app.claim(["default"], limit=3)] == [0, 2]
        assert app.tasks.get(handles[1].id).state is State.RETRYING


def test_a_run_of_24_hours_is_told_that_it_is_not_extended(shop: Dibs) -> None:
    add(shop)
    (claim,) = shop.claim()
    shop.extend(claim)
    assert not claim.exhausted
    claim.claimed -= 24 * 3600
    shop.extend(claim)
    assert (claim.exhausted, claim.cancelled) == (True, False)
