"""Chains, groups, and results that are handed on."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import msgspec
import pytest

from dibs import Context, Dibs, Permanent, State, chain, group, take
from dibs.client.dependencies import Flow
from dibs.client.workflow_batch import assemble
from dibs.errors import DependencyCycle, DibsError, InvalidArguments, InvalidOption, TaskCancelled, TaskFailed
from dibs.testing import Sandbox

from .conftest import TIMEOUT, MakeApp


@dataclass
class Point:
    x: int
    y: int = 0


class Tasks:
    """Some tasks of one app."""

    def __init__(self, app: Dibs) -> None:
        @app.task(name="number")
        def number(value: int) -> int:
            return value

        @app.task(name="total")
        async def total(numbers: list[int], start: int = 0) -> int:
            return sum(numbers, start)

        @app.task(name="show", retries=0)
        def show(value: Any, label: str = "", extra: Any = None) -> Any:
            return {"value": value, "label": label, "extra": extra}

        @app.task(name="fails", retries=0)
        def fails() -> int:
            raise Permanent("no")

        @app.task(name="nothing")
        def nothing() -> None: ...

        @app.task(name="move")
        def move(point: Point, by: int) -> Point:
            return Point(point.x + by, point.y)

        self.number, self.total, self.show, self.fails = number, total, show, fails
        self.nothing, self.move = nothing, move


@pytest.fixture
def tasks(app: Dibs) -> Tasks:
    return Tasks(app)


def edges(flow: Flow[Any]) -> dict[str, list[str]]:
    """What waits for what, by the arguments of the tasks."""
    batch = assemble(flow)
    label = {new.id: msgspec.json.decode(new.args).get("value", new.name) for new in batch.tasks}
    return {label[new.id]: [label[edge.id] for edge in new.after] for new in batch.tasks}


def test_a_chain_runs_one_after_another(tasks: Tasks) -> None:
    a, b, c = (tasks.number.call(value) for value in (1, 2, 3))
    assert edges(chain(a, b, c)) == {1: [], 2: [1], 3: [2]}
    assert edges(chain(chain(a, b), c)) == edges(chain(a, chain(b, c))) == edges(chain(a, b, c))


def test_a_group_runs_side_by_side(tasks: Tasks) -> None:
    a, b, c, d, e = (tasks.number.call(value) for value in range(1, 6))
    assert edges(chain(a, group(b, c), d)) == {1: [], 2: [1], 3: [1], 4: [2, 3]}
    assert edges(chain(group([a, b]), group(c, d))) == {1: [], 2: [], 3: [1, 2], 4: [1, 2]}
    assert edges(chain(a, group(chain(b, c), d), e)) == {1: [], 2: [1], 3: [2], 4: [1], 5: [3, 4]}
    assert edges(chain(group(a, group(b, c)), d)) == {1: [], 2: [], 3: [], 4: [1, 2, 3]}


def test_an_empty_group_is_no_step(tasks: Tasks) -> None:
    a, b = tasks.number.call(1), tasks.number.call(2)
    empty = group(tasks.number.call(each) for each in ())
    assert edges(chain(a, empty, b)) == {1: [], 2: [1]}
    assert edges(chain(empty, a)) == {1: []}
    assert edges(chain(a, empty)) == {1: []}
    for flow in (empty, chain(empty), group(empty, empty)):
        with pytest.raises(InvalidOption, match="at least one task"):
            assemble(flow)


def test_a_call_that_is_used_twice_counts_once(tasks: Tasks) -> None:
    a, b, c = (tasks.number.call(value) for value in (1, 2, 3))
    assert edges(group(chain(a, b), chain(a, c))) == {1: [], 2: [1], 3: [1]}
    shared = chain(a, b)
    assert edges(group(shared, shared)) == {1: [], 2: [1]}


def test_what_is_taken_belongs_to_the_flow(tasks: Tasks) -> None:
    a = tasks.number.call(1)
    b = tasks.number.call(take(a))
    c = tasks.number.using(after=[a.if_failed()]).call(3)
    assert edges(b) == {1: [], None: [1]}
    assert edges(c) == {1: [], 3: [1]}


def test_rules_that_were_given_are_kept(tasks: Tasks) -> None:
    a = tasks.number.call(1)
    last = tasks.number.using(after=[a.otherwise("run")]).call(take(a))
    batch = assemble(chain(a, last))
    assert [edge.rule for edge in batch.tasks[-1].after] == ["run"]


def test_circles_are_refused(tasks: Tasks) -> None:
    a, b = tasks.number.call(1), tasks.number.call(2)
    with pytest.raises(DependencyCycle, match=rf"number {b.id} → number {a.id} → number {b.id}|number {a.id}"):
        assemble(chain(a, b, a))
    with pytest.raises(DependencyCycle):
        assemble(chain(a, a))
    ids = [str(uuid4()) for _ in range(20)]
    cycle = [tasks.number.using(id=own, after=ids[place - 1]).call(1) for place, own in enumerate(ids)]
    with pytest.raises(DependencyCycle, match="12 more") as caught:
        assemble(group(cycle))
    assert len(caught.value.ids) == 21


@pytest.mark.parametrize("make", [chain, group])
def test_only_calls_make_a_flow(tasks: Tasks, make: Any) -> None:
    with pytest.raises(InvalidOption, match=r"made of calls \(task.call\(…\)\), chains and groups, not of 5"):
        make(5)
    with pytest.raises(InvalidOption, match="made of calls"):
        make(tasks.number, tasks.number)
    handle = tasks.number.enqueue(1)
    with pytest.raises(InvalidOption, match="has been enqueued already"):
        make(handle, handle)


def test_what_no_flow_can_have(app: Dibs, tasks: Tasks) -> None:
    with pytest.raises(InvalidOption, match="at least one step"):
        chain()  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match="the key of number could leave a part of it out"):
        assemble(tasks.number.using(key="k").call(1))
    with pytest.raises(InvalidOption, match="leave connection= and block= out"):
        assemble(tasks.number.using(block=1).call(1))
    with pytest.raises(InvalidOption, match="a workflow is made of calls, chains and groups"):
        app.enqueue_workflow(tasks.number)  # type: ignore[arg-type]
    twice = tasks.number.using(id=uuid4())
    with pytest.raises(InvalidOption, match="two calls of this workflow have the id"):
        assemble(group(twice.call(1), twice.call(2)))
    with pytest.raises(InvalidOption, match="more than 200,000 dependencies"):
        assemble(chain(*(group(tasks.number.call(each) for each in range(500)) for _ in range(2))))


def test_nesting_may_be_deep(tasks: Tasks) -> None:
    flow: Flow[int] = tasks.number.call(0)
    for each in range(1, 3000):
        flow = chain(flow, tasks.number.call(each))
    assert len(assemble(flow).tasks) == 3000


def test_large_flows_stay_small(tasks: Tasks) -> None:
    """Fan-out and fan-in of 10,000: one edge each way and a payload that doesn't grow with it."""
    first = tasks.number.call(0)
    middle = group(tasks.number.call(each) for each in range(10_000))
    last = tasks.total.call(take(middle))
    batch = assemble(chain(first, middle, last))
    assert sum(len(new.after) for new in batch.tasks) == 20_000
    assert (batch.tasks[0].id, batch.tasks[-1].id) == (first.id, last.id)
    assert len(last.new.args) < 100


