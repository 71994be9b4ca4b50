"""What must hold after any run. Each check is a pure function from evidence to findings; none: all is well."""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from chaos.evidence import Evidence, Run, Task
from chaos.limits import BURST, DOOMED_RETRIES, MAX_CONCURRENT, RATE

__all__ = ["CHECKS", "Finding", "check"]

Finding = tuple[str, str]
"""Which check, and what it found."""

MAX_LOSSES = 6

SETTLED = ("failed", "timed out", "lost", "released", "snoozed")
"""Events that end a lease without ending the task."""

ORDER_SLACK = 2.0
"""Seconds by which a start may be earlier than that of a more urgent task. Rows that another session has locked are
passed over, and are given again a moment later."""

BUNCHING = 8
"""Starts that may come later than the claims that paid for them."""

STORE_IS_AWAY = ("can't be reached", "did not answer in time", "was locked by others", "no space left", "no room left")
"""What a process says that could not open the store."""

CALM = 20.0
"""Seconds after the last fault from which on nothing may be out of the ordinary."""

PROMPT = 3.0
"""Seconds within which an idle worker starts a task in calm times: a wake-up takes milliseconds, the next look by
itself comes after four seconds or more."""


def check(evidence: Evidence) -> list[Finding]:
    """Everything that does not hold."""
    return [(name, what) for name, holds in CHECKS.items() for what in holds(evidence)]


def nothing_is_lost(evidence: Evidence) -> Iterator[str]:
    """Every acknowledged task is there and has ended as it should."""
    for line in evidence.of("acknowledged"):
        task = evidence.tasks.get(line["id"])
        if task is None:
            yield f"{line['name']} {line['id']} was acknowledged and is not there"
        elif problem := wrong_end(task, dies=line.get("dies", False)):
            yield f"{task.name} {task.id} was acknowledged and {problem}"


def wrong_end(task: Task, *, dies: bool) -> str | None:
    if task.state == "dead" and task.reason == "lost" and task.losses >= MAX_LOSSES:
        return None  # each of its losses has to be explained
    if dies:
        right = task.state == "dead" and task.reason == "exhausted" and task.attempts == DOOMED_RETRIES + 1
    else:
        right = task.state == "completed"
    return (
        None if right else f"is {task.state} ({task.reason}) after {task.attempts} failed and {task.losses} lost runs"
    )


def nothing_comes_from_nowhere(evidence: Evidence) -> Iterator[str]:
    """Every task in the store was asked for, and all of them have ended."""
    asked = {line["id"] for line in evidence.of("asked")}
    for task in evidence.tasks.values():
        if task.id not in asked and task.name != "tick":
            yield f"nobody asked for {task.name} {task.id}"
        if task.state not in ("completed", "dead"):
            yield f"{task.name} {task.id} is {task.state} when all is over"


def a_key_is_one_task(evidence: Evidence) -> Iterator[str]:
    """Every caller that asks for a key gets the same task."""
    given: dict[str, set[str]] = defaultdict(set)
    for line in evidence.of("acknowledged"):
        if "key" in line:
            given[line["key"]].add(line["id"])
    for key, ids in given.items():
        if len(ids) > 1:
            yield f"the key {key} was answered with {len(ids)} tasks: {', '.join(sorted(ids))}"


def a_lease_has_one_outcome(evidence: Evidence) -> Iterator[str]:
    """No lease is settled twice, and a completed task's result is that of the lease it completed under."""
    for task in evidence.tasks.values():
        ended = Counter(entry.lease for entry in task.history if entry.event in SETTLED)
        if task.state == "completed":
            ended[task.lease] += 1
            if task.result != task.lease:
                yield f"{task.name} {task.id} completed under lease {task.lease} with the result of lease {task.result}"
        for lease, times in ended.items():
            if times > 1:
                yield f"lease {lease} of {task.name} {task.id} has {times} recorded outcomes"


