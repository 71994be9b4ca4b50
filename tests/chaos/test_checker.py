"""Each check of the checker finds what it is there for, and nothing in a run that is as it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chaos.checker import CHECKS, PROMPT, check
from chaos.evidence import Entry, Evidence, Spell, Task, runs_in
from chaos.limits import BURST, MAX_CONCURRENT


def task(number: int, name: str = "work", **other: Any) -> Task:
    facts: dict[str, Any] = {
        "id": f"t{number}",
        "name": name,
        "queue": "work",
        "state": "completed",
        "reason": None,
        "priority": 50,
        "lease": 1,
        "attempts": 0,
        "losses": 0,
        "result": 1,
        "partition": None,
        "fire_time": None,
        "ready_at": 1000.0 + number,
        "started_at": 1000.1 + number,
        "finished_at": 1000.2 + number,
    }
    return Task(**facts | other)


def acknowledged(each: Task, at: float, **other: object) -> list[dict[str, Any]]:
    told = {"who": "producer-1-1", "id": each.id, "name": each.name, **other}
    return [{"t": at - 0.01, "what": "asked", **told}, {"t": at, "what": "acknowledged", **told}]


def ran(each: Task, start: float, end: float, lease: int = 1, who: str = "worker-1-1") -> list[dict[str, Any]]:
    told = {"who": who, "task": each.id, "lease": lease, "name": each.name}
    return [{"t": start, "what": "start", **told}, {"t": end, "what": "end", "how": "done", **told}]


def evidence(*tasks: Task, lines: list[dict[str, Any]], spells: list[Spell] | None = None) -> Evidence:
    ordered = sorted(lines, key=lambda line: line["t"])
    return Evidence({each.id: each for each in tasks}, ordered, 3.0, runs_in(ordered), spells or [])


def sound() -> Evidence:
    one, two = task(1), task(2)
    lines = [*acknowledged(one, 1), *acknowledged(two, 1.5), *ran(one, 2, 3), *ran(two, 2, 3)]
    return evidence(one, two, lines=lines)


def a_lost_task() -> Evidence:
    one = task(1)
    return evidence(lines=acknowledged(one, 1))


def a_task_that_never_ends() -> Evidence:
    one = task(1, state="pending")
    return evidence(one, lines=acknowledged(one, 1))


def a_task_that_nobody_asked_for() -> Evidence:
    return evidence(task(1), lines=ran(task(1), 1, 2))


def two_tasks_for_a_key() -> Evidence:
    one, two = task(1), task(2)
    lines = [*acknowledged(one, 1, key="k"), *acknowledged(two, 1, key="k"), *ran(one, 2, 3), *ran(two, 2, 3)]
    return evidence(one, two, lines=lines)


def two_outcomes_of_a_lease() -> Evidence:
    one = task(1, history=(Entry("lost", 1, "worker-2-1"),))
    killed = {"t": 1, "what": "killed", "who": "nemesis", "process": "worker-2-1"}
    return evidence(one, lines=[*acknowledged(one, 1), *ran(one, 2, 3), killed])


def the_result_of_another_lease() -> Evidence:
    one = task(1, lease=2, result=1, history=(Entry("failed", 1, "worker-1-1"),))
    return evidence(one, lines=[*acknowledged(one, 1), *ran(one, 2, 3), *ran(one, 4, 5, lease=2)])


def a_lease_that_was_run_twice() -> Evidence:
    one = task(1)
    return evidence(one, lines=[*acknowledged(one, 1), *ran(one, 2, 3), *ran(one, 2, 3, who="worker-2-1")])


def a_completion_without_a_run() -> Evidence:
    one = task(1)
    return evidence(one, lines=acknowledged(one, 1))


def two_runs_at_once_that_count() -> Evidence:
    one = task(1, lease=2, result=2, attempts=1, history=(Entry("failed", 1, "worker-1-1"),))
    return evidence(one, lines=[*acknowledged(one, 1), *ran(one, 2, 5), *ran(one, 4, 6, lease=2)])


def two_of_a_partition_at_once() -> Evidence:
    tasks = [task(number, "limited", queue="limited", partition="c1") for number in range(2)]
    return evidence(*tasks, lines=[line for each in tasks for line in [*acknowledged(each, 1), *ran(each, 2, 3)]])


def too_many_at_once() -> Evidence:
    many = range(MAX_CONCURRENT + 1)
    tasks = [task(number, "limited", queue="limited", partition=f"c{number}") for number in many]
    return evidence(*tasks, lines=[line for each in tasks for line in [*acknowledged(each, 1), *ran(each, 2, 3)]])


def too_many_starts() -> Evidence:
    tasks = [task(number, "paced", queue="paced") for number in range(2 * BURST)]
    return evidence(*tasks, lines=[line for each in tasks for line in [*acknowledged(each, 1), *ran(each, 2, 3)]])


def the_wrong_order() -> Evidence:
    urgent = task(1, "ordered", queue="ordered", priority=90, ready_at=1000.0, started_at=1020.0)
    other = task(2, "ordered", queue="ordered", priority=10, ready_at=1000.0, started_at=1010.0)
    lines = [line for each in (urgent, other) for line in [*acknowledged(each, 1), *ran(each, 2, 3)]]
    return evidence(urgent, other, lines=lines)


def fires(*seconds: int) -> Evidence:
    times = [f"2026-01-01T00:00:{second:02}+00:00" for second in seconds]
    tasks = [task(number, "tick", fire_time=time) for number, time in enumerate(times)]
    return evidence(*tasks, lines=[line for each in tasks for line in ran(each, 2, 3)])


def a_join_that_did_not_wait() -> Evidence:
    member, joined = task(1, "member"), task(2, "joined")
    lines = [*acknowledged(member, 1), *acknowledged(joined, 1, members=[member.id]), *ran(member, 2, 5)]
    return evidence(member, joined, lines=[*lines, *ran(joined, 3, 4)])


def a_loss_without_a_reason() -> Evidence:
    one = task(1, lease=2, result=2, losses=1, history=(Entry("lost", 1, "worker-1-1"),))
    return evidence(one, lines=[*acknowledged(one, 1), *ran(one, 2, 5), *ran(one, 4, 6, lease=2)])


def a_worker_that_left(said: str = "") -> Evidence:
    told = {"who": "nemesis", "process": "worker-1-1"}
    lines = [{"t": 8, "what": "started", **told}, {"t": 9, "what": "gone", "code": 1, "expected": False, **told}]
    outage = Spell("server-crash", "all", 7, 10)
    return replace(sound(), lines=[*sound().lines, *lines], spells=[outage], logs={"worker-1-1": said})


def a_slow_start() -> Evidence:
    one = task(1, "probe", queue="probe")
    return evidence(one, lines=[*acknowledged(one, 1), *ran(one, 1 + PROMPT + 1, 6)])


BROKEN: list[tuple[Callable[[], Evidence], str]] = [
    (a_lost_task, "nothing is lost"),
    (a_task_that_never_ends, "nothing is lost"),
    (a_task_that_nobody_asked_for, "nothing comes from nowhere"),
    (two_tasks_for_a_key, "a key is one task"),
    (two_outcomes_of_a_lease, "a lease has one outcome"),
    (the_result_of_another_lease, "a lease has one outcome"),
    (a_lease_that_was_run_twice, "every run is accounted for"),
    (a_completion_without_a_run, "every run is accounted for"),
    (two_runs_at_once_that_count, "settled runs do not overlap"),
    (two_of_a_partition_at_once, "limits hold"),
    (too_many_at_once, "limits hold"),
    (too_many_starts, "rates hold"),
    (the_wrong_order, "order holds"),
    (lambda: fires(1, 2, 2, 3), "schedules fire once"),
    (lambda: fires(1, 2, 4), "schedules fire once"),
    (a_join_that_did_not_wait, "joins run once"),
    (a_loss_without_a_reason, "losses are explained"),
    (a_worker_that_left, "nobody leaves"),
    (a_slow_start, "idle workers wake"),
]


def test_a_sound_run_has_no_findings() -> None:
    assert check(sound()) == []
    assert check(fires(1, 2, 3)) == []


@pytest.mark.parametrize(("make", "name"), BROKEN)
def test_what_is_wrong_is_found(make: Callable[[], Evidence], name: str) -> None:
    assert name in {found for found, _ in check(make())}


def test_every_check_is_tried() -> None:
    assert {name for _, name in BROKEN} == set(CHECKS)


def test_a_loss_with_a_reason_is_none() -> None:
    killed = {"t": 3, "what": "killed", "who": "nemesis", "process": "worker-1-1"}
    unexplained = a_loss_without_a_reason()
    assert not any(
        name == "losses are explained" for name, _ in check(replace(unexplained, lines=[*unexplained.lines, killed]))
    )


def test_a_worker_that_is_started_while_there_is_no_store_may_leave() -> None:
    assert check(a_worker_that_left("PostgreSQL can't be reached")) == []
    assert check(a_worker_that_left("Worker worker-1-1 serves work. PostgreSQL can't be reached"))
