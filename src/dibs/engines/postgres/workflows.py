"""Workflows as a whole: what they are made of, and cancelling and replaying all of it."""

from __future__ import annotations

from heapq import merge
from itertools import islice
from typing import Any

from msgspec import Struct

from dibs.core.graph import Rule, Verdict, judge
from dibs.core.moves import reblocked, replayed, unblocked
from dibs.core.states import Reason, State
from dibs.core.task import QueueState, TaskRecord
from dibs.engines.base import Changed, Counter, WorkflowRecord, work_topic
from dibs.engines.postgres.admin import cancel_one
from dibs.engines.postgres.records import Records
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.transaction import Errand, Snapshot, Transaction, What
from dibs.engines.postgres.waiting import Done, inherit_anew

__all__ = ["cancel_members", "cancel_workflow", "replay_members", "replay_workflow", "workflow", "workflows"]

REPLAY_BATCH = 100
"""Members that are replayed together; each may have many edges."""

LOWEST = "00000000-0000-0000-0000-000000000000"


class Outgoing(Struct, frozen=True):
    """An edge of a member, open or closed."""

    dependent: str
    slot: int
    prerequisite: str
    rule: Rule


async def workflows(snapshot: Snapshot, limit: int, before: str | None) -> list[WorkflowRecord]:
    rows = await snapshot.rows("workflows", before, limit)
    return await with_counts(snapshot, rows)


async def workflow(snapshot: Snapshot, workflow_id: str) -> WorkflowRecord | None:
    found = await with_counts(snapshot, await snapshot.rows("workflow", workflow_id))
    return found[0] if found else None


async def with_counts(snapshot: Snapshot, rows: list[Any]) -> list[WorkflowRecord]:
    counts = {row["id"]: dict.fromkeys(State, 0) for row in rows}
    for row in await snapshot.rows("count_by_state", list(counts)):
        counts[row["workflow"]][State(row["state"])] += row["n"]
    return [
        WorkflowRecord(
            id=str(row["id"]),
            name=row["name"],
            created_at=row["created_at"],
            total=row["total"],
            counts=counts[row["id"]],
        )
        for row in rows
    ]


async def cancel_workflow(transaction: Transaction, workflow_id: str, note: str, actor: str) -> Changed:
    errand = Errand(What.CANCEL, workflow_id, note=note, actor=actor)
    return await begin(transaction, errand, "cancel workflow", "has_cancellable")


async def replay_workflow(transaction: Transaction, workflow_id: str, actor: str) -> Changed:
    return await begin(transaction, Errand(What.REPLAY, workflow_id, actor=actor), "replay workflow", "has_replayable")


async def begin(transaction: Transaction, errand: Errand, act: str, look: str) -> Changed:
    if not await transaction.rows("workflow", errand.about):
        return Changed.UNKNOWN
    if not await transaction.value(look, errand.about):
        return Changed.UNCHANGED
    transaction.errands.append(errand)
    await transaction.remember(errand.actor, act, errand.about, errand.note)
    return Changed.DONE


async def cancel_members(transaction: Transaction, errands: list[Errand], most: int) -> Done:
    """Cancel the unfinished members of a workflow, by id."""
    errand = errands[0]
    rows = await transaction.rows("members", errand.about, errand.after or LOWEST, most)
    records = Records(transaction)
    for record in records.see(rows):
        cancel_one(transaction, records, record.id, errand.note, errand.actor)
    await records.flush()
    return gone_on(errands, [str(row["id"]) for row in rows], most)


def gone_on(errands: list[Errand], ids: list[str], most: int) -> Done:
    """How far a walk through the members has come."""
    if len(ids) < most:
        return max(1, len(ids)), errands[1:]
    errands[0].after = ids[-1]
    return len(ids), errands