def every_run_is_accounted_for(evidence: Evidence) -> Iterator[str]:
    """Each run had a lease that the store knows of; no lease was run twice; each completed task has run."""
    for task_id, runs in evidence.runs.items():
        task = evidence.tasks.get(task_id)
        if task is None:
            yield f"{task_id} ran and is not there"
            continue
        known = {entry.lease for entry in task.history} | {task.lease}
        for lease, times in Counter(run.lease for run in runs).items():
            if times > 1:
                yield f"lease {lease} of {task.name} {task_id} was run {times} times"
            if lease not in known:
                yield f"{task.name} {task_id} ran under lease {lease}, of which its history says nothing"
    for task in evidence.tasks.values():
        done = [run for run in evidence.runs.get(task.id, ()) if run.lease == task.lease and run.how == "done"]
        if task.state == "completed" and not done:
            yield f"{task.name} {task.id} completed under lease {task.lease}, under which no run came to its end"


def settled_runs(evidence: Evidence) -> Iterator[tuple[Task, Run, float]]:
    """Runs whose outcome was recorded as theirs, with their end."""
    for task_id, runs in evidence.runs.items():
        task = evidence.tasks.get(task_id)
        if task is None:
            continue
        failed = {entry.lease for entry in task.history if entry.event in ("failed", "timed out")}
        kept = failed | ({task.lease} if task.state == "completed" else set())
        for run in runs:
            if run.lease in kept and run.end is not None:
                yield task, run, run.end


def settled_runs_do_not_overlap(evidence: Evidence) -> Iterator[str]:
    """No two runs of a task whose outcomes count ran at the same time."""
    until: dict[str, tuple[float, Run]] = {}
    for task, run, end in sorted(settled_runs(evidence), key=lambda each: each[1].start):
        before = until.get(task.id)
        if before is not None and run.start < before[0]:
            yield f"{task.name} {task.id}: runs under leases {before[1].lease} and {run.lease} overlap, and both count"
        until[task.id] = (end, run)


def limits_hold(evidence: Evidence) -> Iterator[str]:
    """By the journal: of runs that count, one at a time per partition, and no more than may run in all."""
    mine = [each for each in settled_runs(evidence) if each[0].queue == "limited"]
    for partition, most, runs in [
        *((name, 1, runs) for name, runs in by_partition(mine).items()),
        ("the queue", MAX_CONCURRENT, [(run.start, end) for _, run, end in mine]),
    ]:
        seen = most_at_once(runs)
        if seen > most:
            yield f"{seen} tasks of {partition} ran at once, and {most} may"