def test_the_same_flow_gives_the_same_workflow(tasks: Tasks) -> None:
    flow = chain(tasks.number.call(1), tasks.number.call(2))
    one, two = assemble(flow), assemble(flow)
    assert one == two
    assert UUID(one.workflow).version == 7
    assert one.workflow not in {new.id for new in one.tasks}
    assert {new.spec.workflow for new in one.tasks} == {one.workflow}


# Results.


def test_results_are_handed_on(app: Dibs, tasks: Tasks) -> None:
    numbers = group(tasks.number.call(value) for value in (1, 2, 3))
    total = tasks.total.call(take(numbers), start=10)
    double = tasks.total.call([take(total), take(total), 5], take(numbers.members[0]))
    workflow = app.enqueue_workflow(chain(numbers, double))
    with app.worker():
        assert workflow[double].result(TIMEOUT) == 38
        assert workflow[total].result(TIMEOUT) == 16


def test_results_of_nested_groups_keep_their_shape(app: Dibs, tasks: Tasks) -> None:
    a, b, c = (tasks.number.call(value) for value in (1, 2, 3))
    nested = group(cast(Any, group(a, b)), chain(a, c), group([]))
    shown = tasks.show.call(take(nested), extra={"k": [take(group([])), take(chain(a, group(b, c)))]})
    workflow = app.enqueue_workflow(shown)
    with app.worker():
        told = workflow[shown].result(TIMEOUT)
    assert told == {"value": [[1, 2], 3, []], "label": "", "extra": {"k": [[], [2, 3]]}}


