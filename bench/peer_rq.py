"""RQ's side of the Redis comparison: jobs are removed when they complete, as result_ttl=0 has it."""

from __future__ import annotations

from redis import Redis
from rq import Queue

import peers
import redis_peers
import signals

QUEUE = "bench"
REDIS_URL = peers.URL
"""Read by `rq worker --config peer_rq`."""


def nothing(number: int) -> int:
    signals.tell_done()
    return number


def started(number: int) -> None:
    signals.tell_started()


class RqPeer:
    def __init__(self) -> None:
        self._queue = Queue(QUEUE, connection=Redis.from_url(REDIS_URL))

    def enqueue(self, name: str, number: int) -> object:
        return self._queue.enqueue(f"peer_rq.{name}", number, result_ttl=0)

    def enqueue_many(self, numbers: range) -> object:
        return self._queue.enqueue_many(
            [Queue.prepare_data("peer_rq.nothing", args=(number,), result_ttl=0) for number in numbers]
        )


if __name__ == "__main__":
    redis_peers.main(RqPeer())
