"""Traces, metrics and logs by OpenTelemetry: from the enqueue to the run, in threads, on loops and in processes."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from dibs import Context, Dibs, chain, group, take
from dibs.attempt.log_filter import TaskFilter
from dibs.engines.memory import MemoryEngine
from dibs.errors import InvalidOption, QueueFull, StoreUnavailable, TaskCancelled, TaskFailed
from dibs.integrations.opentelemetry import MOST_LINKS, use_opentelemetry
from dibs.testing import Sandbox
from dibs.testing.faults import Faults, faulty

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN = f"00-{TRACE}-00f067aa0ba902b7-01"


class Traced:
    """An app, and the spans that it has left."""

    def __init__(self, app: Dibs) -> None:
        self.app = app
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        use_opentelemetry(app, tracer_provider=self.provider, meter_provider=self.meters)

    def spans(self, operation: str) -> list[ReadableSpan]:
        found = self.exporter.get_finished_spans()
        return [span for span in found if span.name.split()[0] == operation]

    def span(self, operation: str) -> ReadableSpan:
        (found,) = self.spans(operation)
        return found

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        (scope,) = data.resource_metrics[0].scope_metrics
        return [point for metric in scope.metrics if metric.name == name for point in metric.data.data_points]

    def close(self) -> None:
        self.app.close()
        self.provider.shutdown()
        self.meters.shutdown()


@pytest.fixture
def traced() -> Iterator[Traced]:
    found = Traced(Dibs("memory://", retries=0, retry_base=0))
    yield found
    found.close()


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def identity(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def current() -> tuple[int, int]:
    found = trace.get_current_span().get_span_context()
    return found.trace_id, found.span_id


@pytest.mark.parametrize("where", ["thread", "loop"])
def test_a_run_is_a_child_of_its_enqueue_and_linked_to_it(traced: Traced, where: str) -> None:
    app, seen = traced.app, []

    @app.task(queue="mail", name="plain")
    def plain(ctx: Context, to: str) -> str:
        seen.append(current())
        return to

    @app.task(queue="mail", name="awaited")
    async def awaited(ctx: Context, to: str) -> str:
        await asyncio.sleep(0)
        seen.append(current())
        return to

    task = plain if where == "thread" else awaited
    with traced.tracer.start_as_current_span("request") as request, app.worker():
        handle = task.using(priority=7).enqueue("ada")
        assert handle.result(timeout=30) == "ada"

    sent, run = traced.span("send"), traced.span("process")
    assert (sent.name, sent.kind, run.name, run.kind) == (
        "send mail",
        SpanKind.PRODUCER,
        "process mail",
        SpanKind.CONSUMER,
    )
    assert parent(sent) == identity(request)  # type: ignore[arg-type]
    assert parent(run) == identity(sent)
    assert linked(run) == [identity(sent)]
    assert seen == [identity(run)]
    assert run.status.status_code is StatusCode.UNSET
    assert facts(sent) == {
        "messaging.system": "dibs",
        "messaging.operation.type": "send",
        "messaging.operation.name": "enqueue",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "messaging.message.body.size": len(b'{"to":"ada"}'),
        "dibs.task.name": task.name,
        "dibs.task.priority": 7,
    }
    assert facts(run) == {
        "messaging.system": "dibs",
        "messaging.operation.type": "process",
        "messaging.operation.name": "run",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "dibs.task.id": handle.id,
        "dibs.task.name": task.name,
        "dibs.task.priority": 7,
        "dibs.task.attempt": 1,
        "dibs.task.lease": 1,
    }


def test_claims_and_settlements_have_spans_and_empty_claims_have_none(traced: Traced) -> None:
    @traced.app.task
    def work(number: int) -> None: ...

    handle = work.enqueue(1)
    with traced.app.worker(name="w1"):
        handle.result(timeout=30)
    received, settled = traced.span("receive"), traced.span("settle")
    assert (received.name, received.kind, settled.kind) == ("receive default", SpanKind.CLIENT, SpanKind.CLIENT)
    assert linked(received) == [identity(traced.span("send"))]
    assert facts(received) == {
        "messaging.system": "dibs",
        "messaging.operation.type": "receive",
        "messaging.operation.name": "claim",
        "messaging.batch.message_count": 1,
        "messaging.destination.name": "default",
        "dibs.worker": "w1",
    }
    assert facts(settled)["messaging.batch.message_count"] == 1
    assert received.start_time is not None
    assert received.end_time is not None
    assert received.start_time < received.end_time


def test_a_span_links_to_so_many_enqueues_at_most(traced: Traced) -> None:
    @traced.app.task(name="work")
    def work() -> None: ...

    for _ in range(MOST_LINKS + 3):
        work.enqueue()
    assert len(traced.app.claim(limit=MOST_LINKS + 3)) == MOST_LINKS + 3
    received = traced.span("receive")
    assert (facts(received)["messaging.batch.message_count"], len(received.links)) == (MOST_LINKS + 3, MOST_LINKS)


def test_what_a_task_enqueues_is_a_child_of_its_run(traced: Traced) -> None:
    app = traced.app

    @app.task(name="inner")
    def inner(ctx: Context) -> dict[str, str]:
        return dict(ctx.headers)

    @app.task(name="outer")
    async def outer() -> str:
        return (await inner.aenqueue()).id

    with app.worker():
        first = outer.using(headers={"tenant": "acme"}).enqueue()
        headers = app.handle(first.result(timeout=30)).result(timeout=30)
    sent = {facts(span)["dibs.task.name"]: span for span in traced.spans("send")}
    ran = {facts(span)["dibs.task.name"]: span for span in traced.spans("process")}
    assert parent(sent["inner"]) == identity(ran["outer"])
    assert parent(ran["inner"]) == identity(sent["inner"])
    assert facts(ran["inner"])["dibs.task.parent"] == first.id
    assert headers["tenant"] == "acme"
    assert headers["traceparent"].split("-")[2] == f"{identity(sent['inner'])[1]:016x}"
    assert len({identity(span)[0] for span in (*sent.values(), *ran.values())}) == 1


def test_a_batch_is_one_span_that_all_its_tasks_lead_to(traced: Traced) -> None:
    app = traced.app

    @app.task(name="work")
    def work(number: int) -> int:
        return number

    assert app.enqueue_many([]) == []
    with app.worker():
        handles = app.enqueue_many([work.call(number) for number in range(3)])
        assert [handle.result(timeout=30) for handle in handles] == [0, 1, 2]
    sent, runs = traced.span("send"), traced.spans("process")
    assert (sent.name, facts(sent)["messaging.batch.message_count"]) == ("send default", 3)
    assert [parent(run) for run in runs] == [identity(sent)] * 3


def test_a_workflow_is_one_span_and_stays_the_workflow_that_it_was(traced: Traced) -> None:
    app = traced.app

    @app.task(name="number", queue="numbers")
    def number(value: int) -> int:
        return value

    @app.task(name="total")
    def total(values: list[int]) -> int:
        return sum(values)

    numbers = group(number.call(1), number.call(2))
    flow = chain(number.call(0), numbers, total.call(take(numbers)))
    with app.worker():
        workflow = app.enqueue_workflow(flow, "sums")
        assert workflow.handles[-1].result(timeout=30) == 3
        again = app.enqueue_workflow(flow, "sums")
    assert again.id == workflow.id
    assert all(handle.duplicate for handle in again.handles)
    sent = traced.spans("send")[0]
    assert (sent.name, facts(sent)["messaging.batch.message_count"]) == ("send", 4)
    assert {parent(run) for run in traced.spans("process")} == {identity(sent)}
    assert {facts(run)["dibs.task.workflow"] for run in traced.spans("process")} == {workflow.id}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failing_task_has_a_failed_span(traced: Traced, is_async: bool) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    @traced.app.task(name="plain")
    def plain() -> None:
        raise Unprintable

    @traced.app.task(name="awaited")
    async def awaited() -> None:
        raise LookupError("gone")

    with traced.app.worker():
        handle = (awaited if is_async else plain).enqueue()
        with pytest.raises(TaskFailed):
            handle.result(timeout=30)
    run = traced.span("process")
    assert run.status.status_code is StatusCode.ERROR
    (event,) = run.events
    said = dict(event.attributes or {})
    assert event.name == "exception"
    assert str(said["exception.type"]).endswith("LookupError" if is_async else "Unprintable")
    if is_async:
        assert said["exception.message"] == "gone"
        assert 'raise LookupError("gone")' in str(said["exception.stacktrace"])
        assert facts(run)["error.type"] == "LookupError"


def test_every_attempt_has_its_span_below_the_same_enqueue(traced: Traced) -> None:
    @traced.app.task(retries=1)
    def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("not yet")

    with traced.app.worker():
        flaky.enqueue().result(timeout=30)
    runs = traced.spans("process")
    assert [facts(run)["dibs.task.attempt"] for run in runs] == [1, 2]
    assert [run.status.status_code for run in runs] == [StatusCode.ERROR, StatusCode.UNSET]
    assert {parent(run) for run in runs} == {identity(traced.span("send"))}


def test_a_cancelled_run_is_no_error(traced: Traced) -> None:
    @traced.app.task
    async def waits() -> None:
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()
    with traced.app.worker():
        handle = waits.enqueue()

        async def begun() -> None:
            await started.wait()

        traced.app.hub.runner.run(begun())
        handle.cancel()
        with pytest.raises(TaskCancelled):
            handle.result(timeout=30)
    run = traced.span("process")
    assert (run.status.status_code, facts(run)["dibs.task.stopped"]) == (StatusCode.UNSET, "cancelled")


def test_a_run_that_puts_its_task_off_is_no_error(traced: Traced) -> None:
    @traced.app.task
    def naps(ctx: Context) -> None:
        ctx.snooze(60)

    with Sandbox(traced.app) as box:
        naps.enqueue()
        box.run_due()
    run = traced.span("process")
    assert (run.status.status_code, facts(run)["dibs.task.stopped"]) == (StatusCode.UNSET, "snoozed")


def test_a_run_that_takes_too_long_is_an_error(traced: Traced) -> None:
    @traced.app.task(timeout=0.05)
    async def waits() -> None:
        await asyncio.Event().wait()

    with traced.app.worker():
        handle = waits.enqueue()
        with pytest.raises(TaskFailed):
            handle.result(timeout=30)
    assert traced.span("process").status.status_code is StatusCode.ERROR


def test_a_refused_enqueue_has_a_failed_span(traced: Traced) -> None:
    app = traced.app

    @app.task(queue="small")
    def work() -> None: ...

    app.queues.set("small", max_depth=1)
    work.enqueue()
    with pytest.raises(QueueFull):
        work.enqueue()
    assert [span.status.status_code for span in traced.spans("send")] == [StatusCode.UNSET, StatusCode.ERROR]


def test_a_failed_call_of_the_store_has_a_failed_span() -> None:
    faults = Faults()
    traced = Traced(Dibs("memory://", engine=faulty(MemoryEngine(), faults)))
    assert traced.app.claim() == []
    faults.away()
    with pytest.raises(StoreUnavailable):
        traced.app.claim()
    received = traced.span("receive")
    assert received.status.status_code is StatusCode.ERROR
    (point,) = (
        each for each in traced.points("messaging.client.operation.duration") if "error.type" in each.attributes
    )
    assert point.attributes["error.type"].endswith("StoreUnavailable")
    faults.back()
    traced.close()


def test_headers_of_the_user_are_kept(traced: Traced) -> None:
    @traced.app.task
    def work(ctx: Context) -> dict[str, str]:
        return dict(ctx.headers)

    given = {"tenant": "acme", "traceparent": GIVEN, "tracestate": "a=b"}
    with traced.app.worker():
        headers = work.using(headers=given).enqueue().result(timeout=30)
        with traced.tracer.start_as_current_span("request") as request:
            other = work.using(headers=given).enqueue().result(timeout=30)
    sent, below = traced.spans("send")
    assert headers["tenant"] == other["tenant"] == "acme"
    assert parent(sent) == (int(TRACE, 16), int("00f067aa0ba902b7", 16))  # outside of any span, the one given by hand
    assert headers["tracestate"] == "a=b"
    assert parent(below) == identity(request)  # type: ignore[arg-type]
    assert "tracestate" not in other


def test_baggage_reaches_the_task(traced: Traced) -> None:
    @traced.app.task
    def work() -> object:
        return baggage.get_baggage("customer")

    token = context.attach(baggage.set_baggage("customer", "acme"))
    try:
        handle = work.enqueue()
    finally:
        context.detach(token)
    with traced.app.worker():
        assert handle.result(timeout=30) == "acme"


def test_nothing_is_traced_unless_asked_for() -> None:
    with Dibs("memory://") as app:

        @app.task
        def work(ctx: Context) -> dict[str, str]:
            return dict(ctx.headers)

        assert (app.hub.tracing, app.hub.log_facts, app.hub.meters.listener) == (None, None, None)
        with app.worker():
            assert work.enqueue().result(timeout=30) == {}


def test_without_a_provider_headers_are_passed_on_as_they_are() -> None:
    with Dibs("memory://") as app:
        use_opentelemetry(app, tracer_provider=trace.NoOpTracerProvider())

        @app.task
        def work(ctx: Context) -> dict[str, str]:
            return dict(ctx.headers)

        with app.worker():
            assert work.enqueue().result(timeout=30) == {}
            assert work.using(headers={"traceparent": GIVEN}).enqueue().result(timeout=30) == {"traceparent": GIVEN}


def test_log_records_inside_a_task_name_the_current_span(traced: Traced) -> None:
    app, said = traced.app, []

    def note(name: str) -> None:
        record = logging.LogRecord("shop", logging.INFO, "", 0, name, None, None)
        TaskFilter().filter(record)
        said.append((getattr(record, "trace_id", None), getattr(record, "span_id", None)))

    @app.task
    def work() -> None:
        note("in the run")
        with traced.tracer.start_as_current_span("part"):
            note("in a part of it")

    with app.worker():
        work.enqueue().result(timeout=30)
    note("outside")
    shown = [
        (f"{trace_id:032x}", f"{span_id:016x}")
        for trace_id, span_id in (identity(traced.span("process")), identity(traced.span("part")))
    ]
    assert said == [*shown, (None, None)]


def test_metrics_count_and_measure(traced: Traced) -> None:
    @traced.app.task(name="work", queue="mail")
    def work(fails: bool) -> None:
        if fails:
            raise ValueError("no")

    with traced.app.worker():
        handles = traced.app.enqueue_many([work.call(False), work.call(True)])
        traced.app.wait(handles, timeout=30)
    (sent,) = traced.points("messaging.client.sent.messages")
    (consumed,) = traced.points("messaging.client.consumed.messages")
    assert (sent.value, consumed.value) == (2, 2)
    assert sent.attributes == {
        "messaging.system": "dibs",
        "messaging.operation.name": "enqueue",
        "messaging.destination.name": "mail",
    }
    runs = {point.attributes.get("error.type"): point for point in traced.points("messaging.process.duration")}
    assert {error: point.count for error, point in runs.items()} == {None: 1, "ValueError": 1}
    assert runs[None].attributes["dibs.task.name"] == "work"
    calls = {
        each.attributes["messaging.operation.name"]: each
        for each in traced.points("messaging.client.operation.duration")
    }
    assert set(calls) == {"enqueue", "claim", "settle"}
    assert 0 < calls["enqueue"].sum < 30


def test_a_listener_that_was_there_goes_on_being_told() -> None:
    told: list[str] = []
    with Dibs("memory://") as app:
        app.hub.meters.listener = lambda verb, *_: told.append(verb)
        use_opentelemetry(app, tracer_provider=trace.NoOpTracerProvider())
        app.claim()
    assert "claim" in told


def test_using_it_twice_changes_nothing(traced: Traced) -> None:
    hub = traced.app.hub
    before = (hub.tracing, [*hub.middleware], hub.meters.listener)
    use_opentelemetry(traced.app)
    assert (hub.tracing, hub.middleware, hub.meters.listener) == before


def test_what_is_no_app_is_refused() -> None:
    with pytest.raises(InvalidOption, match="app must be"):
        use_opentelemetry("shop")  # type: ignore[arg-type]


def test_without_opentelemetry_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "try: import dibs.integrations.opentelemetry\n"
        "except Exception as error: print(f'{type(error).__name__}: {error}')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "UsageError: traces need the API of OpenTelemetry: pip install 'dibs[otel]'.\n"


APP = """
import logging
import os
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from dibs import Dibs
from dibs.integrations.opentelemetry import use_opentelemetry

