"""Tasks that wait for other tasks."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from dibs import Dibs, Permanent, State, Task, group
from dibs.errors import DependencyCycle, InvalidOption, UnknownTask

from .conftest import TIMEOUT

Work = Task[..., str]


@pytest.fixture
def work(app: Dibs) -> Work:
    @app.task(name="work", retries=0)
    def work(text: str = "", fail: bool = False) -> str:
        if fail:
            raise Permanent(text)
        return text

    return work


def run(app: Dibs) -> None:
    """Run everything there is."""
    with app.worker(until_idle=True) as worker:
        worker.wait(TIMEOUT)


def test_a_task_waits_for_another(app: Dibs, work: Work) -> None:
    first = work.enqueue("a")
    for named in (first, first.id, UUID(first.id), [first], first.otherwise("cancel")):
        second = work.using(after=named).enqueue("b")
        assert second.refresh().state is State.BLOCKED
    run(app)
    assert second.refresh().state is State.COMPLETED
    started, ended = second.refresh().started_at, first.refresh().finished_at
    assert started is not None
    assert ended is not None
    assert started >= ended


def test_what_has_completed_is_not_waited_for(app: Dibs, work: Work) -> None:
    first = work.enqueue()
    run(app)
    assert work.using(after=[first]).enqueue().refresh().state is State.PENDING


@pytest.mark.parametrize("fails", [True, False])
def test_rules_say_what_a_failure_means(app: Dibs, work: Work, fails: bool) -> None:
    first = work.enqueue(fail=fails)
    rules = {
        "plain": first,
        "cancel": first.otherwise("cancel"),
        "fail": first.otherwise("fail"),
        "run": first.otherwise("run"),
        "if failed": first.if_failed(),
    }
    waiting = {rule: work.using(after=[link]).enqueue() for rule, link in rules.items()}
    run(app)
    ended = {rule: handle.refresh().state.value for rule, handle in waiting.items()}
    if fails:
        assert ended == {
            "plain": "cancelled",
            "cancel": "cancelled",
            "fail": "dead",
            "run": "completed",
            "if failed": "completed",
        }
        assert waiting["plain"].refresh().reason == "dependency"
    else:
        assert ended == dict.fromkeys(["plain", "cancel", "fail", "run"], "completed") | {"if failed": "cancelled"}


def test_a_task_tells_what_it_waits_for(app: Dibs, work: Work) -> None:
    first, second = work.enqueue("a"), work.enqueue("b")
    handle = work.using(after=[second.otherwise("run"), first]).enqueue()
    needs = app.tasks.needs(handle.id)
    assert [(need.id, need.name, need.state, need.rule, need.is_open) for need in needs] == [
        (second.id, "work", State.PENDING, "run", True),
        (first.id, "work", State.PENDING, "cancel", True),
    ]
    run(app)
    assert [need.is_open for need in app.tasks.needs(handle.id)] == [False, False]
    assert app.tasks.needs(first.id) == []


def test_the_urgency_is_inherited(app: Dibs, work: Work) -> None:
    first = work.using(priority=10).enqueue()
    work.using(after=first, priority=90).enqueue()
    assert (first.refresh().priority, first.refresh().inherited) == (10, 90)


def test_what_is_not_there_is_named(app: Dibs, work: Work) -> None:
    missing = str(uuid4())
    with pytest.raises(UnknownTask, match=rf"work would wait for task {missing}, which is not there"):
        work.using(after=missing).enqueue()
    unsent = work.call("a")
    with pytest.raises(UnknownTask, match=unsent.id):
        work.using(after=[unsent]).enqueue()
    with pytest.raises(UnknownTask, match=unsent.id):
        app.enqueue_many([work.call("x"), work.using(after=[unsent]).call()])
    assert app.tasks.count().count == 0, "all or nothing"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (5, "after takes handles, calls, ids"),
        ([None], "after takes handles, calls, ids"),
        ("nonsense", "id must be a UUID"),
        ({"a": 1}, "after takes handles, calls, ids"),
    ],
)
def test_nonsense_is_refused_at_the_door(work: Work, after: Any, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        work.using(after=after)


def test_rules_are_checked(work: Work) -> None:
    call = work.call()
    with pytest.raises(InvalidOption, match=r"otherwise\(\) takes one of cancel, fail, run, not 'rum'.*'run'"):
        call.otherwise("rum")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="two rules for task"):
        work.using(after=[call, call.if_failed()])
    own = str(uuid4())
    with pytest.raises(InvalidOption, match="can't wait for itself"):
        work.using(id=own, after=own).call()


def test_there_are_not_too_many(work: Work) -> None:
    many = [str(UUID(int=number)) for number in range(10_001)]
    with pytest.raises(InvalidOption, match="at most 10,000 others, not for 10,001"):
        work.using(after=many)
    assert len(work.using(after=many[1:]).call().new.after) == 10_000


def test_a_batch_may_be_given_in_any_order(app: Dibs, work: Work) -> None:
    first = work.call("a")
    second = work.using(after=[first]).call("b")
    third = work.using(after=[first, second.otherwise("run")]).call("c")
    handles = app.enqueue_many([third, second, first])
    assert [handle.id for handle in handles] == [third.id, second.id, first.id]
    assert [handle.refresh().state for handle in handles] == [State.BLOCKED, State.BLOCKED, State.PENDING]
    assert not any(handle.duplicate for handle in handles)
    run(app)
    assert [handle.refresh().state for handle in handles] == [State.COMPLETED] * 3


def test_the_same_call_counts_once_in_a_batch(app: Dibs, work: Work) -> None:
    first = work.call("a")
    second = work.using(after=first).call("b")
    handles = app.enqueue_many([second, first, first])
    assert [handle.id for handle in handles] == [second.id, first.id, first.id]
    assert app.tasks.count().count == 2


def test_circles_are_named(app: Dibs, work: Work) -> None:
    one, two, three = (str(uuid4()) for _ in range(3))
    calls = [
        work.using(id=one, after=two).call(),
        work.using(id=two, after=three).call(),
        work.using(id=three, after=one).call(),
    ]
    with pytest.raises(DependencyCycle, match=rf"work {one} → work {two} → work {three} → work {one}") as caught:
        app.enqueue_many([work.call(), *calls])
    assert caught.value.ids == [one, two, three, one]
    assert app.tasks.count().count == 0


def test_a_batch_with_one_id_twice_is_refused(app: Dibs, work: Work) -> None:
    own = str(uuid4())
    calls = [work.using(id=own).call("a"), work.using(id=own).call("b")]
    with pytest.raises(InvalidOption, match=f"two calls of this batch have the id {own}"):
        app.enqueue_many([*calls, work.using(after=own).call()])


def test_what_has_a_key_is_not_waited_for_in_its_own_batch(app: Dibs, work: Work) -> None:
    keyed = work.using(key="k").call("a")
    with pytest.raises(InvalidOption, match="has a key and may turn out to be an earlier task"):
        app.enqueue_many([keyed, work.using(after=keyed).call()])
    (handle,) = app.enqueue_many([keyed])
    assert work.using(after=handle).enqueue().refresh().state is State.BLOCKED


def test_a_group_can_be_waited_for(app: Dibs, work: Work) -> None:
    members = group(work.call(str(number)) for number in range(3))
    last = work.using(after=members.otherwise("run")).call()
    handles = app.enqueue_many([last, *members.members])
    assert [need.rule for need in app.tasks.needs(last.id)] == ["run"] * 3
    assert handles[0].refresh().state is State.BLOCKED
