"""The words of the REST API, and the one place that maps them to Dibs's own.

Where the two differ, the API speaks of `task_type`, `parameters`, `task_id`, `status` and `assigned_worker_id`, so that
clients written for those words go on working. The values of `status` are Dibs's states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from msgspec import NODEFAULT, Meta, Struct, defstruct, field, structs

from dibs.client.app import Dibs
from dibs.client.by_name import draft_by_name, new_by_name
from dibs.client.dependencies import few_enough
from dibs.client.info import HistoryLine, TaskInfo
from dibs.client.options import Options, make_options
from dibs.client.task import check_new
from dibs.client.tasks import Filter, Prerequisite
from dibs.core.graph import Edge, Rule
from dibs.core.ids import check_id
from dibs.core.options import PAGE_LIMIT
from dibs.core.states import State
from dibs.core.task import NewTask
from dibs.errors import InvalidOption

__all__ = [
    "Change",
    "Dependency",
    "Drafts",
    "Limit",
    "Reason",
    "SearchQuery",
    "SeriesQuery",
    "Submission",
    "Submitted",
    "TaskDetails",
    "TaskEdit",
    "TaskFilter",
    "TaskList",
    "TaskView",
    "WindowQuery",
    "facts_of",
    "filter_of",
    "new_task",
    "task_view",
]

DEFAULT_QUEUE = "default"
RENAMED = {
    "id": "task_id",
    "name": "task_type",
    "state": "status",
    "args": "parameters",
    "worker": "assigned_worker_id",
    "key": "idempotency_key",
    "requires": "required_capabilities",
    "timeout": "timeout_seconds",
}
"""A task's field → its name in the API."""

Text = Annotated[str, Meta(max_length=10_000)]
Seconds = Annotated[float, Meta(ge=0)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_LIMIT)]


def make_view(name: str, words: str, *more: tuple[str, Any]) -> Any:
    """A task in the words of the API, with more fields that may be null."""
    hints = get_type_hints(TaskInfo)
    fields: list[Any] = [(each.name, hints[each.name], default_of(each)) for each in structs.fields(TaskInfo)]
    added = [(extra, kind | None, None) for extra, kind in more]
    return defstruct(name, [*fields, *added], frozen=True, kw_only=True, rename=RENAMED, namespace={"__doc__": words})


def default_of(known: structs.FieldInfo) -> Any:
    if known.default is NODEFAULT and known.default_factory is NODEFAULT:
        return field()
    return field(default_factory=known.default_factory) if known.default is NODEFAULT else field(default=known.default)


if TYPE_CHECKING:

    class TaskView(TaskInfo, frozen=True, kw_only=True):
        """A task as it was when it was read."""

    class TaskDetails(TaskView, frozen=True, kw_only=True):
        """A task, with what was asked for besides."""

        history: list[HistoryLine] | None = None
        dependents: list[TaskView] | None = None
        needs: list[Prerequisite] | None = None

else:
    TaskView = make_view("TaskView", "A task as it was when it was read.")
    TaskDetails = make_view(
        "TaskDetails",
        "A task, with what was asked for besides.",
        ("history", list[HistoryLine]),
        ("dependents", list[TaskView]),
        ("needs", list[Prerequisite]),
    )


def task_view(info: TaskInfo) -> TaskView:
    return TaskView(**facts_of(info))


def facts_of(info: TaskInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in FIELDS}


FIELDS = TaskInfo.__struct_fields__


class Dependency(Struct, frozen=True, forbid_unknown_fields=True):
    """A task to wait for, and what becomes of the dependent if it does not complete."""

    task_id: str
    rule: Rule = Rule.CANCEL


