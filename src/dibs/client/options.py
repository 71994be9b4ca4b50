"""What `@app.task(…)` and `.using(…)` accept, checked when it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import Struct, structs

from dibs.attempt.hooks import TaskEnd
from dibs.client.dependencies import After, Source, check_after
from dibs.client.elsewhere import OF_OPTIONS
from dibs.core.codec import as_json
from dibs.core.graph import Edge
from dibs.core.ids import check_id
from dibs.core.options import (
    CAPABILITIES,
    KEY_LIMIT,
    NAME_LIMIT,
    check_flag,
    check_label,
    check_mapping,
    check_name,
    check_names,
    check_text,
    shown,
    unknown_option,
    worded,
)
from dibs.core.priority import parse_priority
from dibs.core.recurrence import CatchUp, Overlap
from dibs.core.retry import ExceptionTypes
from dibs.core.settings import SHARED, Defaults, check_defaults
from dibs.core.task import NewTask, TaskSpec
from dibs.core.times import DAY, Duration, Instant, duration, instant, seconds
from dibs.errors import InvalidArguments, InvalidOption
from dibs.runtime.hub import Hub

__all__ = [
    "METADATA_LIMIT",
    "CallOptions",
    "Options",
    "Priority",
    "RecurrenceOptions",
    "SharedOptions",
    "Span",
    "TaskOptions",
    "check_known",
    "check_metadata",
    "check_requires",
    "label_of",
    "make_options",
    "shared_options",
]

Span = float | timedelta
"""Seconds, or a timedelta."""

METADATA_LIMIT = 16 * 1024


Priority = int | Literal["critical", "high", "normal", "medium", "low"]
"""0 to 100, or a name for 90, 70, 50, 50 and 30. What is higher runs first."""


class SharedOptions(TypedDict, total=False):
    """Options with defaults from apps, queues and tasks; None leaves it to the next one.

    The first that says something decides: call, task, tier, queue, app, built-in default.
    """

    retries: int | None
    """How many more attempts a task has after one that failed. Default: 3."""
    timeout: Span | None
    """Seconds that one attempt may take. Default: no limit but that of every run, 24 hours."""
    lease: Span | None
    """Seconds after which a task whose worker gives no sign of life runs elsewhere. Default: 30."""
    retry_base: Span | None
    """Seconds before the second attempt; the wait doubles after each further failure. Default: 1."""
    retry_cap: Span | None
    """The longest wait between two attempts, in seconds. Default: 300."""
    timeout_growth: float | None
    """The factor by which `timeout` grows with every failed attempt. Default: 1."""


class TaskOptions(SharedOptions, total=False):
    """What `@app.task(…)` takes besides the options that apps, queues and calls have as well."""

    name: str | None
    """The name under which tasks are stored. Default: `module.function`."""
    queue: str
    """The queue that its tasks go into. Default: "default"."""
    priority: Priority
    """Default: 50."""
    requires: Sequence[str]
    """Capabilities that a worker must offer to get its tasks, such as "gpu" or "host:NAME"."""
    retry_on: ExceptionTypes | type[BaseException]
    """The exceptions after which it is tried again; any other makes it dead at once. Default: all."""
    no_retry: ExceptionTypes | type[BaseException]
    """Exceptions that make it dead at once, whatever `retry_on` says."""
    executor: Literal["loop", "thread", "process"] | None
    """Where it runs: "loop" (default for async functions), "thread" (default for others), or "process" for code that
    must be killable, limited in memory, or must not hold up others in its process."""
    memory_limit: int | None
    """Bytes that its process may use; for `executor="process"` on Linux and macOS."""
    per: str | None
    """The parameter whose value is the partition that a queue's `per_partition` limits."""
    keep_result: bool
    """False: what the function returns is not stored, whatever it is, and `handle.result()` gives None."""
    backoff: Sequence[Span] | Callable[[int], Span] | Callable[[int, BaseException], Span] | None
    """Seconds to wait after each failed attempt, in place of `retry_base` and `retry_cap`: a list, whose last entry
    repeats, or a function of the number of the attempt that failed (from 1), and of its error if it takes two
    arguments. The waits hold exactly as given; `Retry(after=…)` goes first. A task that was lost with its worker does
    not wait by it. If the function fails, that is logged, and `retry_base` holds."""
    on_success: Callable[[TaskEnd], Any] | None
    """Called with the end of a task that has completed; see `app.on_success`."""
    on_failure: Callable[[TaskEnd], Any] | None
    """Called with the end of a task that is dead; see `app.on_failure`."""


