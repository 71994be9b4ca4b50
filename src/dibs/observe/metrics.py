"""The catalogue of metrics: every figure that Dibs gives to monitoring systems, with its labels and its meaning.

Exporters are views of it: they may leave a metric out, and never add one. `sources` are the names under which other
systems of this field know the same figure.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from dibs.observe.distribution import Distribution

__all__ = [
    "BREAKER_OPEN",
    "BREAKER_REFUSED",
    "CHORE_AGE",
    "CHORE_BEHIND",
    "CHORE_DURATION",
    "ENQUEUES_DUPLICATE",
    "ENQUEUES_REFUSED",
    "EVICTED",
    "HEARTBEAT_FAILURES",
    "METRICS",
    "OLDEST_PENDING",
    "OTHER",
    "POOL_CONNECTIONS",
    "POOL_EXHAUSTED",
    "POOL_SIZE",
    "POOL_WAITED",
    "POOL_WAITING",
    "POOL_WAITS",
    "QUEUE_LIMIT",
    "QUEUE_STATE",
    "QUEUE_WORKERS",
    "REQUESTS",
    "REQUEST_SECONDS",
    "SLOTS",
    "SLOTS_BUSY",
    "STORE_CALLS",
    "STORE_ITEMS",
    "STORE_SECONDS",
    "STORE_UP",
    "TASKS",
    "TASKS_CANCELLED",
    "TASKS_CLAIMED",
    "TASKS_DEAD",
    "TASKS_ENDED",
    "TASKS_ENQUEUED",
    "TASKS_PROMOTED",
    "TASKS_REPLAYED",
    "TASK_ERRORS",
    "TASK_FAILURES",
    "TASK_RETRIES",
    "TASK_RUN",
    "TASK_WAIT",
    "WORKERS",
    "WORKER_BUFFERED",
    "WORKER_BUSY",
    "WORKER_LIVE",
    "WORKER_LOST",
    "WORKER_READY",
    "WORKER_REFUSED",
    "WORKER_RUNS",
    "WORKER_RUN_SECONDS",
    "WORKER_SLOTS",
    "WORKER_STATE",
    "WORKER_STUCK",
    "WORKER_TASK_SECONDS",
    "WORKER_UNSETTLED",
    "WRITES_REFUSED",
    "Kind",
    "Metric",
    "Sample",
    "Scope",
]

PREFIX = "dibs_"
OTHER = "other"
"""The label value under which everything beyond the limit of names is counted."""


class Kind(StrEnum):
    """How values behave."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(StrEnum):
    """What a metric is about, and so where it is found."""

    STORE = "store"  # the whole store: at `/metrics` of every server, the same at each
    SERVER = "server"  # one server: at its `/metrics`
    WORKER = "worker"  # one worker: at its own port
    PROCESS = "process"  # one process that uses a store: at servers, workers, and where an app is registered


class Metric(Struct, frozen=True, kw_only=True):
    """One metric. Counters end in `_total`, durations are in seconds."""

    name: str
    kind: Kind
    scope: Scope
    help: str
    labels: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


