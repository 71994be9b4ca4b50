"""Dramatiq's side of the Redis comparison: its broker with the middleware that it has by default, no results."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker

import peers
import redis_peers
import signals

broker = RedisBroker(url=peers.URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def nothing(number: int) -> None:
    signals.tell_done()


@dramatiq.actor
def started(number: int) -> None:
    signals.tell_started()


ACTORS = {"nothing": nothing, "started": started}


class DramatiqPeer:
    def enqueue(self, name: str, number: int) -> object:
        return ACTORS[name].send(number)

    def enqueue_many(self, numbers: range) -> object:
        raise NotImplementedError("Dramatiq sends one message at a time.")


if __name__ == "__main__":
    redis_peers.main(DramatiqPeer())
