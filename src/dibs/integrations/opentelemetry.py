"""OpenTelemetry: one trace from the code that enqueues a task to the code that it runs, in whatever process.

The context travels in the task's headers (`traceparent`). Names follow the semantic conventions for messaging.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from dibs.attempt.context import Context
from dibs.attempt.outcome import Snoozed, describe
from dibs.client.app import Dibs
from dibs.core.options import check_kind
from dibs.core.task import LeasedTask, NewTask, with_spec
from dibs.errors import TaskCancelled, UsageError
from dibs.observe.meters import Listener
from dibs.version import __version__

try:
    from opentelemetry import context, metrics, propagate, trace
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode
except ModuleNotFoundError as error:
    raise UsageError("traces need the API of OpenTelemetry: pip install 'dibs[otel]'.") from error

if TYPE_CHECKING:
    from opentelemetry.context import Context as TraceContext
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["MOST_LINKS", "use_opentelemetry"]

Attributes = dict[str, str | int]

MOST_LINKS = 64
"""Links of one span to the enqueues of the tasks that were claimed: exporters drop what is above 128."""

TRACE_HEADERS = ("traceparent", "tracestate")
"""They belong together: a new one never goes with an old one."""

BOUNDARIES = (
    *(0.0005, 0.001, 0.0025),  # many calls of a store take less than the lowest boundary of the conventions
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
)
"""Seconds."""

SYSTEM: Attributes = {"messaging.system": "dibs"}
SEND: Attributes = {**SYSTEM, "messaging.operation.type": "send", "messaging.operation.name": "enqueue"}
RECEIVE: Attributes = {**SYSTEM, "messaging.operation.type": "receive", "messaging.operation.name": "claim"}
PROCESS: Attributes = {**SYSTEM, "messaging.operation.type": "process", "messaging.operation.name": "run"}
SETTLE: Attributes = {**SYSTEM, "messaging.operation.type": "settle", "messaging.operation.name": "settle"}

QUEUE = "messaging.destination.name"
COUNT = "messaging.batch.message_count"
ERROR = "error.type"


def use_opentelemetry(
    app: Dibs, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Trace what an app enqueues and runs, by default with the global providers. Call it right after the app is made.

    Executor processes import the app's module, so a call there counts for them as well, and so must the set-up of the
    SDK. Calling it again does nothing.
    """
    hub = check_kind(app, "app", Dibs).hub
    if isinstance(hub.tracing, OpenTelemetry):
        return
    traced = OpenTelemetry(tracer_provider, meter_provider, hub.meters.listener)
    hub.tracing = traced
    hub.log_facts = log_facts
    hub.meters.listener = traced.called
    hub.middleware.insert(0, traced.processing)


class OpenTelemetry:
    """Makes the spans and metrics of one app."""

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None, listener: Listener | None
    ) -> None:
        """`listener` is the one that was there before; it goes on being told."""
        self._listener = listener
        self._tracer = trace.get_tracer("dibs", __version__, tracer_provider)
        meter = metrics.get_meter("dibs", __version__, meter_provider)
        self._call_durations = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long calls of the store take.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._run_durations = meter.create_histogram(
            "messaging.process.duration", "s", "How long runs take.", explicit_bucket_boundaries_advisory=BOUNDARIES
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Tasks that this process tried to enqueue."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Tasks that this process has claimed."
        )

    @contextmanager
    def sending(self, tasks: Sequence[NewTask]) -> Iterator[Sequence[NewTask]]:
        """A span around one enqueue, which the headers of its tasks lead to."""
        if not tasks:
            yield tasks
            return
        attributes = sent_attributes(tasks)
        span = self._tracer.start_span(
            named("send", attributes), caller_of(tasks[0]), SpanKind.PRODUCER, attributes=attributes
        )
        token = context.attach(trace.set_span_in_context(span))
        failure: Attributes = {}
        try:
            yield carrying(tasks)
        except BaseException as error:
            failure = failed(span, error)
            raise
        finally:
            for queue, number in Counter(new.queue for new in tasks).items():
                self._sent.add(number, {**SYSTEM, "messaging.operation.name": "enqueue", QUEUE: queue, **failure})
            context.detach(token)
            span.end()

    def processing(self, ctx: Context) -> Iterator[None]:
        """The middleware: a span around one run, where it runs."""
        sender = propagate.extract(ctx.headers, context.Context())
        span = self._tracer.start_span(
            f"process {ctx.queue}", sender, SpanKind.CONSUMER, run_attributes(ctx), links_to([sender])
        )
        token = context.attach(trace.set_span_in_context(span, sender))
        failure: Attributes = {}
        began = time.perf_counter()
        try:
            yield
        except Snoozed:  # nothing is wrong with the task
            span.set_attribute("dibs.task.stopped", "snoozed")
            raise
        except BaseException as error:
            failure = stopped(span, ctx) if is_stopped(ctx, error) else failed(span, error)
            raise
        finally:
            known = {**SYSTEM, "messaging.operation.name": "run", QUEUE: ctx.queue, "dibs.task.name": ctx.name}
            self._run_durations.record(time.perf_counter() - began, {**known, **failure})
            context.detach(token)
            span.end()

    def called(self, verb: str, args: tuple[Any, ...], answer: Any, took: int, error: BaseException | None) -> None:
        """The listener of the app's meters: told of every call of the store, when it has ended."""
        if self._listener is not None:
            self._listener(verb, args, answer, took, error)
        if verb not in ("enqueue", "claim", "settle") or isinstance(error, CancelledError):
            return
        failure: Attributes = {} if error is None else {ERROR: describe(error).type}
        self._call_durations.record(took / 1e9, {**SYSTEM, "messaging.operation.name": verb, **failure})
        if verb == "claim":
            self._claimed(args[0].worker, [] if answer is None else answer.tasks, took, error)
        elif verb == "settle":
            self._span_of_call("settle", {**SETTLE, COUNT: len(args[0])}, [], took, error)

    def _claimed(self, worker: str, tasks: Sequence[LeasedTask], took: int, error: BaseException | None) -> None:
        if not tasks and error is None:
            return
        queues = Counter(task.queue for task in tasks)
        for queue, number in queues.items():
            self._consumed.add(number, {**SYSTEM, "messaging.operation.name": "claim", QUEUE: queue})
        attributes = {**RECEIVE, COUNT: len(tasks), "dibs.worker": worker, **same(QUEUE, queues)}
        senders = (propagate.extract(task.spec.headers, context.Context()) for task in tasks if task.spec.headers)
        self._span_of_call("receive", attributes, links_to(islice(senders, MOST_LINKS)), took, error)

    def _span_of_call(
        self, name: str, attributes: Attributes, links: Sequence[Link], took: int, error: BaseException | None
    ) -> None:
        """The span of a call that has just ended."""
        ended = time.time_ns()
        span = self._tracer.start_span(
            named(name, attributes), None, SpanKind.CLIENT, attributes, links, start_time=ended - took
        )
        if error is not None:
            failed(span, error)
        span.end(ended)


