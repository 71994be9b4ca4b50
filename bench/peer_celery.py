"""Celery's side of the Redis comparison: no results, and a connection per caller."""

from __future__ import annotations

from celery import Celery

import peers
import redis_peers
import signals

app = Celery("peer_celery", broker=peers.URL)
app.conf.update(task_ignore_result=True, broker_pool_limit=peers.CALLERS, broker_connection_retry_on_startup=True)


@app.task(name="nothing")
def nothing(number: int) -> int:
    signals.tell_done()
    return number


@app.task(name="started")
def started(number: int) -> None:
    signals.tell_started()


TASKS = {"nothing": nothing, "started": started}


class CeleryPeer:
    def enqueue(self, name: str, number: int) -> object:
        return TASKS[name].apply_async((number,))

    def enqueue_many(self, numbers: range) -> object:
        raise NotImplementedError("Celery sends one message at a time.")


if __name__ == "__main__":
    redis_peers.main(CeleryPeer())
