"""Carries a plan out, and writes down what it did to whom, and from when to when."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Sequence
from itertools import count

from chaos.clocks import Clocks
from chaos.journal import Journal
from chaos.plan import ALL, Fault
from chaos.processes import Processes
from chaos.stage import Stage, Undo, nothing
from dibs import Dibs
from dibs.errors import DibsError

__all__ = ["PROCESS_FAULTS", "Nemesis"]

PROCESS_FAULTS = {
    "kill": "worker",
    "kill-producer": "producer",
    "stop": "worker",
    "stop-all": ALL,
    "replace": "worker",
    "pause": ALL,
    "clock": ALL,
}
"""What can be done on any store, and whom it hits."""

TICK = 0.05
AGAIN = 0.5
"""Seconds before something is tried again that the store did not do."""

QUEUES = ("work", "limited", "paced", "ordered", "flows")


class Nemesis:
    """One run of a plan."""

    def __init__(
        self, stage: Stage, processes: Processes, app: Dibs, clocks: Clocks, journal: Journal, seed: int
    ) -> None:
        self.stage = stage
        self.processes = processes
        self.app = app
        self.clocks = clocks
        self.journal = journal
        self.chance = random.Random(seed)

    def run(self, plan: Sequence[Fault], seconds: float) -> None:
        """Until the time is up and everything is undone."""
        began, numbers = time.monotonic(), count()
        todo: list[tuple[float, int, Callable[[], None]]] = []
        for fault in plan:
            heapq.heappush(todo, (fault.at, next(numbers), self.beginning(fault, todo, numbers, began)))
        while (now := time.monotonic() - began) < seconds or todo:
            self.processes.look()
            while todo and todo[0][0] <= now:
                heapq.heappop(todo)[2]()
            time.sleep(TICK)

    def beginning(
        self, fault: Fault, todo: list[tuple[float, int, Callable[[], None]]], numbers: count[int], began: float
    ) -> Callable[[], None]:
        def begin() -> None:
            number = next(numbers)
            self.journal.write("fault", number=number, kind=fault.kind, target=fault.target, seconds=fault.seconds)
            undo = self.begin(fault)

            def end() -> None:
                try:
                    undo()
                except DibsError:  # the store is away: what keeps it away is undone first
                    later(AGAIN)
                else:
                    self.journal.write("healed", number=number, kind=fault.kind, target=fault.target)

            def later(seconds: float) -> None:
                heapq.heappush(todo, (time.monotonic() - began + seconds, next(numbers), end))

            later(fault.seconds)

        return begin

    def begin(self, fault: Fault) -> Undo:
        if fault.kind in self.stage.faults:
            return self.stage.begin(fault.kind, fault.target, fault.seconds, self.chance)
        undo: Undo = getattr(self, fault.kind.replace("-", "_"))(fault)
        return undo

    # Faults of processes.

    def kill(self, fault: Fault) -> Undo:
        place = self.processes.places[fault.target]
        who = place.who
        if self.processes.kill(place):
            self.journal.write("killed", process=who)
        return nothing

    kill_producer = kill

    def replace(self, fault: Fault) -> Undo:
        """A deploy: one leaves in good order, another comes."""
        self.processes.ask_to_leave(self.processes.places[fault.target])
        return nothing

    def stop(self, fault: Fault) -> Undo:
        """One stands still, and goes on as if nothing had happened."""
        place = self.processes.places[fault.target]
        who = place.who
        if not self.processes.stop(place):
            return nothing
        self.journal.write("stopped", process=who)
        return lambda: self.processes.go_on(place) if place.who == who else None

    def stop_all(self, fault: Fault) -> Undo:
        """The host sleeps."""
        stopped = [(place, place.who) for place in self.processes.places.values() if self.processes.stop(place)]

        def wake() -> None:
            for place, who in stopped:
                if place.who == who:
                    self.processes.go_on(place)

        return wake

    def pause(self, fault: Fault) -> Undo:
        """An operator pauses a queue, and resumes it later."""
        queue = self.chance.choice(QUEUES)
        try:
            self.app.queues.pause(queue)
        except DibsError as error:  # the store is away: its answer may have been lost
            self.journal.write("no answer", act="pause", error=str(error)[:200])
        return lambda: self.resume(queue)

    def resume(self, queue: str) -> None:
        self.app.queues.resume(queue)

    def clock(self, fault: Fault) -> Undo:
        """Everybody's clock is set, mostly forward."""
        before = self.clocks.now()
        by = self.chance.choice([-3.0, -0.5, 0.5, 5.0, 20.0, 60.0])
        self.clocks.move(by)
        self.journal.write("clock", before=before, after=self.clocks.now(), by=by)
        return nothing