class RecurrenceOptions(TypedDict, total=False):
    """What `@app.schedule(…)` takes besides cron: when it fires, and what becomes of fires that were missed."""

    every: Span | None
    """Seconds between two fires, in place of cron."""
    tz: str | ZoneInfo | None
    """The time zone that cron is meant in, such as "Europe/Zurich". Default: UTC."""
    jitter: Span
    """Each task starts up to so many seconds later, always the same for the same fire. Default: 0."""
    catch_up: CatchUp | Literal["skip", "one", "all"]
    """What becomes of fires that were missed while nothing could fire: "skip" them, "one" task for all (default), or
    "all", the newest `catch_up_limit`."""
    catch_up_limit: int
    """Default: 100."""
    overlap: Overlap | Literal["allow", "skip"]
    """"skip": don't fire while the last task is unfinished. Default: "allow"."""


class CallOptions(TypedDict, total=False):
    """What `using` takes; None leaves an option as it is."""

    queue: str | None
    """The queue to put it into."""
    priority: Priority | None
    """0 to 100 or a name; what is higher runs first."""
    delay: Span | None
    """Seconds before which it does not start."""
    at: datetime | None
    """The time, with a time zone, before which it does not start."""
    deadline: datetime | Span | None
    """When it should be done, as a time or in seconds from the enqueue: its priority rises as that nears. It runs also
    after it."""
    expires: datetime | Span | None
    """When it is cancelled if it has not started, as a time or in seconds from the enqueue."""
    retries: int | None
    """How many more attempts after one that failed."""
    timeout: Span | None
    """Seconds that one attempt may take."""
    lease: Span | None
    """Seconds after which it runs elsewhere if its worker gives no sign of life."""
    retry_base: Span | None
    """Seconds before the second attempt; the wait doubles after each further failure."""
    retry_cap: Span | None
    """The longest wait between two attempts, in seconds."""
    timeout_growth: float | None
    """The factor by which `timeout` grows with every failed attempt."""
    key: str | None
    """Makes the enqueue idempotent: another one with this key in this queue gives the task that is there."""
    window: Span | None
    """How many seconds `key` holds, from the enqueue; 0: while the task is unfinished. Default: 24 hours."""
    replace: bool | None
    """A task that still waits under `key` gets this call in place of its own."""
    debounce: Span | None
    """`replace`, and put it off by so many seconds each time."""
    debounce_limit: Span | None
    """Seconds by which `debounce` can put it off in all."""
    after: After | Iterable[After] | None
    """What must have ended first: handles, calls, chains, groups or ids."""
    per: str | float | None
    """The partition whose limits hold for it, such as a customer's id."""
    tenant: str | float | None
    """Whose share of a fair queue it is charged to."""
    requires: Sequence[str] | None
    """Capabilities that a worker must offer, in place of the task's."""
    metadata: Mapping[str, Any] | None
    """Labels, which can be searched for; at most 16 KiB as JSON."""
    headers: Mapping[str, str] | None
    """Texts for your own code and middleware, such as a trace; tasks enqueued by this one inherit them."""
    id: str | UUID | None
    """Its id, a UUID; by default a new one. An id that is taken is refused."""
    block: Span | None
    """Seconds to wait for room in a full queue, or for this client's turn."""
    connection: Any
    """Your own open connection or session, in whose transaction it is enqueued."""


OF_CALLS = {
    "a task": "it is one of each call, write .using({0}=…)",
    "a schedule": "it comes with the task, write task.using({0}=…)",
    "app.remote()": "write .using({0}=…) behind it",
}
"""Where options of calls are given by mistake, and where they belong."""


