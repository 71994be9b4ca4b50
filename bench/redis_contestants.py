"""Dibs and its Redis peers: which programs they are, and how each figure is taken from them."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions
from pathlib import Path

from redis import Redis

from dibs import Dibs
from dibs.benchmark.app import QUEUES
from dibs.core.states import State
from postgres_contestants import (
    NODE_PACKAGES,
    PATIENCE,
    START_LIMIT,
    WARM_UP,
    Failed,
    enqueue,
    fill,
    hear,
    heard,
    installed,
    node,
    producing,
    working,
)
from redis_server import Server
from signals import ListenerThread

__all__ = ["CONTESTANTS", "Contestant", "Failed", "drain", "enqueue", "latency", "node", "opened"]

HERE = Path(__file__).parent
PLACES = Path(sys.prefix) / "redis"
"""Where `redis_install.py` puts each peer in Python, with the version of redis-py that it asks for."""

DIBS_CONCURRENCY = 200
LOOK = 0.01
"""Seconds between two looks at what is left."""

SETTLED = 0.3
"""Seconds without a further connection that waits, after which all of a worker's are taken to."""

HELD_MS = 120_000
"""Milliseconds after which the server would let writes go by itself."""

PAUSES = (0.01, 0.03)
"""Seconds between two latency samples: the worker is idle, and one that polls does not do it in step with us."""

Watch = Callable[[str], AbstractContextManager[Callable[[], bool]]]
"""From the server's URL to a question: has any task not come to an end?"""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One queue: a program with the commands of `peers.py`, and what tells whether it has done its work."""

    name: str
    package: str
    program: str
    at_once: str
    """How many tasks its worker runs or fetches at a time."""

    keeps: str
    """What is left of a task that completed, in a sentence."""

    settings: str
    """Those that are not the default, in a sentence."""

    unfinished: Watch
    requirements: tuple[str, ...] = ()
    """What pip installs for it in an environment of its own; none for Dibs, which is here, and for Node."""

    worker: tuple[str, ...] = ()
    """The worker's command and options, where it is not the program's `work`."""

    variables: tuple[str, ...] = ()
    """What its environment has besides, as NAME=value."""

    client: str = "redis"
    """The package that talks to the server for it."""

    bulk: bool = False
    most: int | None = None
    """As many tasks as are drained at most, so that a slow one ends soon. BullMQ has no such bound, because Node gets
    faster as it goes on; Dramatiq and Huey have a high one, because they do so a little."""

    @property
    def in_node(self) -> bool:
        return self.program.endswith(".mjs")

    @property
    def place(self) -> Path:
        """The virtual environment that it is installed in."""
        return PLACES / self.package if self.requirements else Path(sys.prefix)

    @property
    def missing(self) -> str | None:
        """Why it can't take part here."""
        if self.in_node and node() is None:
            return "there is no node"
        return None if self.version(self.package) else f"{self.package} is not installed"

    def version(self, package: str) -> str | None:
        """The version of a package that is installed where it is."""
        if self.in_node:
            described = NODE_PACKAGES / "node_modules" / package / "package.json"
            return str(json.loads(described.read_text())["version"]) if described.exists() else None
        places = [str(each) for each in self.place.glob("lib/python*/site-packages")]
        found = next(iter(distributions(name=package, path=places)), None)
        return found.version if found else None

    def command(self, *words: str) -> list[str]:
        if words == ("install",) and self.package != "dibs":
            return ["true"]  # there are no tables to make
        if words == ("work",) and self.worker:
            variables = ("env", *self.variables) if self.variables else ()
            return [*variables, str(self.place / "bin" / self.worker[0]), *self.worker[1:]]
        started_by = node() or "node" if self.in_node else str(self.place / "bin" / "python")
        return [started_by, str(HERE / self.program), *words]


def opened(contestant: Contestant, server: Server) -> str | None:
    """Why it can't work on this server; None if it can."""
    try:
        with installed(contestant, server):
            return None
    except Failed as error:
        return str(error)


def drain(contestant: Contestant, server: Server, count: int, processes: int = 1) -> float:
    """Tasks per second, from the moment that waiting workers are let in until the server says that no task is left.

    Until then the server keeps all writes waiting, and so the first fetch: the start of a process is not in the time.
    """
    count = min(count, contestant.most or count)
    with installed(contestant, server) as url:
        count = fill(contestant, url, count)
        with contestant.unfinished(url) as unfinished, heard(count) as listener_thread, ExitStack() as stack:
            began = let_in(contestant, url, processes, listener_thread, stack)
            ended = none_left(unfinished)
            if processes == 1:
                hear(listener_thread)
                ended = max(ended, hear(listener_thread))  # some forget a task before they run it
    return count / (ended - began)


