"""Limits how often a process sends NOTIFY, without losing the last notification of a burst.

The sender (`Rate`) sends a notification about a topic at once, unless it has just sent several: then it sends none. The
receiver (`Replay`) makes up for that: `REPEAT_AFTER` seconds after a notification it wakes its listeners once more, so
that they also see what changed after the last one that was sent. So the sender needs no timer, which could not fire
where its event loop runs only during calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from dibs.engines.wake import LocalNotifier

__all__ = ["BURST", "INTERVAL", "REPEAT_AFTER", "Rate", "Replay"]

INTERVAL = 0.02
"""Seconds per message about a topic, from one sender, in the long run."""
BURST = 5
"""Messages about a topic that may be sent without a pause: a topic with few notifications is never held back."""
REPEAT_AFTER = 0.03
"""Seconds after which a receiver wakes its listeners again. A notification that is not sent comes within one `INTERVAL`
of one that was, so this must be longer."""
MOST = 10_000
"""Topics that are remembered before the idle ones are dropped."""


class Rate:
    """The sender's side. Instants are in seconds, of any clock."""

    def __init__(self) -> None:
        self.due: dict[str, float] = {}
        """When the next message about a topic would be sent at one per interval."""

    def fresh(self, topics: Collection[str], now: float) -> list[str]:
        """The topics among these that must be sent now."""
        if len(self.due) > MOST:
            self.due = {topic: due for topic, due in self.due.items() if due > now}
        found = []
        for topic in topics:
            due = max(self.due.get(topic, now), now)
            if due - now < BURST * INTERVAL:
                self.due[topic] = due + INTERVAL
                found.append(topic)
        return found


class Replay:
    """The receiver's side: wakes listeners once more, `REPEAT_AFTER` seconds after a topic was last received."""

    def __init__(self, local_notifier: LocalNotifier, loop: asyncio.AbstractEventLoop) -> None:
        self.local_notifier = local_notifier
        self.loop = loop
        self.received: dict[str, float] = {}
        self.timer: asyncio.TimerHandle | None = None

    def add(self, topics: Iterable[str]) -> None:
        now = self.loop.time()
        for topic in topics:
            self.received.pop(topic, None)
            self.received[topic] = now  # in the order in which they were last received
        if self.timer is None:
            self.timer = self.loop.call_at(now + REPEAT_AFTER, self.notify)

    def notify(self) -> None:
        self.timer = None
        now = self.loop.time()
        over = [topic for topic, at in self.received.items() if at + REPEAT_AFTER <= now]
        for topic in over:
            del self.received[topic]
        self.local_notifier.notify(over)
        if self.received:
            self.timer = self.loop.call_at(next(iter(self.received.values())) + REPEAT_AFTER, self.notify)