file = open(os.environ["SPANS"], "a", buffering=1)
provider = TracerProvider(shutdown_on_exit=False)
exporter = ConsoleSpanExporter(out=file, formatter=lambda span: f"{os.getpid()} {span.to_json(indent=None)}\\n")
provider.add_span_processor(SimpleSpanProcessor(exporter))
app = Dibs("memory://", retries=0)
use_opentelemetry(app, tracer_provider=provider)


@app.task(executor="process")
def plain() -> int:
    return os.getpid()


@app.task(executor="process")
async def awaited() -> int:
    return os.getpid()


@app.task(executor="process")
def fails() -> None:
    raise ValueError("no")
"""


@pytest.mark.parametrize("name", ["plain", "awaited", "fails"])
def test_runs_in_processes_belong_to_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = f"traced_{name}_app"
    (tmp_path / f"{module}.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SPANS", str(tmp_path / "spans"))
    shop = importlib.import_module(module)
    with shop.app.worker():
        handle = getattr(shop, name).enqueue()
        (ended,) = shop.app.wait([handle], timeout=30)
    pid = handle.result(timeout=30) if ended.state == "completed" else None
    shop.app.close()
    shop.provider.shutdown()
    shop.file.close()
    found = [line.split(" ", 1) for line in (tmp_path / "spans").read_text().splitlines()]
    spans = {span["name"]: (int(number), span) for number, text in found for span in [json.loads(text)]}
    sender, sent = spans["send default"]
    runner, run = spans["process default"]
    assert sender != runner
    assert pid in (None, runner)
    assert run["context"]["trace_id"] == sent["context"]["trace_id"]
    assert run["parent_id"] == sent["context"]["span_id"]
    assert [link["context"]["span_id"] for link in run["links"]] == [sent["context"]["span_id"]]
    assert run["status"]["status_code"] == ("ERROR" if name == "fails" else "UNSET")


def test_a_sandbox_traces_as_a_worker_does(traced: Traced) -> None:
    @traced.app.task
    def work() -> None: ...

    with Sandbox(traced.app, eager=True):
        work.enqueue()
    assert parent(traced.span("process")) == identity(traced.span("send"))