def let_in(
    contestant: Contestant, url: str, processes: int, listener_thread: ListenerThread, stack: ExitStack
) -> float:
    """Start its workers while the server keeps writes waiting; once all of them wait, let them in. When that was."""
    with Redis.from_url(url) as gate:
        gate.execute_command("CLIENT", "PAUSE", HELD_MS, "WRITE")
        waiting = blocked(gate)
        for _ in range(processes):
            stack.enter_context(working(contestant, url, listener_thread))
            waiting = more_than(waiting, gate)
        began = time.time()
        gate.execute_command("CLIENT", "UNPAUSE")
        return began


def blocked(gate: Redis) -> int:
    return int(gate.info("clients")["blocked_clients"])


def more_than(before: int, gate: Redis) -> int:
    """How many connections wait at the gate, once more do than before and no further ones come."""
    until = time.monotonic() + START_LIMIT
    seen, since = before, time.monotonic()
    while seen <= before or time.monotonic() - since < SETTLED:
        if time.monotonic() > until:
            raise Failed("its worker has not asked for a task")
        time.sleep(0.02)
        now_waiting = blocked(gate)
        if now_waiting != seen:
            seen, since = now_waiting, time.monotonic()
    return seen


def none_left(unfinished: Callable[[], bool]) -> float:
    """When the server first said so."""
    until = time.time() + PATIENCE
    while unfinished():
        if time.time() > until:
            raise Failed("tasks are left unfinished")
        time.sleep(LOOK)
    return time.time()


def latency(contestant: Contestant, server: Server, samples: int) -> dict[str, float]:
    """Milliseconds from just before the enqueueing call until the task's first line runs in an idle worker."""
    values = []
    with (
        installed(contestant, server) as url,
        heard() as listener_thread,
        working(contestant, url, listener_thread),
        producing(contestant, url, listener_thread) as (say, answers),
    ):
        for _ in range(WARM_UP + samples):
            time.sleep(random.uniform(*PAUSES))
            say.write("\n")
            say.flush()
            if not (sent := answers.readline()):
                raise Failed("starts: its program ended")
            values.append((hear(listener_thread) - float(sent)) * 1000)
    values = sorted(values[WARM_UP:])
    return {name: values[int(part * len(values))] for name, part in (("p50", 0.5), ("p99", 0.99))}


@contextmanager
def any_in(url: str, **keys: str) -> Iterator[Callable[[], bool]]:
    """Whether anything is in the keys, each given with the command that tells how much is."""
    with Redis.from_url(url) as connection:
        yield lambda: any(connection.execute_command(command, key) for key, command in keys.items())


@contextmanager
def any_in_stream(url: str, key: str) -> Iterator[Callable[[], bool]]:
    """Whether its one group of consumers has entries to fetch or to acknowledge."""

    def unfinished() -> bool:
        group = connection.xinfo_groups(key)[0]
        return bool(group["pending"]) or group["last-delivered-id"] != connection.xinfo_stream(key)["last-generated-id"]

    with Redis.from_url(url, decode_responses=True) as connection:
        yield unfinished


@contextmanager
def any_in_dibs(url: str) -> Iterator[Callable[[], bool]]:
    def unfinished() -> bool:
        counted = app.hub.runner.run(app.hub.engine.counts()).tasks.get(QUEUES[0], {})
        return any(number for state, number in counted.items() if state is not State.COMPLETED)

    with Dibs(url) as app:
        app.queues.list()  # opened before workers wait
        yield unfinished


def in_keys(**keys: str) -> Watch:
    return partial(any_in, **keys)