def log_facts() -> dict[str, str]:
    """What log records say of the current span."""
    current = trace.get_current_span().get_span_context()
    if not current.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(current.trace_id), "span_id": trace.format_span_id(current.span_id)}


def caller_of(new: NewTask) -> TraceContext | None:
    """The context that an enqueue belongs to: the current one; outside of any span, that of headers given by hand."""
    if trace.get_current_span().get_span_context().is_valid or not new.spec.headers:
        return None
    return propagate.extract(new.spec.headers)


def carrying(tasks: Sequence[NewTask]) -> Sequence[NewTask]:
    """The tasks with the current context in their headers."""
    fresh: dict[str, str] = {}
    propagate.inject(fresh)
    if not fresh:  # nothing records spans here: what was inherited still holds
        return tasks
    return [with_spec(new, headers=merged(new.spec.headers, fresh)) for new in tasks]


def merged(headers: Mapping[str, str], fresh: Mapping[str, str]) -> dict[str, str]:
    return {**{name: value for name, value in headers.items() if name not in TRACE_HEADERS}, **fresh}


def links_to(contexts: Iterable[TraceContext]) -> list[Link]:
    found = (trace.get_current_span(each).get_span_context() for each in contexts)
    return [Link(each) for each in found if each.is_valid]


def sent_attributes(tasks: Sequence[NewTask]) -> Attributes:
    first = tasks[0]
    if len(tasks) > 1:
        names, queues = {new.name for new in tasks}, {new.queue for new in tasks}
        return {**SEND, COUNT: len(tasks), **same(QUEUE, queues), **same("dibs.task.name", names)}
    return {
        **SEND,
        QUEUE: first.queue,
        "messaging.message.id": first.id,
        "messaging.message.body.size": len(first.args),
        "dibs.task.name": first.name,
        "dibs.task.priority": first.spec.priority,
    }


def run_attributes(ctx: Context) -> Attributes:
    found: Attributes = {
        **PROCESS,
        QUEUE: ctx.queue,
        "messaging.message.id": ctx.id,
        "dibs.task.id": ctx.id,
        "dibs.task.name": ctx.name,
        "dibs.task.priority": ctx.priority,
        "dibs.task.attempt": ctx.attempt,
        "dibs.task.lease": ctx.lease,
    }
    if ctx.parent is not None:
        found["dibs.task.parent"] = ctx.parent
    if ctx.workflow is not None:
        found["dibs.task.workflow"] = ctx.workflow
    return found


def same(attribute: str, values: Iterable[str]) -> Attributes:
    """The attribute, if there is only one value."""
    found = list(values)
    return {attribute: found[0]} if len(found) == 1 else {}


def named(operation: str, attributes: Attributes) -> str:
    return f"{operation} {attributes[QUEUE]}" if QUEUE in attributes else operation


def is_stopped(ctx: Context, error: BaseException) -> bool:
    """Whether a run was cancelled or handed back. One that took too long has failed."""
    return ctx.cancelled and ctx.time_left != 0 and isinstance(error, CancelledError | TaskCancelled)


def stopped(span: Span, ctx: Context) -> Attributes:
    """The run was stopped: nothing is wrong with the task."""
    span.set_attribute("dibs.task.stopped", str(ctx._link.stopping))
    return {}


def failed(span: Span, error: BaseException) -> Attributes:
    """Record an error on a span, as text that is bounded and never raises. The answer is for metrics."""
    failure = describe(error)
    span.add_event(
        "exception",
        {
            "exception.type": failure.type,
            "exception.message": failure.message,
            "exception.stacktrace": failure.traceback,
        },
    )
    span.set_attribute(ERROR, failure.type)
    span.set_status(StatusCode.ERROR, f"{failure.type}: {failure.message}")
    return {ERROR: failure.type}