class Sample(Struct, frozen=True):
    """One value of a metric; `labels` are in the order of the metric's."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Distribution


def counter(scope: Scope, name: str, help: str, *labels: str, sources: tuple[str, ...] = ()) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, scope=scope, help=help, labels=labels, sources=sources)


def gauge(scope: Scope, name: str, help: str, *labels: str, sources: tuple[str, ...] = ()) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, scope=scope, help=help, labels=labels, sources=sources)


def histogram(scope: Scope, name: str, help: str, *labels: str, sources: tuple[str, ...] = ()) -> Metric:
    return Metric(name=name, kind=Kind.HISTOGRAM, scope=scope, help=help, labels=labels, sources=sources)


KIND = ("queue", "task", "tier")
"""Labels of what is counted by queue, task name and the tier of the submitted priority."""

# The store.

TASKS_ENQUEUED = counter(
    Scope.STORE,
    "tasks_enqueued_total",
    "Tasks that were enqueued.",
    *KIND,
    sources=("tasks_enqueued_total", "taskqueue_tasks_submitted_total", "total_enqueued", "jobs_submitted"),
)
TASKS_CLAIMED = counter(
    Scope.STORE,
    "tasks_claimed_total",
    "Runs that were handed to workers.",
    *KIND,
    sources=("tasks_dequeued_total", "total_dequeued"),
)
TASKS_ENDED = counter(
    Scope.STORE,
    "tasks_ended_total",
    "Tasks that have ended: completed, dead or cancelled.",
    *KIND,
    "state",
    sources=("tasks_completed_total", "taskqueue_tasks_completed_total", "jobs_completed", "throughput_per_second"),
)
TASKS_DEAD = counter(
    Scope.STORE, "tasks_dead_total", "Tasks that became dead, by reason.", *KIND, "reason", sources=("tasks_dlq_total",)
)
TASKS_CANCELLED = counter(
    Scope.STORE, "tasks_cancelled_total", "Tasks that were cancelled, by reason.", *KIND, "reason"
)
TASK_FAILURES = counter(
    Scope.STORE,
    "task_failures_total",
    "Runs that failed: error, timeout or lost (the worker was).",
    *KIND,
    "reason",
    sources=("tasks_failed_total", "jobs_failed", "error_rate"),
)
TASK_ERRORS = counter(
    Scope.STORE,
    "task_errors_total",
    "Failed attempts by type of error.",
    "queue",
    "error_type",
    sources=("task_failures_total",),
)
TASK_RETRIES = counter(
    Scope.STORE,
    "task_retries_total",
    "Runs after which the task runs again: error, timeout, lost, released or snoozed.",
    *KIND,
    "reason",
    sources=("task_retries_total",),
)
TASKS_PROMOTED = counter(
    Scope.STORE,
    "tasks_promoted_total",
    "Tasks that came to a higher tier by waiting.",
    "queue",
    "task",
    "from",
    "to",
    sources=("tasks_promoted_total",),
)
TASKS_REPLAYED = counter(Scope.STORE, "tasks_replayed_total", "Tasks that were replayed.", *KIND)
WRITES_REFUSED = counter(
    Scope.STORE, "writes_refused_total", "Reports that the fence refused: their lease was over.", *KIND
)
ENQUEUES_REFUSED = counter(
    Scope.STORE,
    "enqueues_refused_total",
    "Tasks that were refused: full (or draining), or rate (their client enqueued too fast).",
    "queue",
    "reason",
    sources=("rate_limited_requests", "total_rejected"),
)
ENQUEUES_DUPLICATE = counter(
    Scope.STORE, "enqueues_duplicate_total", "Tasks that were already there under their key.", "queue"
)
TASKS = gauge(
    Scope.STORE,
    "tasks",
    "Tasks that the store holds, by state.",
    *KIND,
    "state",
    sources=(
        "queue_depth",
        "task_state_total",
        "taskqueue_queue_depth",
        "dead_letter_queue_size",
        "taskqueue_dlq_size",
        "current_size",
        "max_queue_depth",
    ),
)
OLDEST_PENDING = gauge(
    Scope.STORE,
    "queue_oldest_pending_seconds",
    "How long the oldest pending task has waited.",
    "queue",
    "tier",
    sources=("queue_oldest_pending_task_age_seconds", "queue_age_seconds"),
)
QUEUE_LIMIT = gauge(
    Scope.STORE, "queue_max_depth", "Pending tasks at which new ones are refused; absent: no limit.", "queue"
)
QUEUE_STATE = gauge(Scope.STORE, "queue_state", "1 for the state that the queue is in.", "queue", "state")
QUEUE_WORKERS = gauge(
    Scope.STORE, "queue_workers", "Active workers that serve the queue.", "queue", sources=("active_consumers",)
)
WORKERS = gauge(
    Scope.STORE, "workers", "Workers by state.", "state", sources=("workers_total", "taskqueue_active_workers")
)
SLOTS = gauge(Scope.STORE, "slots", "Tasks that all living workers can run at once.")
SLOTS_BUSY = gauge(
    Scope.STORE, "slots_busy", "Of these slots, those that are busy.", sources=("worker_capacity_used_ratio",)
)
TASK_WAIT = histogram(
    Scope.STORE,
    "task_wait_seconds",
    "From ready to claimed, of runs that have ended.",
    "queue",
    "tier",
    sources=("task_wait_time_seconds", "queue_age_seconds"),
)
TASK_RUN = histogram(
    Scope.STORE,
    "task_run_seconds",
    "From claimed to settled, of runs that have ended.",
    "queue",
    "tier",
    sources=(
        "task_processing_time_seconds",
        "taskqueue_task_duration_seconds",
        "avg_execution_time",
        "p95_execution_time",
    ),
)
CHORE_AGE = gauge(Scope.STORE, "chore_age_seconds", "Time since the last run of a chore; absent before it.", "chore")
CHORE_DURATION = gauge(Scope.STORE, "chore_duration_seconds", "How long the last run of a chore took.", "chore")
CHORE_BEHIND = gauge(
    Scope.STORE, "chore_behind_seconds", "For how long a chore has ended with work left; 0: it has not.", "chore"
)
EVICTED = counter(
    Scope.STORE,
    "store_evicted_keys_total",
    "Keys that a Redis server has evicted since it started: each may have been a task.",
    sources=("redis evictions",),
)
STORE_UP = gauge(
    Scope.STORE, "store_up", "1 if the figures of the store could be read for this scrape, 0 if they are missing."
)

# Every process.

STORE_CALLS = counter(
    Scope.PROCESS, "store_calls_total", "Calls of the store, by verb and outcome (ok, error).", "verb", "outcome"
)
STORE_ITEMS = counter(Scope.PROCESS, "store_items_total", "Items in these calls: tasks, leases, outcomes.", "verb")
STORE_SECONDS = histogram(Scope.PROCESS, "store_call_seconds", "How long calls of the store took.", "verb")
HEARTBEAT_FAILURES = counter(
    Scope.PROCESS,
    "heartbeat_failures_total",
    "Heartbeats that the store did not take.",
    sources=("worker_heartbeat_failures_total",),
)
POOL_SIZE = gauge(Scope.PROCESS, "store_pool_size", "Connections that the pool may have.")
POOL_CONNECTIONS = gauge(Scope.PROCESS, "store_pool_connections", "Connections by state: busy or idle.", "state")
POOL_WAITING = gauge(Scope.PROCESS, "store_pool_waiting", "Callers that wait for a connection.")
POOL_WAITS = counter(Scope.PROCESS, "store_pool_waits_total", "Callers that had to wait for a connection.")
POOL_WAITED = counter(Scope.PROCESS, "store_pool_wait_seconds_total", "How long callers have waited for a connection.")
POOL_EXHAUSTED = counter(
    Scope.PROCESS,
    "store_pool_exhausted_total",
    "Callers that were given no connection in time.",
    sources=("DB connection pool exhausted",),
)
BREAKER_OPEN = gauge(
    Scope.PROCESS,
    "store_breaker_open",
    "1 while the store is known to be away and calls fail at once.",
    sources=("redis_fallback_mode",),
)
BREAKER_REFUSED = counter(
    Scope.PROCESS, "store_breaker_refused_total", "Calls that failed at once because the store was known to be away."
)

# A server.

REQUESTS = counter(
    Scope.SERVER,
    "http_requests_total",
    "Requests by route, method and status.",
    "route",
    "method",
    "status",
    sources=("api_errors_total",),
)
REQUEST_SECONDS = histogram(
    Scope.SERVER,
    "http_request_seconds",
    "How long requests took, waiting on purpose included.",
    "route",
    "method",
    sources=("api_request_duration_seconds",),
)

# A worker.

WORKER_SLOTS = gauge(Scope.WORKER, "worker_slots", "Tasks that the worker can run at once.")
WORKER_BUSY = gauge(
    Scope.WORKER, "worker_slots_busy", "Of these, those that are busy.", sources=("worker_capacity_used_ratio",)
)
WORKER_STUCK = gauge(Scope.WORKER, "worker_slots_stuck", "Slots of runs that were stopped and do not end.")
WORKER_BUFFERED = gauge(Scope.WORKER, "worker_buffered", "Tasks that are claimed and have not started.")
WORKER_UNSETTLED = gauge(Scope.WORKER, "worker_unsettled", "Outcomes that the store has not taken yet.")
WORKER_STATE = gauge(Scope.WORKER, "worker_state", "1 for the state that the worker is in.", "state")
WORKER_LIVE = gauge(Scope.WORKER, "worker_live", "1 if the worker lives, as /health says.")
WORKER_READY = gauge(Scope.WORKER, "worker_ready", "1 if the worker can work, as /ready says.")
WORKER_RUNS = counter(
    Scope.WORKER,
    "worker_runs_total",
    "Runs that have ended, by outcome.",
    "queue",
    "task",
    "outcome",
    sources=("tasks_dequeued_total",),
)
WORKER_LOST = counter(Scope.WORKER, "worker_leases_lost_total", "Runs whose lease was lost.")
WORKER_REFUSED = counter(Scope.WORKER, "worker_writes_refused_total", "Outcomes that the fence refused.")
WORKER_RUN_SECONDS = histogram(
    Scope.WORKER,
    "worker_run_seconds",
    "How long runs took.",
    "queue",
    "task",
    sources=("taskqueue_task_duration_seconds",),
)
WORKER_TASK_SECONDS = histogram(
    Scope.WORKER,
    "worker_task_seconds",
    "From ready to settled, of tasks that have ended here: all their waiting, and the last run.",
    "tier",
    "state",
    sources=("task_duration_seconds",),
)

METRICS: tuple[Metric, ...] = tuple(each for each in vars().copy().values() if isinstance(each, Metric))
"""All of them, in this order."""