CONTESTANTS = [
    Contestant(
        name="Dibs",
        package="dibs",
        program="peer_dibs.py",
        worker=(
            *("python", "-m", "dibs", "worker", "peer_dibs:app"),
            *("--concurrency", str(DIBS_CONCURRENCY), "--queues", QUEUES[0]),
        ),
        at_once=f"runs {DIBS_CONCURRENCY}",
        keeps="The task, its end state and its result, for 7 days.",
        settings=f"--concurrency {DIBS_CONCURRENCY}.",
        unfinished=any_in_dibs,
        client="hiredis",
        bulk=True,
    ),
    Contestant(
        name="BullMQ",
        package="bullmq",
        program="node/bullmq.mjs",
        at_once="runs 100",
        keeps="Nothing of the job; a stream has the last 10,000 or so events of all jobs.",
        settings="removeOnComplete: true, concurrency 100, ioredis.",
        unfinished=in_keys(**{"bull:bench:wait": "LLEN", "bull:bench:active": "LLEN"}),
        client="ioredis",
        bulk=True,
    ),
    Contestant(
        name="Celery",
        package="celery",
        program="peer_celery.py",
        requirements=("celery[redis]>=5.7", "hiredis>=3.5"),
        worker=(
            *("celery", "--app", "peer_celery", "worker", "--loglevel", "ERROR", "--pool", "solo"),
            *("--without-mingle", "--without-gossip", "--without-heartbeat"),
        ),
        at_once="runs 1",
        keeps="Nothing; a task is acknowledged before it runs.",
        settings="task_ignore_result, --pool solo, without mingle, gossip and heartbeat, hiredis.",
        unfinished=in_keys(celery="LLEN", unacked="HLEN"),
        most=4000,
    ),
    Contestant(
        name="Dramatiq",
        package="dramatiq",
        program="peer_dramatiq.py",
        requirements=("dramatiq[redis]>=2.2", "hiredis>=3.5"),
        variables=("dramatiq_queue_prefetch=200",),
        worker=("dramatiq", "peer_dramatiq:broker", "--processes", "1", "--threads", "4"),
        at_once="runs 4, fetches 200",
        keeps="Nothing; a message is removed after it ran.",
        settings="4 threads, dramatiq_queue_prefetch=200, no results backend, hiredis.",
        unfinished=in_keys(**{"dramatiq:default.msgs": "HLEN"}),
        most=25_000,
    ),
    Contestant(
        name="RQ",
        package="rq",
        program="peer_rq.py",
        requirements=("rq>=2.12", "hiredis>=3.5"),
        worker=("rq", "worker", "--config", "peer_rq", "--worker-class", "rq.SimpleWorker", "--quiet", "bench"),
        at_once="runs 1",
        keeps="Nothing; a job is removed after it ran.",
        settings="SimpleWorker, which does not fork for each job, result_ttl=0, hiredis.",
        unfinished=in_keys(**{"rq:queue:bench": "LLEN", "rq:wip:bench": "ZCARD"}),
        bulk=True,
        most=1000,
    ),
    Contestant(
        name="Huey",
        package="huey",
        program="peer_redis_huey.py",
        requirements=("huey[redis]>=3.5", "hiredis>=3.5"),
        worker=("huey_consumer", "peer_redis_huey.huey", "--workers", "4", "--no-periodic", "--quiet"),
        at_once="runs 4",
        keeps="Nothing; a task is removed before it runs, and lost if the worker dies.",
        settings="RedisHuey with results=False, 4 threads, no periodic tasks, hiredis.",
        unfinished=in_keys(**{"huey.redis.bench": "LLEN"}),
        most=25_000,
    ),
    Contestant(
        name="arq",
        package="arq",
        program="peer_arq.py",
        requirements=("arq>=0.28",),
        at_once="runs 100",
        keeps="Nothing; a job is removed after it ran.",
        settings="max_jobs 100, keep_result 0, a poll every 10 ms instead of 500, hiredis.",
        unfinished=in_keys(**{"arq:queue": "ZCARD"}),
        most=3000,
    ),
    Contestant(
        name="SAQ",
        package="saq",
        program="peer_redis_saq.py",
        requirements=("saq[hiredis,redis]>=0.26", "typing-extensions>=4.12"),
        at_once="runs 50",
        keeps="The job, its end state and its result, for 10 minutes.",
        settings="concurrency 50, max_concurrent_ops 64, hiredis.",
        unfinished=in_keys(**{"saq:default:incomplete": "ZCARD"}),
        most=4000,
    ),
    Contestant(
        name="Taskiq",
        package="taskiq-redis",
        program="peer_taskiq.py",
        requirements=("taskiq-redis>=1.2", "hiredis>=3.5", "uvloop>=0.22"),
        worker=(
            *("taskiq", "worker", "peer_taskiq:broker", "--workers", "1", "--max-async-tasks", "200"),
            *("--no-parse", "--log-level", "ERROR"),
        ),
        at_once="runs 200, fetches 100",
        keeps="The message, in a stream that is never trimmed; no end state, no result.",
        settings="RedisStreamBroker, --max-async-tasks 200, --no-parse, hiredis, uvloop as its command line has it.",
        unfinished=partial(any_in_stream, key="taskiq"),
        most=10_000,
    ),
]
