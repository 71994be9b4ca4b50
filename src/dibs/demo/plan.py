"""What `dibs demo` enqueues, and what must become of it. Nothing is random: the same number gives the same plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from dibs.client.app import Dibs
from dibs.client.flow import group
from dibs.client.options import Priority
from dibs.client.take import take
from dibs.client.task import Call
from dibs.core.states import State

__all__ = ["LARGE", "SMALL", "Planned", "count_ends", "make_plan"]

CUSTOMERS = 5
LARGE, SMALL, FEW = "large tenant", "small tenant", 5

PRIORITIES: tuple[Priority, ...] = (
    "low",
    "normal",
    "normal",
    "high",
    "normal",
    "low",
    "normal",
    "low",
    "normal",
    "critical",
)
"""Dealt out in turn: of ten tasks one is critical, one high, five normal, three low."""

WORK = ("demo.send_mail", "demo.build_report", "demo.resize_image")


class Planned(Struct, frozen=True, kw_only=True):
    """One call and its expected end; `later`: enqueued alone while the rest runs; `flow`: part of the workflow."""

    call: Call[Any]
    expected: State
    attempts: int = 0
    number: int = 0
    later: bool = False
    cancel: bool = False
    flow: bool = False


def make_plan(app: Dibs, count: int) -> list[Planned]:
    """`count` tasks: mostly work, some late, some flaky, some doomed, two that are cancelled, and the special ones."""
    special = [*charges(app, count // 40), *imports(app, count // 20), *prices(app, count // 100)]
    plan = [plan_one(app, number, count) for number in range(count - 2 - len(special))]
    waiting = app.task_named("demo.send_mail").using(delay=3600).call(number=count - 2)
    running = app.task_named("demo.endless").call(number=count - 1)
    plan += [Planned(call=call, expected=State.CANCELLED, cancel=True) for call in (waiting, running)]
    return plan + special


def charges(app: Dibs, count: int) -> Iterator[Planned]:
    """Of each customer, one at a time."""
    for number in range(count):
        call = app.task_named("demo.charge").call(number=number, customer=f"customer {number % CUSTOMERS}")
        yield Planned(call=call, expected=State.COMPLETED, number=number)


def imports(app: Dibs, count: int) -> Iterator[Planned]:
    """Many of one tenant, then a few of another."""
    for number in range(count):
        tenant = LARGE if number < count - FEW else SMALL
        call = app.task_named("demo.import_rows").using(tenant=tenant).call(number=number)
        yield Planned(call=call, expected=State.COMPLETED, number=number)


def prices(app: Dibs, count: int) -> list[Planned]:
    """A workflow: some results, and a task that adds them up."""
    parts = [app.task_named("demo.look_up_price").call(number=number) for number in range(count)]
    whole = app.task_named("demo.add_up").call(prices=take(group(parts)))
    planned = [
        Planned(call=call, expected=State.COMPLETED, number=number, flow=True) for number, call in enumerate(parts)
    ]
    return [*planned, Planned(call=whole, expected=State.COMPLETED, number=sum(range(count)), flow=True)]


def plan_one(app: Dibs, number: int, count: int) -> Planned:
    if number % 100 in (13, 63):
        return Planned(call=app.task_named("demo.doomed").call(number=number), expected=State.DEAD, attempts=2)
    if number % 200 == 77:
        return Planned(call=app.task_named("demo.malformed").call(number=number), expected=State.DEAD, attempts=1)
    priority = PRIORITIES[number % 10]
    if number % 33 == 5:
        failures = 1 + number % 2
        task = app.task_named("demo.flaky").using(priority=priority)
        call = task.call(number=number, failures=failures)
        return Planned(call=call, expected=State.COMPLETED, attempts=failures, number=number)
    task = app.task_named(WORK[number % 3]).using(priority=priority)
    if number % 20 == 11:
        task = task.using(delay=1 + number % 5)
    later = number % 10 == 9 and number > count // 10
    return Planned(call=task.call(number=number), expected=State.COMPLETED, number=number, later=later)


def count_ends(states: Iterable[State]) -> dict[str, int]:
    """How many there are of each end state."""
    counted = Counter(states)
    return {str(state): counted[state] for state in (State.COMPLETED, State.DEAD, State.CANCELLED)}