class Submission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to enqueue. If the server's app knows its type, the task's own queue and options are the defaults."""

    task_type: Annotated[str, Meta(min_length=1, max_length=200)]
    parameters: dict[str, Any] = {}
    priority: int | str | None = None
    """0 to 100, or critical, high, normal, low."""
    queue: str | None = None
    task_id: str | None = None
    """A UUID of your own."""
    idempotency_key: str | None = None
    key_window_seconds: Seconds | None = None
    required_capabilities: tuple[str, ...] | None = None
    timeout_seconds: Seconds | None = None
    lease_seconds: Seconds | None = None
    retries: int | None = None
    retry_base_seconds: Seconds | None = None
    retry_cap_seconds: Seconds | None = None
    delay_seconds: Seconds | None = None
    scheduled_at: datetime | None = None
    deadline: datetime | None = None
    expires_at: datetime | None = None
    after: tuple[str | Dependency, ...] = ()
    """Tasks to wait for: ids, or ids with a rule."""
    partition: str | None = None
    tenant: str | None = None
    replace: bool | None = None
    debounce_seconds: Seconds | None = None
    debounce_limit_seconds: Seconds | None = None
    metadata: dict[str, Any] | None = None
    headers: dict[str, str] | None = None


OPTIONS = {
    "priority": "priority",
    "queue": "queue",
    "task_id": "id",
    "idempotency_key": "key",
    "key_window_seconds": "window",
    "required_capabilities": "requires",
    "timeout_seconds": "timeout",
    "lease_seconds": "lease",
    "retries": "retries",
    "retry_base_seconds": "retry_base",
    "retry_cap_seconds": "retry_cap",
    "delay_seconds": "delay",
    "scheduled_at": "at",
    "deadline": "deadline",
    "expires_at": "expires",
    "partition": "per",
    "tenant": "tenant",
    "replace": "replace",
    "debounce_seconds": "debounce",
    "debounce_limit_seconds": "debounce_limit",
    "metadata": "metadata",
    "headers": "headers",
}.items()
"""A field of a submission → the option of `using` that it is."""


class Submitted(Struct, frozen=True, kw_only=True):
    """A task that was enqueued. `duplicate`: its key stood for it already, and nothing new was stored."""

    task_id: str
    status: State | None
    queue: str
    queue_position: int | None = None
    """About how many pending tasks of its queue are ahead of it; null unless it is pending."""
    duplicate: bool = False


def new_task(app: Dibs, given: Submission, key: str | None = None) -> tuple[NewTask, Options]:
    """The task of a submission, checked. `key`: its idempotency key, if that came apart from it."""
    return Drafts(app).task(given, key)


class Drafts:
    """Makes tasks of submissions. Those of a batch mostly have the same options, which are then checked once."""

    def __init__(self, app: Dibs) -> None:
        self._app = app
        self._name = ""
        self._given: dict[str, Any] | None = None
        self._chosen = Options()
        self._draft: NewTask | None = None

    def task(self, given: Submission, key: str | None = None) -> tuple[NewTask, Options]:
        options = {option: value for name, option in OPTIONS if (value := getattr(given, name)) is not None}
        if key is not None:
            if options.get("key") not in (None, key):
                raise InvalidOption("the header Idempotency-Key and idempotency_key differ: give one of them.")
            options["key"] = key
        if given.task_type in self._app.hub.definitions:
            task = self._app.task_named(given.task_type).using(**options)
            new, chosen = task.call(**given.parameters).new, task.options
        else:
            new, chosen = self._by_name(given, options)
        if given.after:
            new = structs.replace(new, after=edges_of(given.after))
        if given.after or new.replace:
            check_new(new)
        return new, chosen

    def _by_name(self, given: Submission, options: dict[str, Any]) -> tuple[NewTask, Options]:
        hub, name = self._app.hub, given.task_type
        if self._draft is None or name != self._name or options != self._given:
            self._name, self._given = name, dict(options)
            options.setdefault("queue", DEFAULT_QUEUE)
            self._chosen = make_options(Options(), options)
            self._draft = draft_by_name(hub, name, self._chosen)
        return new_by_name(hub, name, given.parameters, self._chosen, self._draft), self._chosen


def edges_of(after: Sequence[str | Dependency]) -> tuple[Edge, ...]:
    edges: dict[str, Edge] = {}
    for each in after:
        edge = Edge(check_id(each)) if isinstance(each, str) else Edge(check_id(each.task_id), each.rule)
        if edges.setdefault(edge.id, edge) != edge:
            raise InvalidOption(f"after has two rules for task {edge.id}.")
    return few_enough(edges)


class Conditions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks: all given conditions must hold."""

    status: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    task_type: tuple[str, ...] = ()
    priority_min: int | None = None
    priority_max: int | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    ended_after: datetime | None = None
    ended_before: datetime | None = None
    idempotency_key: str | None = None
    assigned_worker_id: str | None = None
    workflow: str | None = None
    tenant: str | None = None
    partition: str | None = None
    text: Text | None = None
    """Is searched in parameters, errors and notes."""


class TaskFilter(Conditions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks: all given conditions must hold."""

    metadata: dict[str, Any] = {}


FILTERS = {
    "status": "state",
    "task_type": "name",
    "idempotency_key": "key",
    "assigned_worker_id": "worker",
}


def filter_of(given: Struct, metadata: Mapping[str, Any] | None = None) -> Filter:
    """A filter in Dibs's words, from a body or a query."""
    found: dict[str, Any] = {}
    for name in TaskFilter.__struct_fields__:
        value = getattr(given, name)
        if value not in (None, (), {}):
            found[FILTERS.get(name, name)] = value
    if metadata is not None:
        found["metadata"] = metadata
    return Filter(**found)


class SearchQuery(Conditions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks, and which page of them."""

    metadata: tuple[str, ...] = ()
    """NAME=VALUE; values are JSON where they are JSON."""
    limit: Limit = 50
    cursor: str | None = None


class TaskList(Struct, frozen=True, kw_only=True):
    """One page, newest first. `cursor` is for the next page; null: that was all. A page may be short or empty."""

    tasks: list[TaskView]
    cursor: str | None = None


class TaskEdit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a waiting task; what is left out stays."""

    priority: int | str | None = None
    delay_seconds: Seconds | None = None
    scheduled_at: datetime | None = None
    deadline: datetime | None = None
    expires_at: datetime | None = None
    metadata: dict[str, Any] | None = None

    def changes(self) -> dict[str, Any]:
        """In Dibs's words."""
        words = {"delay_seconds": "delay", "scheduled_at": "at", "expires_at": "expires"}
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {words.get(name, name): value for name, value in given.items() if value is not None}


class Reason(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, for the record."""

    reason: Annotated[str, Meta(max_length=10_000)] = ""


class Change(Struct, frozen=True):
    """Whether anything changed."""

    changed: bool


class WindowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many seconds to look back; at most 7 days."""

    window: Annotated[float, Meta(ge=1, le=604_800)] = 3600.0


class SeriesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From when to when, and how many seconds a point; by default the last hour, a minute a point."""

    start: datetime | None = None
    end: datetime | None = None
    resolution: Annotated[float, Meta(ge=60)] = 60.0
