"""Replaying a workflow as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import islice

from msgspec import Struct

from dibs.core.graph import Rule, Verdict, judge
from dibs.core.moves import reblocked, replayed, unblocked
from dibs.core.states import Reason, State
from dibs.core.task import QueueState, TaskRecord
from dibs.engines.decisions.records import Ledger
from dibs.engines.decisions.steps import Step, StepKind
from dibs.engines.decisions.transaction import Transaction
from dibs.engines.topics import work_topic

__all__ = ["REPLAY_BATCH", "Outgoing", "Replay", "first_members"]

REPLAY_BATCH = 100
"""Members that are replayed together; each may have many edges."""


class Outgoing(Struct, array_like=True, frozen=True):
    """An edge of a member, open or closed."""

    dependent: str
    slot: int
    prerequisite: str
    rule: Rule
    is_open: bool | int


def is_replayable(record: TaskRecord) -> bool:
    """Whether replaying its workflow touches a task."""
    by_dependency = record.state is State.CANCELLED and record.reason is Reason.DEPENDENCY
    return record.state is State.DEAD or by_dependency


def first_members(dead: Iterable[str], stopped: Iterable[str], most: int) -> list[str]:
    """The first members, by id, of the dead and the cancelled ones; both come in order."""
    return list(islice(merge(dead, stopped), most))


class Replay:
    """Replays some members of a workflow; `records` has them and the tasks that their edges lead to."""

    def __init__(self, transaction: Transaction, records: Ledger, edges: Iterable[Outgoing], actor: str) -> None:
        self.transaction = transaction
        self.records = records
        self.actor = actor
        self.edges: dict[str, list[Outgoing]] = {}
        for edge in edges:
            self.edges.setdefault(edge.dependent, []).append(edge)
        self.opened: list[tuple[Outgoing, int]] = []
        """Edges that are open again, and their weights."""
        self.heirs: list[str] = []

    def one(self, task_id: str) -> None:
        record = self.records.get(task_id)
        if record is None or not is_replayable(record):
            return
        queue = self.transaction.make_queue(record.queue)
        if record.reason is Reason.DEPENDENCY:
            verdicts = [self.judge_again(record, edge) for edge in self.edges.get(record.id, ())]
            stays = Verdict.CANCEL in verdicts or Verdict.BURY in verdicts
            if not stays:
                self.wait_again(record, verdicts)
        elif not (stays := queue.state is QueueState.DRAINING):
            self.records.put(*replayed(record, queue.settings, None, True, self.actor, self.transaction.now))
        if stays:  # other tasks may wait for it again, and must not wait for ever
            self.transaction.steps.append(Step(StepKind.RELEASE_DEPENDENTS, record.id, record.state))
            return
        self.heirs.append(record.id)
        self.transaction.topics.add(work_topic(record.queue))

    def judge_again(self, dependent: TaskRecord, edge: Outgoing) -> Verdict:
        """The verdict of an edge in a replay: prerequisites that are replayed too are waited for."""
        record = self.records.get(edge.prerequisite)
        if record is None:
            return Verdict.GO
        if record.spec.workflow == dependent.spec.workflow and is_replayable(record):
            return Verdict.WAIT
        return judge(edge.rule, record.state)

    def wait_again(self, record: TaskRecord, verdicts: list[Verdict]) -> None:
        settings, now = self.transaction.settings(record.queue), self.transaction.now
        waiting, entry = reblocked(record, settings, self.actor, now)
        self.records.put(waiting, entry)
        for edge, verdict in zip(self.edges.get(record.id, ()), verdicts, strict=True):
            if verdict is Verdict.WAIT:
                self.opened.append((edge, waiting.urgency))
                self.heirs.append(edge.prerequisite)
        if Verdict.WAIT not in verdicts:
            self.records.put(unblocked(waiting, settings, now))
