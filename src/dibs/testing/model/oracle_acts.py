"""What operators do, as the oracle has it: acts on tasks and workflows, queues and their settings."""

from __future__ import annotations

from collections import Counter as Numbers
from collections.abc import Sequence
from functools import partial
from itertools import groupby

from msgspec import structs

from dibs.core import moves
from dibs.core.graph import Verdict, judge
from dibs.core.settings import QueueSettings
from dibs.core.states import ENDED, UNFINISHED, WAITING, Reason, State
from dibs.core.task import Edit, EndedBy, QueueRecord, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.values import Act, AuditEntry, Cancel, CancelWorkflow, Changed, Counter, Need, Replay, ReplayWorkflow
from dibs.testing.model.oracle_contents import Contents

__all__ = ["Acts"]


class Acts(Contents):
    """The verbs of operators, but for schedules."""

    def log(self, actor: str, act: str, target: str, detail: str = "") -> Changed:
        self.audit_log.append(AuditEntry(at=self.now, actor=actor, act=act, target=target, detail=detail))
        return Changed.DONE

    async def act(self, acts: Sequence[Act], *, actor: str, now: Instant) -> list[Changed]:
        with self.verb(now):
            alike = groupby(acts, lambda act: Edit(id="") if isinstance(act, Edit) else structs.replace(act, id=""))
            return [answer for _, group in alike for answer in self.act_alike(list(group), actor)]

    def act_alike(self, acts: list[Act], actor: str) -> list[Changed]:
        """Acts that differ in their tasks only: the log has one line for all that changed something."""
        answers, changed = [], []
        for act in acts:
            before = self.tasks.get(act.id)
            answers.append(self.act_on(act, before, actor))
            if self.tasks.get(act.id) is not before:
                changed.append(act.id)
        if changed:
            target = changed[0] if len(changed) == 1 else f"{len(changed)} tasks"
            self.log(actor, *what_and_how(acts[0], target))
        return answers

    def act_on(self, act: Act, task: TaskRecord | None, actor: str) -> Changed:
        if isinstance(act, CancelWorkflow | ReplayWorkflow):
            return self.act_on_workflow(act, actor)
        if task is None:
            return Changed.UNKNOWN
        if isinstance(act, Cancel):
            return self.cancel(task, act.note, actor)
        if isinstance(act, Edit):
            return self.edit(task, act, actor)
        return self.replay(task, act, actor) if isinstance(act, Replay) else self.purge(task)

    def cancel(self, task: TaskRecord, note: str, actor: str) -> Changed:
        if task.state in ENDED:
            return Changed.WRONG_STATE
        if task.cancel_reason is None:
            self.put(*moves.cancelled(task, note, actor, self.now))
        return Changed.REQUESTED if task.state is State.RUNNING else Changed.DONE

    def edit(self, task: TaskRecord, act: Edit, actor: str) -> Changed:
        if task.state not in WAITING:
            return Changed.WRONG_STATE
        after, entry = moves.edited(task, act, self.settings(task.queue), actor, self.now)
        if entry is None:
            return Changed.UNCHANGED
        self.put(after, entry)
        return Changed.DONE

    def replay(self, task: TaskRecord, act: Replay, actor: str) -> Changed:
        if task.state is not State.DEAD:
            return Changed.WRONG_STATE
        queue = self.make_queue(act.queue or task.queue)
        if queue.state is QueueState.DRAINING:
            return Changed.DRAINING
        self.put(*moves.replayed(task, queue.settings, act.queue, act.reset, actor, self.now))
        self.counters[queue.name, Counter.REPLAYED] += 1
        return Changed.DONE

    def purge(self, task: TaskRecord) -> Changed:
        if task.state not in ENDED:
            return Changed.WRONG_STATE
        self.remove(task)
        held = self.keys.get((task.queue, task.spec.key or ""))
        if held is not None and held.task == task.id:
            del self.keys[task.queue, task.spec.key or ""]
        return Changed.DONE

    # Workflows.

    def act_on_workflow(self, act: CancelWorkflow | ReplayWorkflow, actor: str) -> Changed:
        if act.id not in self.workflow_records:
            return Changed.UNKNOWN
        if not any(concerns(act, task) for task in self.members(act.id)):
            return Changed.UNCHANGED
        self.steps.append(partial(self.walk, act, actor))
        return self.log(actor, *what_and_how(act, act.id))

    def walk(self, act: CancelWorkflow | ReplayWorkflow, actor: str) -> None:
        for task in self.members(act.id):
            if not concerns(act, task):
                continue
            if isinstance(act, CancelWorkflow):
                self.put(*moves.cancelled(task, act.note, actor, self.now))
            else:
                self.replay_member(task, actor)

    def replay_member(self, task: TaskRecord, actor: str) -> None:
        """A dead member starts again; one that ended because of a dependency waits again, if its edges let it."""
        queue = self.make_queue(task.queue)
        verdicts = [self.judge_again(task, need) for need in self.needs[task.id]]
        by_dependency = task.reason is Reason.DEPENDENCY
        forbidden = Verdict.CANCEL in verdicts or Verdict.BURY in verdicts
        if forbidden if by_dependency else queue.state is QueueState.DRAINING:
            # It stays as it ended. What has begun to wait for it again must not do so for ever.
            self.steps.append(partial(self.release, EndedBy(task.id, task.state)))
            return
        self.counters[task.queue, Counter.REPLAYED] += 1
        if by_dependency:
            self.wait_again(task, verdicts, actor)
        else:
            self.put(*moves.replayed(task, queue.settings, None, True, actor, self.now))

    def judge_again(self, dependent: TaskRecord, need: Need) -> Verdict:
        """What is replayed as well is waited for; what is gone is no obstacle."""
        task = self.tasks.get(need.id)
        if task is None:
            return Verdict.GO
        together = task.spec.workflow == dependent.spec.workflow and is_replayable(task)
        return Verdict.WAIT if together else judge(need.rule, task.state)

    def wait_again(self, task: TaskRecord, verdicts: list[Verdict], actor: str) -> None:
        settings = self.settings(task.queue)
        waiting, entry = moves.reblocked(task, settings, actor, self.now)
        self.put(waiting, entry)
        for slot, verdict in enumerate(verdicts):
            self.set_open(task.id, slot, verdict is Verdict.WAIT)
        if Verdict.WAIT not in verdicts:
            self.put(moves.unblocked(waiting, settings, self.now))

    # Queues.

    async def set_queue(
        self, name: str, settings: QueueSettings, *, expected: int, actor: str = "", now: Instant
    ) -> QueueRecord | None:
        with self.verb(now):
            old, wanted = self.queue_records.get(name), structs.replace(settings, version=expected + 1)
            if old is not None and old.settings == wanted:
                return old
            if (old.settings.version if old else 0) != expected:
                return None
            self.log(actor, "set queue", name, differences(self.settings(name), wanted))
            self.queue_records[name] = structs.replace(self.make_queue(name), settings=wanted)
            return self.queue_records[name]

    async def set_queue_state(self, name: str, state: QueueState, *, actor: str, now: Instant) -> Changed:
        with self.verb(now):
            if name not in self.queue_records:
                return Changed.UNKNOWN
            if self.is_in(name, state):
                return Changed.UNCHANGED
            self.queue_records[name] = structs.replace(self.queue_records[name], state=state)
            return self.log(actor, f"set queue {state}", name)

    async def delete_queue(self, name: str, *, force: bool, actor: str, now: Instant) -> Changed:
        with self.verb(now):
            if name not in self.queue_records:
                return Changed.UNKNOWN
            if self.tasks_in(UNFINISHED, name) and not force:
                return Changed.WRONG_STATE
            for task in self.tasks_in(WAITING, name):
                self.put(*moves.buried(task, Reason.QUEUE, actor, now))
            del self.queue_records[name], self.clocks[name]
            self.virtual_times = Numbers({whose: at for whose, at in self.virtual_times.items() if whose[0] != name})
            self.buckets = {whose: bucket for whose, bucket in self.buckets.items() if whose[0] != name}
            return self.log(actor, "delete queue", name, "force" if force else "")


def is_replayable(task: TaskRecord) -> bool:
    by_dependency = task.state is State.CANCELLED and task.reason is Reason.DEPENDENCY
    return task.state is State.DEAD or by_dependency


def concerns(act: CancelWorkflow | ReplayWorkflow, member: TaskRecord) -> bool:
    if isinstance(act, ReplayWorkflow):
        return is_replayable(member)
    return member.state in UNFINISHED and member.cancel_reason is None


def what_and_how(act: Act, target: str) -> tuple[str, str, str]:
    """What the log says of an act: what was done, to what, and how."""
    detail = getattr(act, "note", "") or getattr(act, "queue", "") or ""
    return str(act.__struct_config__.tag), target, detail


def differences(old: QueueSettings, new: QueueSettings) -> str:
    """What the log says of settings that have changed."""
    names = [name for name in QueueSettings.__struct_fields__ if name != "version"]
    return ", ".join(f"{name}={getattr(new, name)}" for name in names if getattr(new, name) != getattr(old, name))
