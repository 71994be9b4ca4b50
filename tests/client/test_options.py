"""Expiry, partitions, tenants, replacing and debouncing."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from dibs import Context, Dibs, Filter, State
from dibs.client.elsewhere import OF_OPTIONS
from dibs.core.task import TaskRecord
from dibs.errors import IdempotencyConflict, InvalidOption, RateLimited
from dibs.testing import ManualClock

from .conftest import TIMEOUT, MakeApp


def test_a_task_expires_at_a_time_or_after_one(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def work() -> None: ...

    at = dibs_clock.time + timedelta(hours=2)
    assert work.using(expires=at).enqueue().refresh().expires_at == at
    handle = work.using(expires=60).enqueue()
    assert handle.refresh().expires_at == dibs_clock.time + timedelta(minutes=1)
    assert work.using(expires=60).using(expires=at).enqueue().refresh().expires_at == at, "the last one counts"
    dibs_clock.advance(61)
    assert [claim.id for claim in still.claim(limit=1)] != [handle.id]
    assert (handle.refresh().state, handle.refresh().reason) == (State.CANCELLED, "expired")


def test_the_expiry_can_be_edited(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def work() -> None: ...

    handle = work.enqueue()
    at = dibs_clock.time + timedelta(hours=1)
    assert still.tasks.edit(handle.id, expires=at)
    assert not still.tasks.edit(handle.id, expires=at)
    assert handle.refresh().expires_at == at


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expires": 10, "delay": 10}, "expire before"),
        ({"expires": 0}, "expire before"),
        (
            {"expires": datetime(2030, 1, 1, tzinfo=UTC), "at": datetime(2030, 1, 2, tzinfo=UTC)},
            "expire before",
        ),
        ({"expires": -1}, "expires must not be negative"),
        ({"expires": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"per": True}, "per must be a text"),
        ({"per": ""}, "per must be a text of 1 to 200"),
        ({"per": ["a"]}, "per must be a text"),
        ({"tenant": "x" * 201}, "tenant must be a text of 1 to 200"),
        ({"tenant": "a\nb"}, "tenant must be a text"),
        ({"debounce": 0, "key": "k"}, "debounce must be more than 0"),
        ({"debounce": 5, "delay": 5, "key": "k"}, "delay and debounce both say when"),
        ({"debounce": 5, "at": datetime(2030, 1, 1, tzinfo=UTC), "key": "k"}, "at and debounce both say when"),
        ({"debounce": 5, "debounce_limit": 4, "key": "k"}, "debounce_limit can't be shorter"),
        ({"debounce_limit": 4, "key": "k"}, "debounce_limit needs debounce"),
        ({"replace": "yes"}, "replace must be True or False"),
        ({"prioritty": 90}, r"using\(\) has no option 'prioritty'. Did you mean 'priority'"),
        ({"replace": True, "key": "k", "after": "0190163d-8694-739b-aea5-966c26f8ad91"}, "can't wait for others"),
    ],
)
def test_what_makes_no_sense_is_refused(app: Dibs, options: Mapping[str, Any], words: str) -> None:
    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidOption, match=words):
        work.using(**options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda app, options: app.task(**options), "a task has no option 'evrey'"),
        (lambda app, options: app.schedule(**options), "a schedule has no option 'evrey'. Did you mean 'every'"),
        (lambda app, options: app.schedules.set("s", "t", **options), "a schedule has no option 'evrey'"),
    ],
)
def test_an_unknown_option_is_refused_at_once(app: Dibs, call: Any, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        call(app, {"evrey": 60})


def test_an_option_that_is_called_otherwise_elsewhere_says_what_to_write(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    doors: dict[str, Callable[..., Any]] = {"a task": app.task, "using()": work.using}
    for where, door in doors.items():
        for name, advice in OF_OPTIONS.items():
            with pytest.raises(InvalidOption) as caught:
                door(**{name: 5})
            assert str(caught.value) == f"{where} has no option {name!r}: {advice}."


@pytest.mark.parametrize(
    ("door", "options", "words"),
    [
        ("task", {"time_limit": 60}, "a task has no option 'time_limit': write timeout=seconds."),
        ("task", {"expires": 60}, "a task has no option 'expires': it is one of each call, write .using(expires=…)."),
        ("schedule", {"queue": "mail"}, "it comes with the task, write task.using(queue=…)."),
        ("schedule", {"priority": 70}, "it comes with the task, write task.using(priority=…)."),
        ("schedule", {"expires": 60}, "it comes with the task, write task.using(expires=…)."),
        ("remote", {"priority": 70}, "app.remote() has no option 'priority': write .using(priority=…) behind it."),
        ("remote", {"queeu": "mail"}, "app.remote() has no option 'queeu'. Did you mean 'queue'?"),
    ],
)
def test_an_option_in_the_wrong_place_says_where_it_belongs(
    app: Dibs, door: str, options: Mapping[str, Any], words: str
) -> None:
    given = ("shop.send",) if door == "remote" else ()
    with pytest.raises(InvalidOption, match=re.escape(words)):
        getattr(app, door)(*given, **options)


def test_partitions_and_tenants(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    info = work.using(per="acme", tenant="t1").enqueue().refresh()
    assert (info.partition, info.tenant) == ("acme", "t1")
    info = work.using(per=42, tenant=7).enqueue().refresh()
    assert (info.partition, info.tenant) == ("42", "7"), "numbers are made text"
    assert [each.tenant for each in app.tasks.search(Filter(tenant="t1")).tasks] == ["t1"]
    info = work.enqueue().refresh()
    assert (info.partition, info.tenant) == (None, "")


def test_the_partition_can_come_from_a_parameter(app: Dibs) -> None:
    @app.task(per="customer")
    def bill(amount: int, customer: str | int | None = "nobody") -> None: ...

    assert bill.enqueue(1, "acme").refresh().partition == "acme"
    assert bill.enqueue(1, customer=42).refresh().partition == "42"
    assert bill.enqueue(1).refresh().partition == "nobody", "defaults count"
    assert bill.enqueue(1, None).refresh().partition is None
    assert bill.using(per="other").enqueue(1, "acme").refresh().partition == "other"
    with pytest.raises(InvalidOption, match=r"bill is limited per customer, which must be a text of 1 to 200"):
        bill.enqueue(1, "x" * 300)


def test_a_parameter_that_is_not_there_is_refused_at_once(app: Dibs) -> None:
    def bill(ctx: Context, amount: int, customer: str) -> None: ...

    with pytest.raises(InvalidOption, match=r"per='custmer' must be the name of a parameter.*'customer'"):
        app.task(per="custmer")(bill)
    with pytest.raises(InvalidOption, match="must be the name of a parameter"):
        app.task(per="ctx")(bill)

    def other(customer: list[int] = [1]) -> None: ...  # noqa: B006

    with pytest.raises(InvalidOption, match="limited per customer, whose default must be a text"):
        app.task(per="customer")(other)


def test_a_task_knows_its_tenant_and_partition(app: Dibs) -> None:
    @app.task
    def work(ctx: Context) -> tuple[str, str | None, str | None]:
        return ctx.tenant, ctx.partition, ctx.workflow

    handle = work.using(tenant="t", per="p").enqueue()
    with app.worker():
        assert handle.result(TIMEOUT) == ("t", "p", None)


def test_replace_gives_a_waiting_task_new_content(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def index(version: int) -> None: ...

    fresh = index.using(key="page-1", replace=True)
    first, second = fresh.enqueue(1), fresh.using(priority=80).enqueue(2)
    assert (first.duplicate, second.duplicate, second.id) == (False, True, first.id)
    info = first.refresh()
    assert (info.args, info.priority, info.state) == ({"version": 2}, 80, State.PENDING)
    still.claim()
    third = fresh.enqueue(3)
    assert third.id != first.id, "what runs already is left alone"


def test_replace_is_for_the_same_task(app: Dibs) -> None:
    @app.task
    def one() -> None: ...

    @app.task
    def two() -> None: ...

    one.using(key="k").enqueue()
    with pytest.raises(IdempotencyConflict):
        two.using(key="k", replace=True).enqueue()


def test_debounce_puts_off_until_nothing_comes_any_more(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def index(version: int) -> None: ...

    soon = index.using(debounce=10)
    handle = soon.using(key="page").enqueue(1)
    for version in range(2, 5):
        dibs_clock.advance(9)
        assert soon.using(key="page").enqueue(version).id == handle.id
    assert soon.using(key="other").enqueue(0).id != handle.id
    info = handle.refresh()
    assert (info.state, info.args) == (State.SCHEDULED, {"version": 4})
    assert info.due_at == dibs_clock.time + timedelta(seconds=10)
    assert still.claim() == []
    dibs_clock.advance(10)
    assert still.claim(limit=5)[0].id == handle.id


def test_debounce_has_a_limit(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def index(version: int) -> None: ...

    soon = index.using(debounce=10, debounce_limit=timedelta(seconds=25), key="page")
    begun = dibs_clock.time
    handle = soon.enqueue(0)
    for version in range(1, 4):
        dibs_clock.advance(8)
        soon.enqueue(version)
    info = handle.refresh()
    assert (info.due_at, info.args) == (begun + timedelta(seconds=25), {"version": 3})


def test_replacing_needs_a_key_when_it_comes_to_it(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    for task in (work.using(debounce=5), work.using(replace=True)):
        with pytest.raises(InvalidOption, match="need a key"):
            task.enqueue()


def test_an_app_enqueues_under_a_name(make_app: MakeApp) -> None:
    app = make_app(client="web-1")

    @app.task
    def work() -> None: ...

    assert work.call().new.client == "web-1"
    other = make_app()
    assert other.task(work.definition.function).call().new.client == gethostname()
    with pytest.raises(InvalidOption, match="client must be a text"):
        make_app(client="")


def test_a_client_that_is_too_fast_is_told(make_app: MakeApp, dibs_clock: ManualClock) -> None:
    fast, slow = (make_app(client=name, clock=dibs_clock) for name in ("fast", "slow"))

    def work() -> None: ...

    task, other = fast.task(work), slow.task(work)
    fast.queues.set("default", enqueue_rate=1, enqueue_burst=2)
    task.enqueue()
    task.enqueue()
    with pytest.raises(RateLimited, match="client 'fast'"):
        task.enqueue()
    other.enqueue()


def test_in_a_transaction_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with Dibs(f"sqlite:///{file}") as app:

        @app.task
        def index(version: int) -> None: ...

        first = index.using(key="page", debounce=10).enqueue(1)
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            joined = index.using(connection=connection, key="page", debounce=10)
            connection.execute("BEGIN IMMEDIATE")
            assert joined.enqueue(2).id == first.id
            connection.execute("ROLLBACK")
            assert first.refresh().args == {"version": 1}
            connection.execute("BEGIN IMMEDIATE")
            joined.enqueue(3)
            waits = index.using(connection=connection, after=first, tenant="t").enqueue(4)
            connection.execute("COMMIT")
        assert first.refresh().args == {"version": 3}
        assert (waits.refresh().state, waits.refresh().tenant) == (State.BLOCKED, "t")


def test_a_call_can_change_how_it_is_retried(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task(retries=5)
    def work() -> None: ...

    handle = work.using(retry_base=100, retry_cap=150, timeout_growth=2.0).enqueue()
    (record,) = still.hub.runner.run(still.hub.engine.get([handle.id]))
    assert isinstance(record, TaskRecord)
    options = record.options
    assert (options.retry_base, options.retry_cap, options.timeout_growth) == (100_000_000, 150_000_000, 2.0)
    still.settle(still.claim()[0], "failed", error="no")
    due = handle.refresh().due_at
    assert due is not None
    assert 90 <= (due - dibs_clock.time).total_seconds() <= 110
    with pytest.raises(InvalidOption, match="retry_base"):
        work.using(retry_base=-1)
