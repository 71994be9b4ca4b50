"""Huey's side of the Redis comparison: a plain list, no results."""

from __future__ import annotations

from huey import RedisHuey

import peers
import redis_peers
import signals

huey = RedisHuey("bench", url=peers.URL, results=False)


@huey.task()
def nothing(number: int) -> int:
    signals.tell_done()
    return number


@huey.task()
def started(number: int) -> None:
    signals.tell_started()


TASKS = {"nothing": nothing, "started": started}


class HueyPeer:
    def enqueue(self, name: str, number: int) -> object:
        return TASKS[name](number)

    def enqueue_many(self, numbers: range) -> object:
        raise NotImplementedError("Huey enqueues one task at a time.")


if __name__ == "__main__":
    import peer_redis_huey  # tasks are known by their module, which is not to be __main__

    redis_peers.main(peer_redis_huey.HueyPeer())
