"""The alert rules: for each alert a story in which it fires and resolves on real scrapes; and Prometheus reads them."""

from __future__ import annotations

import os
import re
import shutil
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from deploy.alerting import (
    ALERTS,
    CLAUSE,
    CONFIG,
    ENTRIES,
    PATIENCE,
    RECORDS,
    RULES,
    SERIES,
    Firing,
    Prometheus,
    Story,
    Target,
    labels_of,
    labels_used,
    names,
    needs_prometheus,
    needs_promtool,
    promtool,
    server_of,
    until,
    words,
)
from deploy.command_lines import ROOT, documents
from dibs import Dibs, Permanent
from dibs.client.task import Call, Task
from dibs.client.tasks import Filter
from dibs.core.times import DAY
from dibs.engines.figures import PoolUse
from dibs.engines.memory import MemoryEngine
from dibs.engines.values import Beat
from dibs.errors import StoreUnavailable
from dibs.integrations.prometheus import register_metrics, serve_metrics
from dibs.server.settings import ServerSettings
from dibs.server.tokens import TokenFile, new_token
from dibs.testing.clock import ManualClock
from dibs.testing.faults import Faults, faulty
from servers import redis
from servers.live import LiveServer

MAIL = {"job": "dibs", "queue": "mail"}
DIBS = {"job": "dibs"}
NOTHING = ""

Tell = Callable[[Story], None]
STORIES: list[tuple[str, Tell]] = []
"""Which alert each is about."""


def about(alert: str) -> Callable[[Tell], Tell]:
    """Add a story in which this alert fires and resolves; about nothing: in which none fires."""

    def add(tell: Tell) -> Tell:
        STORIES.append((alert, tell))
        return tell

    return add


# What stories are made of.


def two_servers(story: Story, **options: Any) -> Dibs:
    """An app on a store in memory, which two servers show."""
    engine = MemoryEngine()
    app = Dibs("memory://", engine=engine, **options)
    story.serve(app, Dibs("memory://", engine=engine.sibling(), **options))
    return app


def turned(story: Story) -> Dibs:
    """The same, with a clock that minutes move, and a worker that is always there."""
    story.clock = ManualClock()
    app = two_servers(story, clock=story.clock)
    beat = Beat(id="w", host="h", pid=os.getpid(), version="1", queues=("mail",), names=None, lives_for=DAY)
    app.hub.runner.run(app.hub.engine.beat(beat, now=story.clock.now()))
    return app


def sending(app: Dibs, name: str = "send") -> Task[[bool], None]:
    """A task that ends as it is told."""

    def send(works: bool) -> None:
        if not works:
            raise Permanent("no such address")

    task: Task[[bool], None] = app.task(name=name, queue="mail")(send)
    return task


def calls(task: Task[[bool], None], good: int, bad: int = 0) -> Iterator[Call[None]]:
    return chain((task.call(True) for _ in range(good)), (task.call(False) for _ in range(bad)))


def run(app: Dibs, task: Task[[bool], None], good: int, bad: int = 0) -> None:
    """Let the worker run so many."""
    app.wait(app.enqueue_many(calls(task, good, bad)), timeout=PATIENCE)


def pause(app: Dibs) -> None:
    """The workers start nothing of the queue."""
    app.queues.set("mail", max_depth=None)  # it may not be there yet
    app.queues.pause("mail")


def finish(app: Dibs) -> None:
    """Let the worker run what is pending."""
    until(lambda: app.tasks.count(Filter(state=("pending", "running"))).count == 0)


@contextmanager
def held(app: Dibs, number: int = 1) -> Iterator[Task[[], None]]:
    """A task that does not end before this is left, of which so many run."""
    release, began = threading.Event(), threading.Semaphore(0)

    def hold() -> None:
        began.release()
        release.wait(PATIENCE)

    task: Task[[], None] = app.task(name="hold", queue="mail")(hold)
    app.enqueue_many(task.call() for _ in range(number))
    assert all(began.acquire(timeout=PATIENCE) for _ in range(number))
    try:
        yield task
    finally:
        release.set()