class Options(Struct, frozen=True, kw_only=True):
    """The options of one enqueue, in stored form; None leaves it to the task."""

    queue: str | None = None
    priority: int | None = None
    delay: Duration = 0
    at: Instant | None = None
    deadline: Instant | None = None
    deadline_in: Duration | None = None
    expires_at: Instant | None = None
    expires_in: Duration | None = None
    after: tuple[Edge, ...] = ()
    sources: tuple[Source[Any], ...] = ()
    """The handles and calls that edges in `after` lead to."""
    partition: str | None = None
    tenant: str = ""
    replace: bool = False
    debounce_limit: Duration | None = None
    options: Defaults = Defaults()
    key: str | None = None
    window: Duration | None = None
    requires: tuple[str, ...] | None = None
    metadata: dict[str, Any] = {}
    headers: dict[str, str] | None = None
    id: str | None = None
    block: float | None = None
    connection: Any = None

    def draft(
        self, hub: Hub, name: str, queue: str = "", priority: int = 50, requires: tuple[str, ...] = ()
    ) -> NewTask:
        """What is the same for every call of a task, whose own options are given; id and arguments are missing."""
        return NewTask(
            id="",
            queue=self.queue or queue,
            name=name,
            requires=requires if self.requires is None else self.requires,
            spec=self.spec(priority),
            delay=self.delay,
            at=self.at,
            options=self.options,
            app_options=hub.defaults,
            window=DAY if self.window is None else self.window,
            client=hub.client,
            after=self.after,
            replace=self.replace,
            debounce_limit=self.debounce_limit,
        )

    def spec(self, priority: int) -> TaskSpec:
        """The spec of each task; `priority` is its default."""
        return TaskSpec(
            priority=priority if self.priority is None else self.priority,
            deadline=self.deadline,
            key=self.key,
            metadata=self.metadata,
            headers=self.headers or {},
            partition=self.partition,
            tenant=self.tenant,
            expires_at=self.expires_at,
        )

    @property
    def varies(self) -> bool:
        """Whether they give another spec with every call."""
        return self.key is not None or self.deadline_in is not None or self.expires_in is not None


def make_options(old: Options, given: Mapping[str, Any]) -> Options:
    """`old` with the given options that are not None."""
    whens = [name for name in ("delay", "at", "debounce") if given.get(name) is not None]
    if len(whens) > 1:
        raise InvalidOption(f"{' and '.join(whens)} both say when: give one of them.")
    changes: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    check_known(given, CallOptions.__annotations__, "using()")
    for name, value in given.items():
        if value is None:
            continue
        if name in SHARED:
            shared[name] = value
        else:
            changes |= CONVERT[name](value)
    if shared:
        checked = check_defaults(shared, "using()")
        changes["options"] = structs.replace(old.options, **{name: getattr(checked, name) for name in shared})
    new = structs.replace(old, **changes)
    check_together(new)
    return new


def check_known(given: Iterable[str], known: Iterable[str], where: str) -> None:
    for name in given:
        if name not in known:
            if advice := advice_on(name, where):
                raise InvalidOption(f"{where} has no option {shown(name)}: {advice}.")
            raise unknown_option(name, known, where)


def advice_on(name: str, where: str) -> str | None:
    """What to write for an option that belongs elsewhere, or that another task queue has."""
    if where in OF_CALLS and name in CallOptions.__annotations__:
        return OF_CALLS[where].format(name)
    return OF_OPTIONS.get(name) if where in (*OF_CALLS, "using()") else None


def shared_options(given: Mapping[str, Any], where: str) -> Defaults:
    """Those of the given options that are shared, checked."""
    return check_defaults({name: given[name] for name in SHARED if given.get(name) is not None}, where)


