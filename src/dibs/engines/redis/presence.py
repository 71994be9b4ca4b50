"""Which workers are alive: each worker's process listens to a channel of its own, and the server knows how many do.

A connection ends when its process dies. A process that is stopped or slow keeps it; one whose connection broke makes a
new one at once, well before it is absent in two checks. A worker's row says at which server it listens: after a restart
or a failover, no worker counts as absent until it has come back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from dibs.core.policy import ABSENT_SECONDS
from dibs.engines.base import MayBlock
from dibs.engines.redis.client import Client
from dibs.engines.redis.draft import pairs
from dibs.engines.redis.keys import Keys
from dibs.engines.redis.notifier import Notifier
from dibs.engines.values import Beat

__all__ = ["Presence"]

GAP_SECONDS = 3.0
"""Checks further apart than this do not count together: this process itself was stopped."""
FIRST_SECONDS = 2.0
"""How long a heartbeat waits until its process listens. Without that, a worker's death is noticed by its lease."""


class Presence:
    """The channels of this engine's own workers, and its checks of those of all workers."""

    def __init__(self, client: Client, notifier: Notifier, keys: Keys, may_block: MayBlock) -> None:
        self.client = client
        self.notifier = notifier
        self.keys = keys
        self.may_block = may_block
        self.own: set[str] = set()
        self.first_absent: dict[str, float] = {}
        self.checked_at = 0.0

    async def show(self, sign: Beat) -> str | None:
        """Listen for a worker of this process from its first heartbeat on. Returns at which server.

        Not on a loop that runs only during calls: it would not notice a lost connection.
        """
        if sign.pid != os.getpid() or self.may_block():
            return None
        channel = self.keys.alive(sign.id)
        if sign.id not in self.own:
            self.own.add(sign.id)
            self.notifier.listen_to([channel])
        if self.notifier.refusal is not None or not await self.notifier.until_heard(channel, FIRST_SECONDS):
            return ""
        return await self.server()

    async def server(self) -> str:
        """The server as it runs now: it has another name after a restart."""
        reply = await self.client.call("INFO", "server")
        for line in reply.decode(errors="replace").splitlines():
            if line.startswith("run_id:"):
                return str(line.removeprefix("run_id:"))
        return ""

    def leave(self, worker: str) -> None:
        if worker in self.own:
            self.own.discard(worker)
            self.notifier.release([self.keys.alive(worker)])

    async def absent(self, shown: Mapping[str, str]) -> list[str]:
        """Those of some workers, each with the server at which it listens, that were absent in two checks."""
        server = await self.server()
        here = [worker for worker, at in shown.items() if at == server]
        reply = await self.client.call("PUBSUB", "NUMSUB", *(self.keys.alive(each) for each in here)) if here else []
        found = [worker for worker, (_, number) in zip(here, pairs(reply), strict=True) if number == 0]
        now = time.monotonic()
        before = self.first_absent if now - self.checked_at <= GAP_SECONDS else {}
        self.checked_at = now
        self.first_absent = {worker: before.get(worker, now) for worker in found}
        return sorted(worker for worker, since in self.first_absent.items() if now - since >= ABSENT_SECONDS)
