"""How the answers of several parts become one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec import structs

from dibs.core.schedules import ScheduleRecord
from dibs.core.task import QueueRecord, WorkerState
from dibs.core.times import SECOND
from dibs.engines.figures import Counts
from dibs.engines.redis.sharding.shards import Shard
from dibs.engines.steps import StepRecord
from dibs.engines.values import (
    About,
    AuditEntry,
    Changed,
    ChoreRecord,
    Feature,
    Finding,
    Fired,
    Level,
    Page,
    Rescued,
    WorkerRecord,
    WorkflowRecord,
)
from dibs.errors import StoreError

__all__ = [
    "about",
    "audit",
    "by_name",
    "chore",
    "counts",
    "findings",
    "fired",
    "first_known",
    "flat",
    "page",
    "records",
    "rescued",
    "state_to_obey",
    "workers",
]

Item = TypeVar("Item")
Named = TypeVar("Named", QueueRecord, ScheduleRecord)
Record = TypeVar("Record", WorkflowRecord, StepRecord)

OBEYED = (WorkerState.DRAINING, WorkerState.PAUSED, WorkerState.ACTIVE, WorkerState.DEAD)
"""States of a worker that differ between parts: the first of them counts."""
SAME_ACT = 10 * SECOND
"""What was done to a worker in several parts within this time was one act."""


def flat(answers: Iterable[Sequence[Item]]) -> list[Item]:
    return [each for answer in answers for each in answer]


def by_name(answers: Iterable[Sequence[Named]]) -> list[Named]:
    """If a name is in two parts, because it moves just now, the first counts."""
    found: dict[str, Named] = {}
    for each in flat(answers):
        found.setdefault(each.name, each)
    return [found[name] for name in sorted(found)]


def records(answers: Iterable[Sequence[Record]], ids: Sequence[str] | None, limit: int) -> list[Record]:
    """Those of some ids in their order, or the newest."""
    found = {each.id: each for each in flat(answers)}
    if ids is not None:
        return [found[each] for each in ids if each in found]
    return sorted(found.values(), key=lambda each: each.id, reverse=True)[:limit]


def page(pages: Sequence[Page], limit: int) -> Page:
    """Down to the highest cursor all parts have been searched; what is below comes with the next page."""
    floor = max((each.cursor for each in pages if each.cursor is not None), default=None)
    tasks = [task for each in pages for task in each.tasks if floor is None or task.id >= floor]
    tasks.sort(key=lambda task: task.id, reverse=True)
    cursor = tasks[limit - 1].id if 0 < limit < len(tasks) else floor
    return Page(tasks[:limit] if limit else tasks, cursor, sum(each.visited for each in pages))


def counts(answers: Sequence[Counts]) -> Counts:
    whole = Counts({}, {}, [], {})
    for each in answers:
        whole.tasks.update(each.tasks)
        whole.counters.update(each.counters)
        whole.kinds.extend(each.kinds)
        whole.errors.update(each.errors)
    return whole


def state_to_obey(states: Sequence[WorkerState]) -> WorkerState:
    return min(states, key=OBEYED.index)


def workers(answers: Iterable[Sequence[WorkerRecord]]) -> list[WorkerRecord]:
    """One record of each worker: what it said last, and since when it is known anywhere."""
    found: dict[str, WorkerRecord] = {}
    for each in flat(answers):
        other = found.get(each.id, each)
        newer = max(each, other, key=lambda record: (record.state is not WorkerState.DEAD, record.seen_at))
        state = state_to_obey([each.state, other.state])
        found[each.id] = structs.replace(newer, state=state, started_at=min(each.started_at, other.started_at))
    return [found[worker] for worker in sorted(found)]


def first_known(answers: Sequence[Changed]) -> Changed:
    """What was done, if anything was, else why not."""
    told = (Changed.DONE, Changed.REQUESTED, Changed.UNREADABLE, Changed.WRONG_STATE, Changed.UNCHANGED)
    return next((each for each in told if each in answers), Changed.UNKNOWN)


def rescued(answers: Sequence[Rescued]) -> Rescued:
    """By the clock of the first. If one has stalled, others' leases are left alone everywhere."""
    return Rescued(
        lost=flat(each.lost for each in answers),
        workers=sorted({worker for each in answers for worker in each.workers}),
        more=any(each.more for each in answers),
        at=answers[0].at,
        stalled=any(each.stalled for each in answers),
    )


def fired(answers: Sequence[Fired]) -> Fired:
    return Fired(
        flat(each.tasks for each in answers),
        sum(each.skipped for each in answers),
        min((each.next_due_in for each in answers if each.next_due_in is not None), default=None),
        flat(each.broken for each in answers),
    )


def chore(answers: Sequence[ChoreRecord]) -> ChoreRecord:
    return ChoreRecord(
        name=answers[0].name,
        at=max(each.at for each in answers),
        took=max(each.took for each in answers),
        done=sum(each.done for each in answers),
        more=any(each.more for each in answers),
        behind_since=min((each.behind_since for each in answers if each.behind_since), default=0),
        total=sum(each.total for each in answers),
    )


def audit(answers: Sequence[Sequence[AuditEntry]], limit: int) -> list[AuditEntry]:
    """Newest first. What was done to a worker stands in each part that it serves, and here once."""
    found: list[AuditEntry] = []
    for entry in sorted(flat(answers), key=lambda each: each.at, reverse=True):
        of_worker = entry.act.startswith("set worker ")
        if not (of_worker and any(is_same(entry, other) for other in reversed(found))):
            found.append(structs.replace(entry, n=entry.at))
    return found[:limit]


def is_same(entry: AuditEntry, other: AuditEntry) -> bool:
    one, two = (structs.replace(each, at=0, n=0) for each in (entry, other))
    return one == two and abs(other.at - entry.at) < SAME_ACT


def about(answers: Sequence[About], features: frozenset[Feature]) -> About:
    """The first is the root's, whose identity is that of the store."""
    by_chore = zip(*(each.chores for each in answers), strict=True)
    return About(
        features=features,
        durability=" ".join(dict.fromkeys(each.durability for each in answers)),
        identity=answers[0].identity,
        chores=[chore(same) for same in by_chore],
        evicted=max((each.evicted for each in answers if each.evicted is not None), default=None),
    )


def is_fine(finding: Finding) -> bool:
    """Whether it says that counts agree, which each part says of its own."""
    return finding.level is Level.OK and finding.title == "counts"


def findings(asked: Sequence[tuple[Shard, list[Finding] | StoreError]]) -> list[Finding]:
    """All that the root says; of each queue what is wrong there."""
    found: list[Finding] = []
    wrong: dict[Finding, None] = {}
    for shard, answer in asked:
        if isinstance(answer, StoreError):
            wrong[Finding(Level.ERROR, f"queue {shard.queue}" if shard.queue else "root", str(answer))] = None
        elif not shard.queue:
            found += [each for each in answer if each.title != "counts"]
        else:
            found += [Finding(each.level, f"counts of {shard.queue}", each.detail) for each in answer if is_fine(each)]
            wrong.update(dict.fromkeys(each for each in answer if each.level is not Level.OK))
    queues = len([shard for shard, _ in asked if shard.queue])
    found.append(Finding(Level.OK, "shards", f"{queues} queues, each with a hash tag of its own"))
    return [*found, *(each for each in wrong if each not in found)]
