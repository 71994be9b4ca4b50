"""What `dibs demo` promises about its workflow, its limit per customer, its tenants and its schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from msgspec import Struct

from dibs.client.app import Dibs
from dibs.client.schedules import ScheduleInfo
from dibs.client.tasks import Filter
from dibs.core.task import TaskRecord
from dibs.demo.plan import LARGE, SMALL

__all__ = ["Promise", "special_promises"]


ADDS_UP = "demo.add_up"


class Promise(Struct, frozen=True, kw_only=True):
    promise: str
    kept: bool
    detail: str


def special_promises(app: Dibs, ended: Sequence[TaskRecord], ticks: ScheduleInfo) -> Iterator[Promise]:
    yield results_handed_on([record for record in ended if record.spec.workflow is not None])
    yield one_at_a_time([record for record in ended if record.spec.partition is not None])
    yield fair_shares([record for record in ended if record.spec.tenant])
    yield one_task_per_fire(app, ticks)


def results_handed_on(members: Sequence[TaskRecord]) -> Promise:
    """The last task of the workflow started when all others had ended, with their results."""
    name = "a workflow waits, and hands its results on"
    parts = [record for record in members if record.name != ADDS_UP]
    whole = [record for record in members if record.name == ADDS_UP and record.result is not None]
    if not parts or not whole:
        return Promise(promise=name, kept=False, detail="it has not ended")
    waited = max(record.finished_at or 0 for record in parts) <= (whole[0].started_at or 0)
    total, found = sum(int(record.result or 0) for record in parts), int(whole[0].result or 0)
    detail = f"{len(parts)} results add up to {total}, and the task that waited for them found {found}"
    return Promise(promise=name, kept=waited and total == found, detail=detail)


def one_at_a_time(charges: Sequence[TaskRecord]) -> Promise:
    """No two runs for one customer overlap."""
    by_customer: dict[str, list[tuple[int, int]]] = {}
    for record in charges:
        runs = by_customer.setdefault(record.spec.partition or "", [])
        runs.append((record.started_at or 0, record.finished_at or 0))
    overlaps = sum(later[0] < earlier[1] for runs in by_customer.values() for earlier, later in pairwise(sorted(runs)))
    detail = f"{len(charges)} charges to {len(by_customer)} customers, {overlaps} overlapped"
    return Promise(promise="one at a time per customer", kept=bool(charges) and not overlaps, detail=detail)


def fair_shares(imports: Sequence[TaskRecord]) -> Promise:
    """The small tenant, which came last, had about every other turn; the killed worker lost some."""
    starts = sorted(imports, key=lambda record: record.started_at or 0)
    places = [place for place, record in enumerate(starts, 1) if record.spec.tenant == SMALL]
    kept = bool(places) and median(places) <= 2 * len(places)
    numbers = ", ".join(str(place) for place in places)
    detail = (
        f"of {len(starts)} starts, the {SMALL} had numbers {numbers}, though the {LARGE} came first with all its tasks"
    )
    return Promise(promise="no tenant waits for another's backlog", kept=kept, detail=detail)


def one_task_per_fire(app: Dibs, ticks: ScheduleInfo) -> Promise:
    """As many tasks as fires, no two for the same time; other runs in the same store had fires of their own."""
    found = app.tasks.search(Filter(name=ticks.task, created_after=ticks.created_at), limit=1000).tasks
    times = [info.headers["fire-time"] for info in found]
    kept = 1 <= ticks.fired == len(times) == len(set(times))
    detail = f"a schedule fired {ticks.fired} times, {len(times)} tasks were enqueued for it"
    return Promise(promise="one task for each fire of a schedule", kept=kept, detail=detail)
