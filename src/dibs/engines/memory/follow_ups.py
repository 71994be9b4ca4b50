"""Follow-ups: releasing dependents, passing on urgency, cancelling and replaying workflows."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest

from dibs.core.graph import FOLLOW_UP_BUDGET, Verdict, judge
from dibs.core.moves import cancelled, ended_by, inherits, reblocked, replayed, unblocked
from dibs.core.states import ENDED, UNFINISHED, Reason, State
from dibs.core.task import EndedBy, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.memory.edges import FollowUp, FollowUpKind
from dibs.engines.memory.store import Store
from dibs.engines.topics import ended_topic, work_topic, worker_topic
from dibs.engines.values import Counter, Need

__all__ = ["is_replayable", "recompute", "run_follow_ups"]


def run_follow_ups(store: Store, now: Instant) -> None:
    """Continue with what is left, up to the budget."""
    left = FOLLOW_UP_BUDGET
    follow_ups = store.edges.follow_ups
    while follow_ups and left > 0:
        follow_up = follow_ups[0]
        taken, finished = STEPS[follow_up.what](store, follow_up, left, now)
        left -= taken
        if finished:
            follow_ups.remove(follow_up)


def follow_end(store: Store, follow_up: FollowUp, most: int, now: Instant) -> tuple[int, bool]:
    """Judge the open edges that lead to a task that has ended."""
    followed = store.edges.followed.get(follow_up.id)
    if followed is None:
        return 1, True
    links, cause = nsmallest(most, followed.links), EndedBy(follow_up.id, follow_up.state)
    for link in links:
        verdict = judge(store.edges.rule(link), follow_up.state)
        apply(store, store.tasks[link[0]], link[1], verdict, cause, now)
    if not followed.links:
        del store.edges.followed[follow_up.id]
    return max(1, len(links)), not followed.links


def apply(store: Store, dependent: TaskRecord, position: int, verdict: Verdict, cause: EndedBy, now: Instant) -> None:
    """Apply the verdict of an edge."""
    store.edges.close(dependent.id, position)
    if dependent.state in ENDED:
        return
    if verdict is Verdict.CANCEL or verdict is Verdict.BURY:
        store.put(*ended_by(dependent, verdict, cause, now))
        store.topics.add(ended_topic(dependent.queue))
    elif not store.edges.open_needs[dependent.id]:
        store.put(unblocked(dependent, store.settings(dependent.queue), now))
        store.topics.add(work_topic(dependent.queue))


def close_edges(store: Store, follow_up: FollowUp, most: int, now: Instant) -> tuple[int, bool]:
    """Close the edges of a task that has ended."""
    return walk(store, follow_up, most, now, store.edges.close)


def pass_on_urgency(store: Store, follow_up: FollowUp, most: int, now: Instant) -> tuple[int, bool]:
    """Pass a task's new urgency on to what it waits for."""

    def tell(dependent: str, position: int) -> None:
        if dependent in store.tasks:
            store.edges.pass_on_urgency(dependent, position, store.tasks[dependent].urgency)

    return walk(store, follow_up, most, now, tell)


def walk(
    store: Store, follow_up: FollowUp, most: int, now: Instant, act: Callable[[str, int], None]
) -> tuple[int, bool]:
    """Do something to the open edges of a task, then recompute the urgency of the tasks they lead to."""
    needs = store.edges.needs.get(follow_up.id, [])
    upto = min(follow_up.at + most, len(needs))
    for position in range(follow_up.at, upto):
        if needs[position].is_open:
            prerequisite = needs[position].id
            act(follow_up.id, position)
            recompute(store, prerequisite, now)
    taken, follow_up.at = upto - follow_up.at, upto
    return max(1, taken), upto == len(needs)


def recompute(store: Store, task_id: str, now: Instant) -> None:
    """Give an unfinished task the urgency of the most urgent one that waits for it."""
    record = store.tasks.get(task_id)
    if record is None or record.state not in UNFINISHED:
        return
    inherited = store.edges.heaviest(task_id, store.tasks)
    if inherited != record.inherited:
        store.put(inherits(record, inherited, store.settings(record.queue), now))