def test_results_come_as_the_signature_says(app: Dibs, tasks: Tasks) -> None:
    first = tasks.move.call(Point(1, 2), 3)
    second = tasks.move.call(take(first), by=take(tasks.number.call(10)))
    workflow = app.enqueue_workflow(second)
    with app.worker():
        assert workflow[second].result(TIMEOUT) == Point(14, 2)


def test_a_stored_task_can_be_taken_from(app: Dibs, tasks: Tasks) -> None:
    handle = tasks.number.enqueue(4)
    early = tasks.total.enqueue([take(handle), 1])
    with app.worker():
        assert early.result(TIMEOUT) == 5
        assert asyncio.run(later(tasks, handle)) == 6
    assert [need.id for need in app.tasks.needs(early.id)] == [handle.id]


async def later(tasks: Tasks, handle: Any) -> int:
    return await (await tasks.total.aenqueue([take(handle), 2]))


def test_what_gave_nothing_is_none(app: Dibs, tasks: Tasks) -> None:
    failed, empty = tasks.fails.call(), tasks.nothing.call()
    shown = tasks.show.using(after=[failed.otherwise("run")]).call([take(failed), take(empty)])
    workflow = app.enqueue_workflow(shown)
    with app.worker():
        assert workflow[shown].result(TIMEOUT)["value"] == [None, None]


def test_a_failure_stops_those_who_would_take(app: Dibs, tasks: Tasks) -> None:
    failed = tasks.fails.call()
    total = tasks.total.call([take(failed)])
    workflow = app.enqueue_workflow(total)
    with app.worker():
        with pytest.raises(TaskCancelled):
            workflow[total].result(TIMEOUT)
        with pytest.raises(TaskFailed):
            workflow[failed].result(TIMEOUT)


def test_a_result_that_does_not_fit_fails_like_other_arguments(app: Dibs, tasks: Tasks) -> None:
    shown = tasks.show.call(1)
    total = tasks.total.using(retries=0).call(cast(Any, take(shown)))
    workflow = app.enqueue_workflow(total)
    with app.worker(), pytest.raises(TaskFailed, match=r"don't fit its signature: Expected `array`, got `object`"):
        workflow[total].result(TIMEOUT)


def test_a_result_that_is_gone_fails_for_good(app: Dibs, tasks: Tasks) -> None:
    first, second = tasks.number.enqueue(1), tasks.number.using(delay=3600).enqueue(2)
    total = tasks.total.using(after=second).enqueue([take(first)])
    with app.worker():
        first.result(TIMEOUT)
        app.tasks.purge(first.id)
        app.tasks.edit(second.id, delay=0)
        with pytest.raises(
            TaskFailed, match=f"the result of task {first.id} was to be taken.*pruned or purged"
        ) as told:
            total.result(TIMEOUT)
    assert told.value.reason == "permanent"


def test_users_may_pass_what_looks_like_ours(app: Dibs, tasks: Tasks) -> None:
    ours: dict[str, Any] = {"$dibs": "take", "slots": [0], "$take": [{"at": ["value"], "slots": 0}]}
    first = tasks.show.call(ours, "$take")
    second = tasks.show.call(take(first), "x", ours)
    workflow = app.enqueue_workflow(second)
    with app.worker():
        told = workflow[second].result(TIMEOUT)
    assert told["extra"] == ours
    assert told["value"] == {"value": ours, "label": "$take", "extra": None}


def test_other_arguments_are_checked_at_once(tasks: Tasks) -> None:
    first = tasks.number.call(1)
    with pytest.raises(InvalidArguments, match=r"don't fit its signature: Expected `int`, got `str`.*start"):
        tasks.total.call([take(first)], start=cast(Any, "x"))
    with pytest.raises(InvalidArguments, match="needs an argument 'numbers'"):
        tasks.total.call(start=take(first))  # type: ignore[call-arg]
    with pytest.raises(InvalidArguments, match="can't be carried as JSON"):
        tasks.show.call(take(first), extra=object())


@pytest.mark.parametrize("wrap", [Point, lambda it: {it}, lambda it: {date(2026, 1, 1): it}])
def test_placeholders_stand_in_arguments_lists_and_dicts_only(tasks: Tasks, wrap: Any) -> None:
    with pytest.raises(DibsError, match=r"take\(…\) can only stand for an argument"):
        tasks.show.call(wrap(take(tasks.number.call(1))))
    with pytest.raises(DibsError, match=r"take\(…\) can only stand for an argument"):
        tasks.show.using(metadata={"a": take(tasks.number.call(1))})


