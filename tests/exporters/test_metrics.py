"""Metrics are compared with the truth: what a server and two workers show while tasks of every fate run."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from dibs import Dibs, Permanent
from dibs.engines.figures import Minute, PoolUse
from dibs.errors import StoreUnavailable, UsageError
from dibs.exporters.names import Names
from dibs.exporters.process_figures import process_samples
from dibs.exporters.prometheus import exposition
from dibs.exporters.store_figures import Durations, StoreFigures
from dibs.integrations.prometheus import register_metrics, serve_metrics
from dibs.observe import metrics
from dibs.observe.distribution import EDGES, Distribution, distribution_of
from dibs.observe.metrics import METRICS, Kind, Sample
from dibs.testing.clock import ManualClock
from dibs.worker.health import StoreHealth
from servers.asgi import Api, server_here

Truth = dict[tuple[str, ...], float]


def fates(app: Dibs) -> dict[str, Any]:
    """Tasks for every way to end."""

    @app.task(name="good", queue="work")
    def good() -> int:
        return 1

    @app.task(name="late", queue="work", retries=1, timeout=0.05, retry_base=0.01)
    async def late() -> None:
        await ASLEEP.wait()

    @app.task(name="bad", queue="work", retries=1, retry_base=0.01)
    def bad() -> None:
        raise RuntimeError("no")

    @app.task(name="hopeless", queue="work", priority="high")
    def hopeless() -> None:
        raise Permanent("never")

    return {"good": good, "late": late, "bad": bad, "hopeless": hopeless}


class Asleep:
    """Never comes, and can be waited for on any loop."""

    async def wait(self) -> None:
        await asyncio.get_running_loop().create_future()


ASLEEP = Asleep()


def get(port: int, path: str, accept: str = "") -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def values(text: str, name: str, *labels: str) -> Truth:
    """The samples of one name that are not zero, by these labels."""
    found: Counter[tuple[str, ...]] = Counter()
    for family in plain_text(text):
        for sample in family.samples:
            if sample.name == name and sample.value:
                found[tuple(sample.labels[each] for each in labels)] += sample.value
    return dict(found)


async def scrape(app: Dibs) -> str:
    await app.hub.engine.open()
    answer = await Api(server_here(app)).get("/metrics")
    assert answer.status == 200, answer
    return answer.body if isinstance(answer.body, str) else answer.body.decode()


def test_a_server_and_two_workers_show_what_has_happened(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    texts: list[str] = []
    with Dibs(url) as app, Dibs(url) as second:
        tasks, _ = fates(app), fates(second)
        handles = [task.enqueue() for task in tasks.values() for _ in range(3)]
        cancelled = tasks["good"].using(delay=3600).enqueue()
        cancelled.cancel()
        tasks["good"].using(key="once").enqueue()
        tasks["good"].using(key="once").enqueue()
        with ExitStack() as stack:
            workers = [stack.enter_context(each.worker(concurrency=2)) for each in (app, second)]
            ports = [stack.enter_context(serve_metrics(worker, 0)) for worker in workers]
            assert {each.state for each in app.wait(handles, timeout=60)} <= {"completed", "dead"}
            texts = [get(port, "/metrics")[2] for port in ports]
            server = app.hub.runner.run(scrape(app))
            stats = app.stats()
    kinds = {"good": 4.0, "late": 3.0, "bad": 3.0, "hopeless": 3.0}
    assert values(server, "dibs_tasks_enqueued_total", "task") == {(k,): n + (k == "good") for k, n in kinds.items()}
    assert values(server, "dibs_tasks_ended_total", "task", "state") == {
        ("good", "completed"): 4,
        ("good", "cancelled"): 1,
        ("late", "dead"): 3,
        ("bad", "dead"): 3,
        ("hopeless", "dead"): 3,
    }
    assert values(server, "dibs_tasks_dead_total", "task", "reason") == {
        ("late", "exhausted"): 3,
        ("bad", "exhausted"): 3,
        ("hopeless", "permanent"): 3,
    }
    assert values(server, "dibs_task_failures_total", "task", "reason") == {
        ("late", "timeout"): 6,
        ("bad", "error"): 6,
        ("hopeless", "error"): 3,
    }
    assert values(server, "dibs_task_retries_total", "task", "reason") == {
        ("late", "timeout"): 3,
        ("bad", "error"): 3,
    }
    assert values(server, "dibs_tasks_cancelled_total", "reason") == {("user",): 1}
    assert values(server, "dibs_enqueues_duplicate_total", "queue") == {("work",): 1}
    assert values(server, "dibs_task_errors_total", "error_type")[("RuntimeError",)] == 6
    assert values(server, "dibs_tasks_claimed_total") == {(): stats.counters["claimed"]}
    assert values(server, "dibs_tasks", "state") == {("completed",): 4, ("dead",): 9, ("cancelled",): 1}
    assert values(server, "dibs_workers", "state") == {("active",): 2}
    assert values(server, "dibs_slots") == {(): 4}
    assert values(server, "dibs_queue_workers", "queue") == {("work",): 2}
    runs = Counter[tuple[str, ...]]()
    for text in texts:
        runs.update(values(text, "dibs_worker_runs_total", "task", "outcome"))
        assert values(text, "dibs_worker_live") == values(text, "dibs_worker_ready") == {(): 1}
        assert values(text, "dibs_worker_slots") == {(): 2}
    assert runs == {
        ("good", "completed"): 4,
        ("late", "failed"): 6,
        ("bad", "failed"): 6,
        ("hopeless", "permanent"): 3,
    }
    ended = sum(values(text, "dibs_worker_task_seconds_count", "state").get(("dead",), 0) for text in texts)
    assert ended == 9


def test_what_is_shown_is_in_the_catalogue_and_official_parsers_read_it(tmp_path: Path) -> None:
    known = {metric.full_name: metric for metric in METRICS}
    with Dibs(f"sqlite:///{tmp_path}/tasks.db") as app:
        good = fates(app)["good"]
        with app.worker(concurrency=1) as worker, serve_metrics(worker, 0) as port:
            good.enqueue().result(timeout=30)
            server = app.hub.runner.run(scrape(app))
            for text in (server, get(port, "/metrics")[2]):
                for family in plain_text(text):
                    name = family.name + ("_total" if family.type == "counter" else "")
                    metric = known[name]
                    assert family.type == metric.kind
                    assert family.documentation == metric.help
                    labels = {key for each in family.samples for key in each.labels} - {"le"}
                    assert labels <= set(metric.labels)
            status, kind, text = get(port, "/metrics", "application/openmetrics-text; version=1.0.0")
            assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
            assert list(open_metrics(text))
            if (promtool := shutil.which("promtool")) is not None:
                for each in (server, get(port, "/metrics")[2]):
                    checked = subprocess.run(
                        [promtool, "check", "metrics"], input=each, capture_output=True, text=True, check=False
                    )
                    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_names_follow_the_conventions() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total"), metric.name
        assert metric.kind is not Kind.HISTOGRAM or metric.name.endswith("_seconds"), metric.name
        assert metric.help.endswith(".")
        assert not {"worker", "id"} & set(metric.labels), "unbounded"


def test_a_scrape_reads_no_task_and_asks_the_store_once_however_many_scrape() -> None:
    with Dibs("memory://") as app:
        fates(app)["good"].using(delay=5).enqueue()

        async def body() -> dict[str, int]:
            figures = StoreFigures(app.hub)
            for _ in range(50):
                await figures.samples()
            return {
                verb: meter.calls for verb, meter in app.hub.meters.read().items() if verb not in ("enqueue", "open")
            }

        asked = app.hub.runner.run(body())
        assert asked == {"counts": 1, "backlog": 1, "stats": 1, "workers": 1, "queues": 1, "about": 1}


def test_labels_are_bounded_and_what_is_over_counts_as_other() -> None:
    names = Names({"task": 2})
    metric = metrics.TASKS_ENQUEUED
    given = [Sample(metric, ("q", f"t{n}", "low"), n) for n in range(5)]
    found = {sample.labels[1]: sample.value for sample in names.bounded(given)}
    assert found == {"t0": 0, "t1": 1, "other": 2 + 3 + 4}
    later = names.bounded([Sample(metric, ("q", "t9", "low"), 7), Sample(metric, ("q", "t1", "low"), 8)])
    assert {sample.labels[1]: sample.value for sample in later} == {"other": 7, "t1": 8}
    ages = [Sample(metrics.OLDEST_PENDING, (f"q{n}", "low"), n) for n in range(4)]
    (oldest,) = [each.value for each in Names({"queue": 0}).bounded(ages)]
    assert oldest == 3


def test_durations_are_added_once_though_minutes_are_repeated() -> None:
    stored: dict[int, Minute] = {}

    async def stats(queue: str | None, since: int, until: int) -> list[Minute]:
        return [minute for at, minute in sorted(stored.items()) if since <= at <= until]

    def count(durations: Durations) -> int:
        return sum(each.value.count for each in durations.samples() if each.metric is metrics.TASK_RUN)  # type: ignore[union-attr]

    async def body() -> None:
        durations = Durations(100)
        stored[99] = Minute(minute=99, worker="w", queue="q", tier="low", run={10: 50})
        seen = []
        for now in range(100, 112):
            stored[now] = Minute(minute=now, worker="w", queue="q", tier="low", run={10: 1}, wait={3: 1})
            await durations.read(stats, now)
            stored[now] = Minute(minute=now, worker="w", queue="q", tier="low", run={10: 2}, wait={3: 2})
            await durations.read(stats, now)
            seen.append(count(durations))
        assert seen == [2 * n for n in range(1, 13)]

    asyncio.run(body())


def test_distributions_have_fixed_edges() -> None:
    found = Distribution.empty()
    for seconds in (0.0005, 0.001, 0.0011, 3.0, 99999.0):
        found.observe(seconds)
    assert found.counts[0] == 2
    assert found.counts[1] == 1
    assert found.counts[EDGES.index(5.0)] == 1
    assert found.counts[-1] == 1
    from_log = distribution_of({100: 4})
    assert from_log.count == 4
    assert from_log.sum == pytest.approx(4 * 0.01378, rel=0.06)


def test_a_store_that_is_away_is_told_and_the_process_is_still_shown() -> None:
    async def away() -> None:
        raise StoreUnavailable("gone")

    async def body() -> str:
        app = Dibs("memory://")
        await app.hub.engine.open()
        try:
            app.hub.engine.counts = away  # type: ignore[method-assign,assignment]
            answer = await Api(server_here(app)).get("/metrics")
            assert answer.status == 200
            return answer.body if isinstance(answer.body, str) else answer.body.decode()
        finally:
            await app.hub.engine.close()

    text = asyncio.run(body())
    assert "dibs_store_up 0.0" in text
    assert "dibs_store_breaker_open" in text
    assert "dibs_tasks_enqueued_total" not in text


def test_an_app_can_be_registered_in_a_registry_of_its_process() -> None:
    registry = CollectorRegistry()
    with Dibs("memory://") as app:
        register_metrics(app, registry)
        fates(app)["good"].enqueue()
        text = generate_latest(registry).decode()
    assert values(text, "dibs_store_calls_total", "verb", "outcome")[("enqueue", "ok")] == 1


def test_pool_figures_are_shown() -> None:
    with Dibs("memory://") as app:
        app.hub.engine._engine.pool_use = lambda: PoolUse(size=8, busy=8, idle=0, waiting=3, exhausted=2)  # type: ignore[attr-defined]
        text = exposition(process_samples(app.hub))[0].decode()
    assert values(text, "dibs_store_pool_connections", "state") == {("busy",): 8}
    assert values(text, "dibs_store_pool_exhausted_total") == {(): 2}
    assert values(text, "dibs_store_pool_waiting") == {(): 3}


def test_a_clock_of_tests_gives_ages() -> None:
    clock = ManualClock()
    with Dibs("memory://", clock=clock) as app:
        fates(app)["good"].enqueue()
        clock.advance(90)

        async def body() -> list[Sample]:
            return await StoreFigures(app.hub).samples()

        found = {each.metric.name: each.value for each in app.hub.runner.run(body())}
    assert found["queue_oldest_pending_seconds"] == 90


def test_a_blocked_loop_is_not_ready_and_then_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    began, release = threading.Event(), threading.Event()
    with Dibs("memory://") as app:

        @app.task(name="block")
        async def block() -> None:
            began.set()
            release.wait(30)

        with app.worker(concurrency=1) as worker, serve_metrics(worker, 0) as port:
            assert get(port, "/health")[0] == get(port, "/ready")[0] == 200
            block.enqueue()
            assert began.wait(30)
            status, _, text = get(port, "/ready")
            assert (status, "the event loop is blocked" in text) == (503, True)
            assert get(port, "/health")[0] == 200
            monkeypatch.setattr("dibs.worker.liveness.BLOCKED_FOR_GOOD", 0.1)
            status, _, text = get(port, "/health")
            assert (status, "has been blocked" in text) == (503, True)
            assert get(port, "/metrics")[0] == 200
            release.set()
        assert worker.not_ready() == "the worker is not running"


def test_a_heartbeat_that_stopped_is_not_live() -> None:
    with Dibs("memory://") as app:
        fates(app)
        with app.worker(concurrency=1) as worker, serve_metrics(worker, 0) as port:
            session = worker._session
            assert session is not None
            session._heartbeat.failure = RuntimeError("broke")
            status, _, text = get(port, "/health")
            assert (status, "the heartbeat has stopped" in text) == (503, True)
            session._heartbeat.failure = None


def test_a_store_that_is_away_leaves_a_worker_live_but_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    with Dibs("memory://") as app:
        fates(app)
        with app.worker(concurrency=1) as worker, serve_metrics(worker, 0) as port:
            monkeypatch.setattr(StoreHealth, "down", property(lambda _: True))
            assert get(port, "/health")[0] == 200
            status, _, text = get(port, "/ready")
            assert (status, "the store is away" in text) == (503, True)


def test_other_paths_and_a_port_in_use() -> None:
    with Dibs("memory://") as app:
        fates(app)
        with app.worker(concurrency=1) as worker, serve_metrics(worker, 0) as port:
            assert get(port, "/secret")[0] == 404
            with pytest.raises(UsageError, match="is in use"), serve_metrics(worker, port):
                pass