def check_together(options: Options) -> None:
    """Refuse contradictions. That replacing needs a key is checked at the enqueue: the key may be added later."""
    if options.replace and options.after:
        raise InvalidOption("a task that replaces another (replace, debounce) can't wait for others: leave after out.")
    if options.debounce_limit is not None:
        if not options.replace or options.at is not None:
            raise InvalidOption("debounce_limit needs debounce: it says how long a task can be put off in all.")
        if options.debounce_limit < options.delay:
            raise InvalidOption("debounce_limit can't be shorter than debounce.")
    relative = options.expires_in is not None and options.at is None and options.expires_in <= options.delay
    absolute = options.expires_at is not None and options.at is not None and options.expires_at <= options.at
    if relative or absolute:
        raise InvalidOption("it would expire before it could start: give a later expires.")


def check_deadline(deadline: datetime | Span) -> dict[str, Any]:
    if isinstance(deadline, datetime):
        return {"deadline": instant(deadline, "deadline"), "deadline_in": None}
    return {"deadline_in": duration(deadline, "deadline"), "deadline": None}


def check_expires(expires: datetime | Span) -> dict[str, Any]:
    if isinstance(expires, datetime):
        return {"expires_at": instant(expires, "expires"), "expires_in": None}
    return {"expires_in": duration(expires, "expires"), "expires_at": None}


def check_debounce(value: Span) -> dict[str, Any]:
    span = duration(value, "debounce")
    if span == 0:
        raise InvalidOption("debounce must be more than 0 seconds. To replace without putting off, give replace=True.")
    return {"delay": span, "at": None, "replace": True}


def label_of(value: object, what: str) -> str:
    """A tenant or partition as text."""
    return check_label(worded(value), what)


def check_requires(requires: object) -> tuple[str, ...]:
    return tuple(sorted(set(check_names(requires, "requires", CAPABILITIES))))


def check_metadata(metadata: object) -> dict[str, Any]:
    given = check_mapping(metadata, "metadata", "{'customer': 42}")
    plain = {named(name, "metadata"): value for name, value in given.items()}
    try:
        size = len(as_json(plain, "metadata"))
    except InvalidArguments as error:
        raise InvalidOption(str(error)) from error
    if size > METADATA_LIMIT:
        raise InvalidOption(
            f"metadata takes {size:,} bytes, more than {METADATA_LIMIT:,}: it is for labels, not for data."
        )
    return plain


def check_headers(headers: object) -> dict[str, str]:
    given = check_mapping(headers, "headers", "{'trace': '4bf92f35'}")
    plain = {
        named(name, "headers"): check_text(worded(value), f"the header {shown(name)}", METADATA_LIMIT)
        for name, value in given.items()
    }
    if len(as_json(plain, "headers")) > METADATA_LIMIT:
        raise InvalidOption(f"headers take more than {METADATA_LIMIT:,} bytes: they are for labels, not for data.")
    return plain


def named(name: object, what: str) -> str:
    """A name in metadata or headers, which may be a number."""
    return check_text(worded(name), f"a name in {what}", NAME_LIMIT)


CONVERT: dict[str, Callable[[Any], dict[str, Any]]] = {
    "queue": lambda value: {"queue": check_name(value, "queue")},
    "priority": lambda value: {"priority": parse_priority(value)},
    "delay": lambda value: {"delay": duration(value, "delay"), "at": None},
    "at": lambda value: {"at": instant(value, "at"), "delay": 0},
    "deadline": check_deadline,
    "expires": check_expires,
    "after": lambda value: dict(zip(("after", "sources"), check_after(value), strict=True)),
    "per": lambda value: {"partition": label_of(value, "per")},
    "tenant": lambda value: {"tenant": label_of(value, "tenant")},
    "debounce": check_debounce,
    "debounce_limit": lambda value: {"debounce_limit": duration(value, "debounce_limit")},
    "replace": lambda value: {"replace": check_flag(value, "replace")},
    "key": lambda value: {"key": check_text(value, "key", KEY_LIMIT, 1)},
    "window": lambda value: {"window": duration(value, "window")},
    "requires": lambda value: {"requires": check_requires(value)},
    "metadata": lambda value: {"metadata": check_metadata(value)},
    "headers": lambda value: {"headers": check_headers(value)},
    "id": lambda value: {"id": check_id(value)},
    "block": lambda value: {"block": seconds(duration(value, "block"))},
    "connection": lambda value: {"connection": value},
}
"""Public option → the fields that it sets."""
