"""How a few messages stand for many rings.

A message about a topic is sent at once unless others have been sent just before it: then nothing is sent, for whoever
heard the last of those looks again when the interval is over. So the sender needs no timer, which matters where nobody
drives its loop between two calls, and the last ring is answered as surely as the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from dibs.engines.wake import LocalNotifier

__all__ = ["REPEAT_AFTER", "Rate", "Replay"]

INTERVAL = 0.02
"""Seconds per message about a topic, from one sender, in the long run."""
BURST = 5
"""Messages that may follow each other at once: a topic that is rung now and then never waits."""
REPEAT_AFTER = 0.03
"""Seconds after which a hearer looks again: a ring that sends nothing is within one interval of a message."""
MOST = 10_000


class Rate:
    """The sender's side. Instants are in seconds, of any clock."""

    def __init__(self) -> None:
        self.due: dict[str, float] = {}
        """When the next message about a topic would be sent, were there one per interval."""

    def fresh(self, topics: Collection[str], now: float) -> list[str]:
        """Those topics that a message is to be sent about."""
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
    """The hearer's side: rings what was heard once more, an interval after it was last heard."""

    def __init__(self, local_notifier: LocalNotifier, loop: asyncio.AbstractEventLoop) -> None:
        self.local_notifier = local_notifier
        self.loop = loop
        self.heard: dict[str, float] = {}
        self.timer: asyncio.TimerHandle | None = None

    def add(self, topics: Iterable[str]) -> None:
        now = self.loop.time()
        for topic in topics:
            self.heard.pop(topic, None)
            self.heard[topic] = now  # in the order in which they were last heard
        if self.timer is None:
            self.timer = self.loop.call_at(now + REPEAT_AFTER, self.notify)

    def notify(self) -> None:
        self.timer = None
        now = self.loop.time()
        over = [topic for topic, at in self.heard.items() if at + REPEAT_AFTER <= now]
        for topic in over:
            del self.heard[topic]
        self.local_notifier.notify(over)
        if self.heard:
            self.timer = self.loop.call_at(next(iter(self.heard.values())) + REPEAT_AFTER, self.notify)