def test_take_takes_sources_only(tasks: Tasks) -> None:
    for value in (5, tasks.number, None):
        with pytest.raises(InvalidOption, match=r"take\(\) is for calls, chains, groups and handles"):
            take(cast(Any, value))


def test_what_replaces_can_not_take(tasks: Tasks) -> None:
    with pytest.raises(InvalidOption, match="can't take"):
        tasks.number.using(key="k", replace=True).call(take(tasks.number.call(1)))


def test_a_partition_must_be_known(app: Dibs, tasks: Tasks) -> None:
    @app.task(per="customer")
    def bill(customer: int) -> None: ...

    with pytest.raises(InvalidOption, match="limited per customer, so that must be known now"):
        bill.call(take(tasks.number.call(1)))


def test_a_key_stands_for_what_is_taken_not_for_who_gave_it(app: Dibs, tasks: Tasks) -> None:
    first, second = tasks.number.enqueue(1), tasks.number.enqueue(2)
    one = tasks.total.using(key="k").enqueue([take(first)])
    two = tasks.total.using(key="k").enqueue([take(second)])
    assert (two.id, two.duplicate) == (one.id, True)


class Zlib:
    name = "zlib"

    def encode(self, payload: bytes) -> bytes:
        return zlib.compress(payload)

    def decode(self, payload: bytes) -> bytes:
        return zlib.decompress(payload)


def test_codecs_and_blobs_make_no_difference(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(payload_codec=Zlib(), blobs=tmp_path / "blobs", inline_limit=1024)

    @app.task
    def noise(seed: int) -> str:
        return "".join(f"{(seed * 7919**each) % 1_000_003:x}" for each in range(2000))

    @app.task
    def length(texts: list[str], extra: str) -> int:
        return sum(map(len, texts)) + len(extra)

    texts = group(noise.call(seed) for seed in (3, 5))
    measured = length.call(take(texts), noise(seed=7))
    workflow = app.enqueue_workflow(measured)
    with app.worker():
        assert workflow[measured].result(TIMEOUT) == sum(len(noise(seed=seed)) for seed in (3, 5, 7))


def test_own_loops_get_results_too(app: Dibs, tasks: Tasks) -> None:
    first = tasks.number.call(3)
    app.enqueue_workflow(chain(first, tasks.show.call(take(first))))
    (claim,) = app.claim()
    app.settle(claim, "completed", result=[1, 2])
    (claim,) = app.claim()
    assert claim.args == {"value": [1, 2]}


def test_own_loops_are_not_given_what_can_not_run(app: Dibs, tasks: Tasks) -> None:
    first = tasks.number.enqueue(1)
    second = tasks.show.enqueue(take(first))
    (claim,) = app.claim()
    app.settle(claim, "completed", result=1)
    app.tasks.purge(first.id)
    assert app.claim() == []
    info = second.refresh()
    assert (info.state, info.reason) == (State.DEAD, "permanent")


def test_in_a_sandbox() -> None:
    app = Dibs("memory://")
    tasks = Tasks(app)
    with Sandbox(app) as sandbox:
        numbers = group(tasks.number.call(value) for value in (1, 2))
        total = tasks.total.call(take(numbers))
        workflow = app.enqueue_workflow(chain(numbers, total), name="sum")
        sandbox.run_until_idle()
        assert workflow[total].result() == 3
        assert workflow.status().state == "completed"
    with Sandbox(app, eager=True):
        assert app.enqueue_workflow(tasks.total.call([take(tasks.number.call(5))])).handles[0].result() == 5
    app.close()


def test_the_context_knows_the_workflow(app: Dibs) -> None:
    @app.task
    def which(ctx: Context) -> str | None:
        return ctx.workflow

    call: Any = which.call()
    workflow = app.enqueue_workflow(call)
    with app.worker():
        assert workflow[call].result(TIMEOUT) == workflow.id


def test_calls_say_who_they_are(tasks: Tasks) -> None:
    call = tasks.number.call(1)
    assert repr(call) == f"<Call of number {call.id}>"
    assert repr(group(call, call)) == "<Group of 2>"
    assert repr(chain(call)) == "<Chain of 1 steps>"
    assert repr(take(call)) == f"take(<Call of number {call.id}>)"