async def replay_members(transaction: Transaction, errands: list[Errand], most: int) -> Done:
    """Run the dead members of a workflow again, and let those wait again that ended because of a dependency."""
    errand, most = errands[0], min(most, REPLAY_BATCH)
    asked = (errand.about, errand.after or LOWEST, most)
    dead = [str(row["id"]) for row in await transaction.rows("dead_members", *asked)]
    stopped = [str(row["id"]) for row in await transaction.rows("cancelled_members", *asked)]
    ids = list(islice(merge(dead, stopped), most))
    replay = await Replay.of(transaction, ids, errand.actor)
    for task_id in ids:
        replay.one(task_id)
    await replay.finish()
    return gone_on(errands, ids, most)


class Replay:
    """Some members of a workflow at work: their records, their edges, and the tasks these lead to."""

    def __init__(self, transaction: Transaction, actor: str) -> None:
        self.transaction = transaction
        self.actor = actor
        self.edges: dict[str, list[Outgoing]] = {}
        self.records = Records(transaction)
        self.opened: list[tuple[str, int, int]] = []
        self.heirs: list[str] = []

    @classmethod
    async def of(cls, transaction: Transaction, ids: list[str], actor: str) -> Replay:
        replay = cls(transaction, actor)
        for row in await transaction.rows("needs", ids):
            edge = Outgoing(str(row["dependent"]), row["slot"], str(row["prerequisite"]), Rule(row["rule"]))
            replay.edges.setdefault(edge.dependent, []).append(edge)
        needed = [edge.prerequisite for edges in replay.edges.values() for edge in edges]
        await replay.records.load([*ids, *needed])
        return replay

    def one(self, task_id: str) -> None:
        record = self.records.get(task_id)
        if record is None or not is_replayable(record):
            return
        queue = self.transaction.make_queue(record.queue)
        if record.reason is Reason.DEPENDENCY:
            verdicts = [self.judge_anew(record, edge) for edge in self.edges.get(record.id, ())]
            if Verdict.CANCEL in verdicts or Verdict.BURY in verdicts:
                self.leave(record)
                return
            self.wait_again(record, verdicts)
        elif queue.state is QueueState.DRAINING:
            self.leave(record)
            return
        else:
            self.records.put(*replayed(record, queue.settings, None, True, self.actor, self.transaction.now))
        self.heirs.append(record.id)
        self.transaction.tally(Counter.REPLAYED, record.queue)
        self.transaction.topics.add(work_topic(record.queue))

    def leave(self, record: TaskRecord) -> None:
        """A member stays as it ended: others may wait for it again, and must not do so for ever."""
        self.transaction.errands.append(Errand(What.ENDED, record.id, record.state))

    def judge_anew(self, dependent: TaskRecord, edge: Outgoing) -> Verdict:
        """An edge's verdict when its workflow is replayed: what is replayed as well is waited for."""
        record = self.records.get(edge.prerequisite)
        if record is None:
            return Verdict.GO
        if record.workflow == dependent.workflow and is_replayable(record):
            return Verdict.WAIT
        return judge(edge.rule, record.state)

    def wait_again(self, record: TaskRecord, verdicts: list[Verdict]) -> None:
        settings, now = self.transaction.settings(record.queue), self.transaction.now
        waiting, entry = reblocked(record, settings, self.actor, now)
        self.records.put(waiting, entry)
        for edge, verdict in zip(self.edges.get(record.id, ()), verdicts, strict=True):
            if verdict is Verdict.WAIT:
                self.opened.append((edge.dependent, edge.slot, waiting.urgency))
                self.heirs.append(edge.prerequisite)
        if Verdict.WAIT not in verdicts:
            self.records.put(unblocked(waiting, settings, now))

    async def finish(self) -> None:
        await self.records.flush()
        if self.opened:
            await self.transaction.write("open_edges", *columns(self.opened, 3))
            slots = {(dependent, slot) for dependent, slot, _ in self.opened}
            followed = {e.prerequisite for es in self.edges.values() for e in es if (e.dependent, e.slot) in slots}
            await self.transaction.write("follow", sorted(followed))
        if self.heirs:
            await inherit_anew(self.transaction, self.heirs)


def is_replayable(record: TaskRecord) -> bool:
    """Whether replaying its workflow touches a task."""
    by_dependency = record.state is State.CANCELLED and record.reason is Reason.DEPENDENCY
    return record.state is State.DEAD or by_dependency