def by_partition(runs: Iterable[tuple[Task, Run, float]]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for task, run, end in runs:
        found[str(task.partition)].append((run.start, end))
    return found


def most_at_once(runs: Iterable[tuple[float, float]]) -> int:
    steps = sorted(step for start, end in runs for step in ((start, 1), (end, -1)))
    most = now = 0
    for _, by in steps:
        now += by
        most = max(most, now)
    return most


def rates_hold(evidence: Evidence) -> Iterator[str]:
    """By the journal, whose clock is never moved; a store's clock that is put forward fills the bucket."""
    moved = [line["t"] for line in evidence.of("clock") if line["by"] > 0]
    starts = sorted(run.start for task_id, runs in evidence.runs.items() for run in runs if is_paced(evidence, task_id))
    tokens, last = float(BURST), evidence.began
    for at in starts:
        refilled = any(last < moment <= at for moment in moved)
        tokens = float(BURST) if refilled else min(BURST, tokens + RATE * (at - last))
        tokens -= 1
        last = at
        if tokens < -slack_at(evidence, at):
            yield f"{-tokens:.0f} starts more than {RATE:.0f} a second allow, {at - evidence.began:.1f} s into the run"
            return


def is_paced(evidence: Evidence, task_id: str) -> bool:
    task = evidence.tasks.get(task_id)
    return task is not None and task.queue == "paced"


def slack_at(evidence: Evidence, at: float) -> float:
    """A worker that stood still starts late what it claimed before: all its slots at once."""
    stood = [spell for spell in evidence.spells if spell.kind in ("stop", "stop-all", "stall", "stall-all", "freeze")]
    return 4 * BUNCHING if any(spell.begin <= at <= spell.end + CALM for spell in stood) else BUNCHING


def order_holds(evidence: Evidence) -> Iterator[str]:
    """By the store's clock: in a strict queue nothing starts while something more urgent waits."""
    for late, early, seconds in inversions(evidence, ORDER_SLACK):
        who, whom = f"{early.id} (priority {early.priority})", f"{late.id} (priority {late.priority})"
        yield f"ordered {who} started {seconds:.1f} s before {whom}, which waited as well"


def inversions(evidence: Evidence, slack: float) -> Iterator[tuple[Task, Task, float]]:
    """Tasks that ran once, overtaken by less urgent ones although they had waited `slack` seconds, by as much."""
    moves = [(min(line["before"], line["after"]), max(line["before"], line["after"])) for line in evidence.of("clock")]
    clean = [task for task in evidence.tasks.values() if task.queue == "ordered" and ran_once(task, moves)]
    by_ready = sorted(clean, key=lambda task: task.ready_at or 0)
    waiting: list[tuple[tuple[int, float, str], Task]] = []
    place = 0
    for task in sorted(clean, key=lambda task: task.started_at or 0):
        started = task.started_at or 0
        while place < len(by_ready) and (by_ready[place].ready_at or 0) < started - slack:
            heapq.heappush(waiting, (urgency(by_ready[place]), by_ready[place]))
            place += 1
        while waiting and (waiting[0][1].started_at or 0) <= started + slack:
            heapq.heappop(waiting)
        if waiting and waiting[0][0] < urgency(task):
            other = waiting[0][1]
            yield other, task, (other.started_at or 0) - started


def urgency(task: Task) -> tuple[int, float, str]:
    return (-task.priority, task.ready_at or 0, task.id)


def ran_once(task: Task, moves: Iterable[tuple[float, float]]) -> bool:
    """Under its first lease, as no other has left a trace; and no clock was set while it waited."""
    if task.state != "completed" or task.history or task.ready_at is None or task.started_at is None:
        return False
    return not any(task.ready_at - CALM < after and before < task.started_at + CALM for before, after in moves)


def schedules_fire_once(evidence: Evidence) -> Iterator[str]:
    """One task for each second from the first fire to the last."""
    fires = sorted(datetime.fromisoformat(task.fire_time) for task in evidence.tasks.values() if task.fire_time)
    for fire, times in Counter(fires).items():
        if times > 1:
            yield f"{times} tasks for the fire of {fire.isoformat()}"
    for before, after in pairwise(fires):
        if after - before > timedelta(seconds=1):
            yield f"no fire between {before.isoformat()} and {after.isoformat()}"


def joins_run_once(evidence: Evidence) -> Iterator[str]:
    """A task that waits for others starts when all of them have completed, and not before."""
    ends = {task.id: end for task, _, end in settled_runs(evidence) if task.state == "completed"}
    for line in evidence.of("acknowledged"):
        if line["name"] != "joined":
            continue
        runs = evidence.runs.get(line["id"], [])
        early = [one for one in line["members"] for run in runs if ends.get(one, float("inf")) > run.start]
        if early:
            yield f"joined {line['id']} ran before {len(early)} of its members had completed"


def losses_are_explained(evidence: Evidence) -> Iterator[str]:
    """Only a worker that was killed, or that alone stood still or was cut off, loses a lease."""
    killed = {line["process"] for line in evidence.of("killed")}
    alone = {line["process"] for line in evidence.of("stopped")} | cut_off(evidence)
    left = left_during_an_outage(evidence)
    for task in evidence.tasks.values():
        for entry in task.history:
            if entry.event == "lost" and entry.worker not in killed | alone | left:
                yield f"{task.name} {task.id} was taken from {entry.worker}, which was alive, under lease {entry.lease}"


def cut_off(evidence: Evidence) -> set[str]:
    """Workers that alone could not reach the store for a while."""
    hit = set()
    for spell in evidence.spells:
        if spell.kind in ("sever", "stall"):
            hit |= {who for who, begin, end in lives(evidence) if is_at(who, spell.target, begin, end, spell.begin)}
    return hit


def is_at(who: str, place: str, begin: float, end: float, at: float) -> bool:
    return who.rpartition("-")[0] == place and begin <= at <= end


def left_during_an_outage(evidence: Evidence) -> set[str]:
    """Workers that were told to leave while the store was away: nobody took back from them what they had."""
    away = [spell for spell in evidence.spells if spell.target == "all" and spell.kind not in ("pause", "clock")]
    told = [(line["t"], line["target"]) for line in evidence.of("fault") if line["kind"] == "replace"]
    found = set()
    for who, begin, end in lives(evidence):
        for at, place in told:
            if is_at(who, place, begin, end, at) and any(s.begin - 1 < end and at < s.end + CALM for s in away):
                found.add(who)
    return found


def lives(evidence: Evidence) -> list[tuple[str, float, float]]:
    """From when to when each process lived."""
    begun = {line["process"]: line["t"] for line in evidence.of("started")}
    gone = {line["process"]: line["t"] for line in [*evidence.of("gone"), *evidence.of("left")]}
    return [(who, begin, gone.get(who, evidence.ended)) for who, begin in begun.items()]


DEATH = re.compile(r"^[^\n]* is dead \([^\n]*\n(?:Traceback[^\n]*\n(?: [^\n]*\n)*[^\n]*\n)?", re.MULTILINE)
"""What a worker logs of a task that is dead: the error is the task's."""


def nobody_leaves(evidence: Evidence) -> Iterator[str]:
    """Processes end when they are told to or killed, in good order."""
    for line in evidence.of("gone"):
        if not line["expected"] and not could_not_start(evidence, line["process"], line["code"]):
            yield f"{line['process']} left by itself with code {line['code']}: {last_words(evidence, line['process'])}"
    for line in evidence.of("left"):
        if line["code"] not in (0, -9, None):
            yield f"{line['process']} left with code {line['code']}: {last_words(evidence, line['process'])}"
    for line in evidence.of("stuck"):
        yield f"{line['process']} did not leave when told to"
    for who, log in evidence.logs.items():
        text = DEATH.sub("", log)
        if "Traceback" in text:
            yield f"{who} logged an error that nobody handled: {text[text.rindex('Traceback') :][-300:]!r}"


def could_not_start(evidence: Evidence, who: str, code: int) -> bool:
    """A process that is started while there is no store says so and leaves, for others to start it again."""
    (life,) = [(begin, end) for name, begin, end in lives(evidence) if name == who]
    said = evidence.logs.get(who, "")
    away = not is_calm(evidence, life[0] - CALM, life[1])
    return code == 1 and away and " serves " not in said and any(words in said for words in STORE_IS_AWAY)


def last_words(evidence: Evidence, who: str) -> str:
    return repr(evidence.logs.get(who, "")[-300:])


def idle_workers_wake(evidence: Evidence) -> Iterator[str]:
    """In calm times a worker that has nothing else to do starts a task at once."""
    slow = [(waited, task_id) for waited, task_id in calm_waits(evidence) if waited > PROMPT]
    if slow:
        waited, task_id = max(slow)
        yield f"probe {task_id} waited {waited:.1f} s in calm times, and {len(slow) - 1} others over {PROMPT:.0f} s"


def calm_waits(evidence: Evidence) -> Iterator[tuple[float, str]]:
    """How long probes waited that were enqueued long after the last fault and long before the next."""
    for line in evidence.of("acknowledged"):
        runs = evidence.runs.get(line["id"], [])
        if line["name"] == "probe" and runs and is_calm(evidence, line["t"] - CALM / 2, line["t"] + PROMPT):
            yield max(0.0, runs[0].start - line["t"]), line["id"]


def is_calm(evidence: Evidence, begin: float, end: float) -> bool:
    """Whether nothing happened that an idle worker could feel."""
    felt = [spell for spell in evidence.spells if spell.kind != "pause"]
    return not any(spell.begin < end and begin < spell.end for spell in felt)


CHECKS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    each.__name__.replace("_", " "): each
    for each in (
        nothing_is_lost,
        nothing_comes_from_nowhere,
        a_key_is_one_task,
        a_lease_has_one_outcome,
        every_run_is_accounted_for,
        settled_runs_do_not_overlap,
        limits_hold,
        rates_hold,
        order_holds,
        schedules_fire_once,
        joins_run_once,
        losses_are_explained,
        nobody_leaves,
        idle_workers_wake,
    )
}