def metrics_at(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        return str(answer.read(), "utf-8")


# Critical alerts.


@about("DibsDeadLettersGrow")
def tasks_die_minute_by_minute(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker():
        run(app, send, 5)
        story.minutes(6)
        story.quiet()
        for _ in range(4):
            run(app, send, 0, 11)
            story.minutes()
        story.silent()
        run(app, send, 0, 11)
        story.minutes()
        story.fires(
            MAIL, "Tasks of queue mail die.", "In queue mail, 11 tasks a minute have become dead, over 5 minutes."
        )
        story.minutes()
        story.silent()


@about("DibsDeadLettersGrow")
def all_tasks_of_a_new_name_die_between_two_scrapes(story: Story) -> None:
    app = two_servers(story)
    send, greet = sending(app), sending(app, "greet")
    with app.worker():
        run(app, send, 5, 60)  # before anything was scraped
        story.minutes(7)
        story.quiet()
        run(app, greet, 0, 60)
        story.minutes(5)
        story.fires(
            MAIL, "Tasks of queue mail die.", "In queue mail, 12 tasks a minute have become dead, over 5 minutes."
        )
        story.minutes()
        story.silent()


@about("DibsQueueWithoutWorkers")
def nobody_serves_a_queue(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker(queues=("web",)):
        story.minutes(3)
        story.quiet()
        send.enqueue(True)
        story.minutes(5)
        story.quiet()
        story.minutes()
        story.fires(
            MAIL,
            "No active worker serves queue mail.",
            "Pending tasks of queue mail: 1. For 5 minutes no active worker has served it.",
        )
        with app.worker(queues=("mail",)):
            finish(app)
            story.minutes()
            story.silent()


@about("DibsNoWorkers")
def the_only_worker_leaves(story: Story) -> None:
    app = two_servers(story)
    sending(app)
    with app.worker():
        story.minutes(3)
    story.minutes(2)
    story.quiet()
    story.minutes()
    story.fires(
        DIBS, "There is no active worker.", "For 2 minutes the store of dibs has had no active worker, so no task runs."
    )
    with app.worker():
        story.minutes()
        story.silent()


def too_few_connections() -> Firing:
    return Firing(
        {**DIBS, "instance": "dibs-1:8642"},
        "dibs-1:8642 has too few connections to the store.",
        "At dibs-1:8642, callers were given no connection to the store in time, or have waited for one for 5 minutes "
        "with all of them busy.",
    )


def pool_of(app: Dibs, **use: int) -> None:
    app.hub.engine._engine.pool_use = lambda: PoolUse(size=8, **use)  # type: ignore[attr-defined]


@about("DibsPoolExhausted")
def callers_get_no_connection(story: Story) -> None:
    app = two_servers(story)
    with app.worker():
        pool_of(app, busy=8, idle=0, exhausted=3)  # long before
        story.minutes(6)
        story.quiet()
        pool_of(app, busy=8, idle=0, exhausted=4)
        story.minutes()
        story.fires(*too_few_connections())
        pool_of(app, busy=1, idle=7, exhausted=4)
        story.minutes(5)
        story.silent()


@about("DibsPoolExhausted")
def callers_wait_for_connections_all_the_time(story: Story) -> None:
    app = two_servers(story)
    with app.worker():
        pool_of(app, busy=8, idle=0)
        story.minutes(6)
        pool_of(app, busy=8, idle=0, waiting=2)
        story.minutes(5)
        story.quiet()
        story.minutes()
        story.fires(*too_few_connections())
        pool_of(app, busy=8, idle=0)
        story.minutes()
        story.silent()


@about("DibsEvictions")
def redis_evicts_keys(story: Story) -> None:
    server = story.enter(a_redis())
    app, other = Dibs(server.url), Dibs(server.url)
    story.serve(app, other)
    with app.worker():
        story.minutes(3)
        story.quiet()
        number = evict(server)
        story.minutes()
        story.fires(
            DIBS,
            "Redis evicts keys.",
            f"Keys that the Redis server of dibs has evicted in 10 minutes: {number}. Each may have been a task.",
        )
        story.minutes(10)
        story.silent()


@contextmanager
def a_redis() -> Iterator[redis.Server]:
    server = redis.Server()
    try:
        yield server
    finally:
        server.remove()


def evict(server: redis.Server) -> int:
    """Let it evict keys that are none of ours; how many."""
    for number in range(300):
        server.command("SET", f"cache:{number}", "x" * 10_000, "EX", 3600)
    server.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    server.command("CONFIG", "SET", "maxmemory", int(server.info("memory")["used_memory"]) - 100_000)
    until(lambda: server.command("PING") and server.info("stats")["evicted_keys"] != "0")
    server.command("CONFIG", "SET", "maxmemory", 0)
    return int(server.info("stats")["evicted_keys"])


@about("DibsHighPriorityBacklog")
def urgent_tasks_pile_up(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker():
        pause(app)
        app.enqueue_many(calls(send.using(priority="high"), 999))
        app.enqueue_many(calls(send.using(priority="critical"), 1))
        app.enqueue_many(calls(send, 100))
        story.minutes(3)
        story.quiet()
        send.using(priority="critical").enqueue(True)
        story.minutes()
        story.silent()
        story.minutes()
        story.fires(
            MAIL,
            "Urgent tasks pile up in queue mail.",
            "1.001k tasks of the tiers high and critical are pending in queue mail.",
        )
        app.queues.resume("mail")
        finish(app)
        story.minutes()
        story.silent()


@about("DibsFailuresCritical")
def two_of_five_runs_fail(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker():
        run(app, send, 1)
        story.minutes(11)
        for _ in range(3):
            run(app, send, 9, 6)
            story.minutes()
        story.quiet()
        run(app, send, 9, 6)
        story.minutes()
        story.fires(
            MAIL, "Many runs of queue mail fail.", "40% of the runs of queue mail have failed, over 10 minutes."
        )
        for _ in range(3):
            run(app, send, 15)
            story.minutes()
        story.silent()


def away_from(instance: str, job: str = "dibs") -> Firing:
    return Firing(
        {"job": job, "instance": instance},
        f"{instance} can't reach the store.",
        f"For a minute the store has not answered {instance}.",
    )


@about("DibsStoreAway")
def one_server_can_not_reach_the_store(story: Story) -> None:
    engine, faults = MemoryEngine(), Faults()
    app, other = Dibs(engine=faulty(engine, faults)), Dibs(engine=engine.sibling())
    story.serve(app, other)
    with other.worker():
        story.minutes(3)
        faults.away("counts")
        story.minutes()
        story.quiet()
        story.minutes()
        story.fires(*away_from("dibs-1:8642"))
        faults.back()
        story.minutes()
        story.silent()


@about("DibsStoreAway")
def no_server_can_reach_the_store_for_minutes(story: Story) -> None:
    engine, faults = MemoryEngine(), Faults()
    app = story.enter(Dibs(engine=engine))
    story.serve(*(Dibs(engine=faulty(engine.sibling(), faults)) for _ in range(2)))
    send = sending(app)
    with app.worker():
        run(app, send, 1, 60)
        story.minutes(6)
        faults.away()
        story.minutes()
        story.quiet()
        story.minutes(3)
        story.fires(*away_from("dibs-1:8642"))
        story.fires(*away_from("dibs-2:8642"))
        faults.back()
        for _ in range(8):
            story.minutes()
            story.silent()
            story.silent("DibsDeadLettersGrow")


@about("DibsStoreAway")
def a_program_that_was_refused_does_not_call_again(story: Story) -> None:
    registry, faults = CollectorRegistry(), Faults()
    app = story.enter(Dibs(engine=faulty(MemoryEngine(), faults)))
    register_metrics(app, registry)
    story.scrape_too("web:9000", lambda: generate_latest(registry).decode(), "shop")
    with two_servers(story).worker():
        app.tasks.count()
        story.minutes(3)
        faults.away()
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                app.tasks.count()
        story.minutes()
        story.quiet()
        story.minutes()
        story.fires(*away_from("web:9000", job="shop"))
        faults.back()
        story.minutes(4)
        assert app.hub.breaker.is_open, "nobody has called, so nobody has found out"
        story.silent()


def not_scraped(labels: dict[str, str], who: str) -> Firing:
    description = (
        "For 5 minutes Prometheus has read the metrics of no server, so no other alert about the store can fire."
    )
    return Firing(labels, f"No server of Dibs is scraped{who}.", description)


@about("DibsNotScraped")
def all_servers_of_one_store_are_down(story: Story) -> None:
    shop, office = two_servers(story), Dibs("memory://")
    story.serve(office, job="office")
    with shop.worker(), office.worker():
        story.minutes(3)
        story.down = {"dibs-1:8642"}
        story.minutes(7)
        story.down = {"dibs-1:8642", "dibs-2:8642"}
        story.minutes(5)
        story.quiet()
        story.minutes()
        story.fires(*not_scraped(DIBS, " as dibs"))
        story.down = {"dibs-1:8642"}
        story.minutes()
        story.silent()


@about("DibsNotScraped")
def no_server_is_configured(story: Story) -> None:
    with two_servers(story).worker():
        story.minutes(3)
        targets, story.targets = story.targets, {}
        story.minutes(5)
        story.quiet()
        story.minutes()
        story.fires(*not_scraped({}, ""))
        story.targets = targets
        story.minutes()
        story.silent()


# Warnings.


@about("DibsWaitSpread")
def a_few_tasks_wait_much_longer_than_others(story: Story) -> None:
    app = turned(story)
    send = sending(app)
    story.minutes()
    serve_all(app, send, 1)
    story.minutes(2)
    app.enqueue_many(calls(send, 3))
    story.minutes(1)
    serve_all(app, send, 70)
    story.minutes(5)
    story.quiet()
    story.minutes(1)
    story.fires(
        {**MAIL, "tier": "medium"},
        "Some medium tasks of queue mail wait much longer than others.",
        "In queue mail, 1 of 100 medium tasks waits 52.6s or longer, more than 10 times the median.",
    )
    serve_all(app, send, 300)
    story.minutes(1)
    story.silent()


def serve_all(app: Dibs, task: Task[[bool], None], more: int) -> None:
    """Run what is pending, and more that does not wait. A worker that leaves reports at once what it has done."""
    with app.worker():
        run(app, task, more)
        finish(app)


@about("DibsFailures")
def one_of_fifteen_runs_fails(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker():
        run(app, send, 1)
        story.minutes(11)
        for _ in range(9):
            run(app, send, 14, 1)
            story.minutes()
        story.quiet()
        run(app, send, 14, 1)
        story.minutes()
        story.fires(MAIL, "Runs of queue mail fail.", "6.667% of the runs of queue mail have failed, over 10 minutes.")
        for _ in range(3):
            run(app, send, 15)
            story.minutes()
        story.silent()


@about("DibsQueueNearlyFull")
def a_queue_fills_up(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker():
        pause(app)
        app.queues.set("mail", max_depth=10)
        app.enqueue_many(calls(send, 8))
        story.minutes(3)
        story.quiet()
        send.enqueue(True)
        story.minutes()
        story.silent()
        story.minutes()
        story.fires(
            MAIL,
            "Queue mail is nearly full.",
            "Queue mail holds 90% of the pending tasks that its max_depth allows. At 100% it refuses new ones.",
        )
        app.queues.set("mail", max_depth=20)
        story.minutes()
        story.silent()


@about("DibsWorkersBusy")
def all_slots_are_busy_and_a_task_waits(story: Story) -> None:
    app = two_servers(story)
    sending(app)
    with app.worker(concurrency=2):
        story.minutes(2)
        with held(app, 2) as hold:
            hold.enqueue()
            story.until("dibs_slots_busy", 2)
            story.minutes(10)
            story.quiet()
            story.minutes()
            story.fires(
                DIBS,
                "The workers are busy.",
                "For 10 minutes more than 90% of the slots of all workers of dibs have been busy, now 100%.",
            )
        story.until("dibs_slots_busy", 0)
        story.minutes()
        story.silent()


@about("DibsLowPriorityWaits")
def a_low_task_waits_for_26_minutes(story: Story) -> None:
    app = turned(story)
    send = sending(app)
    story.minutes(2)
    send.using(priority="low").enqueue(True)
    story.minutes(25)
    story.quiet()
    story.minutes()
    story.fires(
        MAIL, "Low tasks of queue mail wait long.", "A task of the tier low has waited in queue mail for 26m 0s."
    )
    serve_all(app, send, 0)
    story.minutes()
    story.silent()


@about("DibsBacklog")
def five_thousand_tasks_wait(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker():
        pause(app)
        app.enqueue_many(calls(send, 5000))
        story.minutes(3)
        story.quiet()
        handle = send.enqueue(True)
        story.minutes()
        story.silent()
        story.minutes()
        story.fires(MAIL, "Queue mail has a large backlog.", "5.001k tasks are pending in queue mail.")
        handle.cancel()
        story.minutes()
        story.silent()


@about("DibsQueueGrows")
def a_backlog_grows_without_end(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker():
        pause(app)
        app.enqueue_many(calls(send, 600))
        story.minutes()
        for _ in range(30):
            app.enqueue_many(calls(send, 5))
            story.minutes()
        story.quiet()
        app.enqueue_many(calls(send, 5))
        story.minutes()
        story.fires(
            MAIL,
            "Queue mail grows without end.",
            "The backlog of queue mail has grown for half an hour, by 150 tasks at the present pace.",
        )
        story.minutes(15)
        story.silent()


def lead(app: Dibs, *but: str) -> None:
    """Do one step of each chore, but for these."""
    do(app, *{each.name for each in app.chores()}.difference(but))


def do(app: Dibs, *chores: str) -> None:
    engine, now = app.hub.engine, app.hub.clock.store_now()

    async def steps() -> None:
        term = await engine.lead("w", now=now)
        assert term is not None
        for name in chores:
            await engine.chore(name, term, now=now)

    app.hub.runner.run(steps())


def chore_behind(name: str) -> Firing:
    return Firing(
        {**DIBS, "chore": name},
        f"The chore {name} does not keep up.",
        f"The chore {name} of dibs has had work left for 10 minutes, took more than 60 s, or has not been done for "
        "10 minutes.",
    )


@about("DibsChoreBehind")
def one_chore_is_not_done(story: Story) -> None:
    app = turned(story)
    lead(app)
    for _ in range(11):
        story.minutes()
        lead(app, "prune_dead")
    story.quiet()
    story.minutes()
    story.fires(*chore_behind("prune_dead"))
    lead(app)
    story.minutes()
    story.silent()


@about("DibsChoreBehind")
def nobody_leads(story: Story) -> None:
    app = turned(story)
    lead(app)
    story.minutes(11)
    story.quiet()
    story.minutes()
    story.fires(DIBS, "No chore is done.", "For 10 minutes none of the chores of dibs has been done: no worker leads.")
    lead(app)
    story.minutes()
    story.silent()


@about("DibsChoreBehind")
def a_chore_has_work_left_after_each_run(story: Story) -> None:
    app = turned(story)
    send = sending(app)
    app.queues.set("mail", policy="tiers")
    app.enqueue_many(calls(send.using(priority="low"), 2500))
    story.minutes(11)
    lead(app)  # of three steps that are due, this is the first
    for minute in range(11):
        story.minutes()
        lead(app, *(() if minute == 5 else ("rerank",)))
    story.quiet()
    story.minutes()
    story.fires(*chore_behind("rerank"))
    for _ in range(5):
        lead(app)
    story.minutes()
    story.silent()


@about("DibsChoreBehind")
def a_step_of_a_chore_takes_a_minute(story: Story) -> None:
    app = turned(story)
    turns = iter((0, 61 * 10**9))
    story.minutes(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dibs.engines.verbs.chores.time", SimpleNamespace(perf_counter_ns=partial(next, turns)))
        do(app, "prune_keys")
    story.minutes()
    story.quiet()
    story.minutes()
    story.fires(*chore_behind("prune_keys"))
    lead(app)
    story.minutes()
    story.silent()


def worker_at(story: Story, port: int) -> None:
    story.scrape_too("host-1:9464", partial(metrics_at, port), "dibs-workers")


WORKER = {"job": "dibs-workers", "instance": "host-1:9464"}


@about("DibsWorkerNotLive")
def the_heartbeat_of_a_worker_has_stopped(story: Story) -> None:
    app = two_servers(story)
    with app.worker() as worker, serve_metrics(worker, 0) as port:
        worker_at(story, port)
        story.minutes(3)
        session = worker._session
        assert session is not None
        session._heartbeat.failure = RuntimeError("broke")
        story.minutes()
        story.quiet()
        story.minutes()
        story.fires(
            WORKER,
            "The worker at host-1:9464 hangs.",
            "The event loop of the worker at host-1:9464 is blocked, or its heartbeat has stopped. "
            "Only a restart helps.",
        )
        story.minutes(6)
        story.silent("DibsWorkerNotReady")
        session._heartbeat.failure = None
        story.minutes()
        story.silent()


@about("DibsWorkerNotReady")
def a_worker_stops_and_its_task_does_not_end(story: Story) -> None:
    app = two_servers(story)
    sending(app)
    with app.worker() as worker, serve_metrics(worker, 0) as port:
        worker_at(story, port)
        story.minutes(3)
        with held(app):
            worker.request_stop(PATIENCE)
            story.until("dibs_worker_ready", 0)
            story.minutes(5)
            story.quiet()
            story.minutes()
            story.fires(
                WORKER,
                "The worker at host-1:9464 takes no work.",
                "For 5 minutes the worker at host-1:9464 could not take work.",
            )
    with app.worker() as worker, serve_metrics(worker, 0) as port:
        worker_at(story, port)
        story.minutes()
        story.silent()


# Stories without an alert.


@about(NOTHING)
def a_small_installation_has_an_ordinary_day(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker(concurrency=1):
        for _ in range(12):
            run(app, send, 2)
            story.minutes()
        run(app, send, 10, 4)  # an address book is wrong
        story.minutes(12)
        with held(app):  # a long report
            story.until("dibs_slots_busy", 1)
            story.minutes(30)
    story.minutes(2)  # the worker is being replaced
    with app.worker(concurrency=1):
        story.down = {"dibs-1:8642"}
        story.minutes(2)
        story.down, story.targets["dibs-1:8642"] = set(), Target("dibs", server_of(app))  # another process
        story.minutes(3)
        app.enqueue_many(calls(send, 200))  # a newsletter
        story.minutes(2)
        finish(app)
        story.minutes(10)
    story.quiet()


@about(NOTHING)
def a_program_claims_by_itself(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker(queues=("web",)):
        app.enqueue_many(calls(send, 20))
        for _ in range(12):
            (claim,) = app.claim(["mail"])
            app.settle(claim)
            story.minutes()
    story.quiet()


@about(NOTHING)
def one_large_batch_comes_in_for_ten_minutes_and_stays(story: Story) -> None:
    app = two_servers(story)
    send = sending(app)
    with app.worker():
        pause(app)
        send.enqueue(True)
        story.minutes(5)
        for _ in range(10):
            app.enqueue_many(calls(send, 300))
            story.minutes()
        story.minutes(60)
    story.quiet()


# The tests.


def test_every_alert_has_a_story() -> None:
    assert {alert for alert, _ in STORIES} - {NOTHING} == set(ALERTS)


def told(alert: str, tell: Tell, patch: pytest.MonkeyPatch) -> Story:
    with ExitStack() as stack:
        story = Story(alert, stack, patch)
        tell(story)
    return story


@needs_promtool
@pytest.mark.parametrize(
    ("alert", "tell"),
    [pytest.param(*each, id=f"{each[0]}-{each[1].__name__}") for each in STORIES if each[0] != NOTHING],
)
def test_an_alert_fires_and_resolves(alert: str, tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = told(alert, tell, monkeypatch)
    first, *_, last = story.said
    assert "fires" in story.said
    assert "fires" not in (first, last)
    story.check(tmp_path)


@needs_promtool
@pytest.mark.parametrize("tell", [pytest.param(each[1], id=each[1].__name__) for each in STORIES if each[0] == NOTHING])
def test_nothing_fires(tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = told(NOTHING, tell, monkeypatch)
    assert story.said[-1] == "quiet"
    story.check(tmp_path)


def test_rules_read_what_is_in_the_catalogue() -> None:
    for rule in ENTRIES:
        expression = rule["expr"]
        read = names(expression)
        assert read, expression
        assert read <= {*SERIES, *RECORDS, "up"}, expression
        for _, labels in CLAUSE.findall(expression):
            assert words(labels) <= set().union(*map(labels_of, read)), (labels, expression)
        for used, series in labels_used(expression):
            for name in series:
                assert used <= labels_of(name), (name, used, expression)


def test_an_alert_says_how_bad_it_is_and_where_to_read_on() -> None:
    for name, rule in ALERTS.items():
        assert name.startswith("Dibs")
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_links_to_a_section_of_the_guide(alert: str) -> None:
    page, _, slug = ALERTS[alert]["annotations"]["runbook_url"].partition("#")
    assert page == "docs/guides/on-call.md"
    assert slug == alert.lower()
    assert slug in slugs((ROOT / page).read_text())


def slugs(page: str) -> set[str]:
    """The headings of a page as links of GitHub name them."""
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+?) *$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@needs_promtool
def test_promtool_accepts_the_rules_and_the_sample_configuration(tmp_path: Path) -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES), folder=tmp_path)
    configured(tmp_path, lambda config: None)
    promtool("check", "config", "prometheus.yml", folder=tmp_path)


def configured(folder: Path, change: Callable[[dict[str, Any]], None], token: str = "secret") -> None:
    """The sample configuration and the rules in a folder, with a token there."""
    (folder / "token").write_text(token)
    shutil.copy(RULES, folder)
    [config] = documents(CONFIG)
    config["scrape_configs"][0]["authorization"]["credentials_file"] = str(folder / "token")
    change(config)
    (folder / CONFIG.name).write_text(yaml.safe_dump(config))


@needs_prometheus
def test_prometheus_scrapes_a_server_and_a_worker_by_the_sample_configuration(tmp_path: Path) -> None:
    tokens, url = TokenFile(tmp_path / "tokens.json"), f"sqlite:///{tmp_path}/tasks.db"
    secret, token = new_token("prometheus", ["read"])
    tokens.add(token)
    app, other = Dibs(url), Dibs(url)
    send = sending(app)
    settings = ServerSettings(tokens=tokens.path, keeps=False)
    with app, LiveServer(other, settings) as server, app.worker() as worker, serve_metrics(worker, 0) as port:
        run(app, send, 1)
        ports = {"dibs": server.port, "dibs-workers": port}

        def here(config: dict[str, Any]) -> None:
            config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
            config["alerting"] = {}
            for each in config["scrape_configs"]:
                each["static_configs"] = [{"targets": [f"127.0.0.1:{ports[each['job_name']]}"]}]

        configured(tmp_path, here, secret)
        with Prometheus(tmp_path) as found:
            until(lambda: found.health() == dict.fromkeys(ports, "up"))
            until(lambda: found.value("dibs_store_up") == ["1"])
            until(lambda: set(found.rules().values()) == {"ok"})
            until(lambda: found.value("dibs:slots_short") == ["-10"])
            assert found.rules().keys() == {*ALERTS, *RECORDS}
            assert found.value("dibs_worker_ready") == ["1"]
