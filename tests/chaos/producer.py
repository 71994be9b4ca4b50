"""A process that enqueues: `python -m chaos.producer SEED RATE`. Ends on SIGTERM, with everything acknowledged.

Each call has its id before it is made. It is written down as asked, then repeated until the store has acknowledged it,
and written down as acknowledged: what was asked and never acknowledged may be there or not, all else must be.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from chaos.app import (
    LEASE,
    apart,
    app,
    doomed,
    joined,
    journal,
    limited,
    member,
    ordered,
    paced,
    probe,
    threaded,
    work,
)
from dibs import group, take
from dibs.errors import StoreError

CUSTOMERS = 8
BACKOFF = 0.2
STEP = 0.05
Ask = Callable[[], object]


class Stop:
    """Whether to leave. A plain flag: an event's lock may be held by the very thread that a signal interrupts."""

    asked = False

    def ask(self, *_: object) -> None:
        self.asked = True

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self.asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, STEP))
        return self.asked


stopping = Stop()


def asked(chance: random.Random) -> Iterator[tuple[list[dict[str, Any]], Ask]]:
    """What to enqueue next: the tasks that it means, and how to ask for them, any number of times."""
    kinds = [one, many, a_long, a_doomed, a_limited, a_paced, an_ordered, a_flow, a_key]
    weights = [8, 2, 2, 1, 4, 4, 3, 1, 1]
    while True:
        (kind,) = chance.choices(kinds, weights)
        yield kind(chance)


def enqueueing(call: Any, using: dict[str, Any], *args: Any, **kwargs: Any) -> Ask:
    """One task by itself, under the same id each time."""
    return lambda: call.task.using(id=call.id, **using).enqueue(*args, **kwargs)


def one(chance: random.Random) -> tuple[list[dict[str, Any]], Ask]:
    task = chance.choices([work, threaded, apart], [10, 4, 1])[0]
    args = {"seconds": chance.choice([0, 0.01, 0.05, 0.3]), "fails": chance.choice([0] * 8 + [1, 2])}
    using: dict[str, Any] = {"priority": chance.choice(["low", "normal", "high", chance.randint(0, 100)])}
    if chance.random() < 0.2:
        using["delay"] = chance.choice([0.1, 0.5, 2])
    call = task.using(**using).call(**args)
    return [{"id": call.id, "name": task.name}], enqueueing(call, using, **args)


def many(chance: random.Random) -> tuple[list[dict[str, Any]], Ask]:
    calls = [work.call(chance.choice([0, 0.01]), 0) for _ in range(chance.randint(2, 20))]
    return [{"id": call.id, "name": "work"} for call in calls], lambda: app.enqueue_many(calls)


def a_long(chance: random.Random) -> tuple[list[dict[str, Any]], Ask]:
    """It outlasts its lease: a worker that stands still finds, when it continues, that another one runs it."""
    task, seconds = chance.choice([work, threaded]), LEASE * chance.uniform(1.5, 2.5)
    call = task.call(seconds)
    return [{"id": call.id, "name": task.name}], enqueueing(call, {}, seconds)


def a_doomed(chance: random.Random) -> tuple[list[dict[str, Any]], Ask]:
    call = doomed.call(0.01)
    return [{"id": call.id, "name": "doomed", "dies": True}], enqueueing(call, {}, 0.01)


def a_limited(chance: random.Random) -> tuple[list[dict[str, Any]], Ask]:
    customer, seconds = f"c{chance.randrange(CUSTOMERS)}", chance.choice([0.01, 0.1])
    call = limited.call(customer, seconds)
    return [{"id": call.id, "name": "limited", "partition": customer}], enqueueing(call, {}, customer, seconds)


def a_paced(chance: random.Random) -> tuple[list[dict[str, Any]], Ask]:
    calls = [paced.call() for _ in range(chance.choice([1, 3]))]
    return [{"id": call.id, "name": "paced"} for call in calls], lambda: app.enqueue_many(calls)


def an_ordered(chance: random.Random) -> tuple[list[dict[str, Any]], Ask]:
    calls = [ordered.using(priority=chance.randint(0, 100)).call(0.02) for _ in range(chance.choice([1, 10]))]
    return [{"id": call.id, "name": "ordered"} for call in calls], lambda: app.enqueue_many(calls)


def a_flow(chance: random.Random) -> tuple[list[dict[str, Any]], Ask]:
    members = [member.call(0.01, chance.choice([0, 0, 0, 1])) for _ in range(chance.randint(2, 6))]
    last = joined.call(take(group(members)))
    told = [{"id": each.id, "name": "member"} for each in members]
    told.append({"id": last.id, "name": "joined", "members": [each.id for each in members]})
    return told, lambda: app.enqueue_workflow(last)


def a_key(chance: random.Random) -> tuple[list[dict[str, Any]], Ask]:
    """Several producers use the same key: the first makes the task, the others get its id."""
    key = f"second-{int(time.monotonic() / 2)}"
    call = work.using(key=key).call(0.01)
    return [{"id": call.id, "name": "work", "key": key}], enqueueing(call, {"key": key}, 0.01)


def probes() -> None:
    """Now and then a task for a worker that has nothing else to do."""
    chance = random.Random()
    while not stopping.wait(chance.uniform(0.5, 1.5)):
        call = probe.call()
        deliver([{"id": call.id, "name": "probe"}], enqueueing(call, {}))


def deliver(tasks: list[dict[str, Any]], ask: Ask) -> None:
    for task in tasks:
        journal.write("asked", **task)
    while True:
        try:
            answer = ask()
        except StoreError as error:
            journal.write("refused", error=type(error).__name__, message=str(error)[:200])
            time.sleep(BACKOFF * random.uniform(0.5, 1))
        else:
            break
    for task in tasks:
        given = answer.id if "key" in task else task["id"]  # type: ignore[attr-defined]
        journal.write("acknowledged", **{**task, "id": given, "own": task["id"]})


def main(seed: int, rate: float) -> None:
    signal.signal(signal.SIGTERM, stopping.ask)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    probing = threading.Thread(target=probes)
    probing.start()
    journal.write("produces", seed=seed)
    due = time.monotonic()
    for tasks, ask in asked(random.Random(seed)):
        deliver(tasks, ask)
        due = max(due + len(tasks) / rate, time.monotonic() - 1)
        if stopping.wait(max(0.0, due - time.monotonic())):
            break
    probing.join()
    app.close()
    journal.write("stops")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