def cancel_members(store: Store, follow_up: FollowUp, most: int, now: Instant) -> tuple[int, bool]:
    def act(record: TaskRecord) -> None:
        if record.state in ENDED or (record.state is State.RUNNING and record.cancel_reason is not None):
            return
        store.put(*cancelled(record, follow_up.note, follow_up.actor, now))
        running = record.state is State.RUNNING
        store.topics.add(worker_topic(record.worker or "") if running else ended_topic(record.queue))

    return each_member(store, follow_up, most, act)


def replay_members(store: Store, follow_up: FollowUp, most: int, now: Instant) -> tuple[int, bool]:
    def act(record: TaskRecord) -> None:
        if not is_replayable(record):
            return
        queue = store.queue(record.queue)
        if record.reason is Reason.DEPENDENCY:
            stays = not wait_again(store, record, follow_up.actor, now)
        elif not (stays := queue.state is QueueState.DRAINING):
            store.put(*replayed(record, queue.settings, None, True, follow_up.actor, now))
            recompute(store, record.id, now)
            audit_replay(store, record)
        if stays:  # other tasks may wait for it again, and must not wait for ever
            store.edges.follow_ups.append(FollowUp(FollowUpKind.RELEASE_DEPENDENTS, record.id, record.state))

    return each_member(store, follow_up, most, act)


def each_member(store: Store, follow_up: FollowUp, most: int, act: Callable[[TaskRecord], None]) -> tuple[int, bool]:
    members = store.workflows[follow_up.id].members
    upto = min(follow_up.at + most, len(members))
    for task_id in members[follow_up.at : upto]:
        if task_id in store.tasks and store.tasks[task_id].spec.workflow == follow_up.id:
            act(store.tasks[task_id])
    taken, follow_up.at = upto - follow_up.at, upto
    return max(1, taken), upto == len(members)


def is_replayable(record: TaskRecord) -> bool:
    """Whether replaying its workflow touches a task."""
    by_dependency = record.state is State.CANCELLED and record.reason is Reason.DEPENDENCY
    return record.state is State.DEAD or by_dependency


def wait_again(store: Store, record: TaskRecord, actor: str, now: Instant) -> bool:
    """Block a task again that ended because of a dependency; False if its edges still end it."""
    needs = store.edges.needs.get(record.id, [])
    verdicts = [judge_again(store, record, need) for need in needs]
    if Verdict.CANCEL in verdicts or Verdict.BURY in verdicts:
        return False
    settings = store.queue(record.queue).settings
    waiting, entry = reblocked(record, settings, actor, now)
    store.put(waiting, entry)
    for position, verdict in enumerate(verdicts):
        if verdict is Verdict.WAIT:
            store.edges.open(record.id, position, waiting.urgency)
            recompute(store, needs[position].id, now)
    if not store.edges.open_needs[record.id]:
        store.put(unblocked(waiting, settings, now))
    recompute(store, record.id, now)
    audit_replay(store, record)
    return True


def judge_again(store: Store, dependent: TaskRecord, need: Need) -> Verdict:
    """The verdict of an edge in a replay: prerequisites that are replayed too are waited for."""
    record = store.tasks.get(need.id)
    if record is None:
        return Verdict.GO
    if record.spec.workflow == dependent.spec.workflow and is_replayable(record):
        return Verdict.WAIT
    return judge(need.rule, record.state)


def audit_replay(store: Store, record: TaskRecord) -> None:
    store.counters[record.queue][Counter.REPLAYED] += 1
    store.topics.add(work_topic(record.queue))


STEPS = {
    FollowUpKind.RELEASE_DEPENDENTS: follow_end,
    FollowUpKind.CLOSE_EDGES: close_edges,
    FollowUpKind.INHERIT_URGENCY: pass_on_urgency,
    FollowUpKind.CANCEL: cancel_members,
    FollowUpKind.REPLAY: replay_members,
}
