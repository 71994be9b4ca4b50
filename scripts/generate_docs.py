"""Write the pages of the docs that the code knows best: the Python API, settings, states, errors, events, metrics, the
port, the commands, and the diagram in the concepts.

`python scripts/generate_docs.py` writes them; with `--check` it only says which are not up to date.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from api_page import api_pages
from api_words import WORDS
from cli_page import cli_page
from port_page import port_sections

from dibs import Dibs, errors
from dibs.client.options import METADATA_LIMIT, CallOptions, RecurrenceOptions, TaskOptions
from dibs.client.series import LONGEST as LONGEST_WINDOW
from dibs.client.series import MOST_POINTS
from dibs.core.cron import LONGEST as LONGEST_CRON
from dibs.core.options import KEY_LIMIT, NAME_LIMIT, NOTE_LIMIT, PAGE_LIMIT, URL_LIMIT
from dibs.core.settings import DURATIONS, FALLBACK, OPTIONAL, REAL, SHARED, WHOLE, Policy, QueueSettings
from dibs.core.states import ENDED, TRANSITIONS, UNFINISHED, WAITING, Reason, State, mermaid
from dibs.core.times import SECOND
from dibs.exporters.names import LIMITS
from dibs.observe.distribution import EDGES
from dibs.observe.events import COMPUTED, FAMILIES, MEANINGS, EventType
from dibs.observe.metrics import METRICS, OTHER, Scope
from dibs.runtime.environment import VARIABLES
from dibs.worker.settings import WorkerSettings

ROOT = Path(__file__).parents[1]
NOTE = "<!-- Written by scripts/generate_docs.py: change the code, then run it. -->\n\n"
BEGIN, END = "<!-- begin states -->\n", "<!-- end states -->\n"

SCOPES = {
    Scope.STORE: "Of the store, at every server",
    Scope.SERVER: "Of a server",
    Scope.WORKER: "Of a worker, at its port",
    Scope.PROCESS: "Of every process that uses a store",
}

QUEUE = {
    "policy": "how the queue orders its tasks: " + ", ".join(f"`{policy}`" for policy in Policy),
    "aging": "seconds of waiting that are worth one point of priority (policy `aging`)",
    "max_aging_bonus": "the most points that waiting can add; none: no cap. With a cap there is no bound",
    "retry_penalty": "points that each failed attempt costs",
    "deadline_weight": "points that a deadline adds when it is reached",
    "deadline_horizon": "how long before the deadline its six steps begin",
    "promote_low": "after this long a task of the low tier counts as medium (policy `tiers`)",
    "promote_medium": "this long after it became ready, a medium task counts as high (policy `tiers`)",
    "tiers": "retries, timeout and the like per tier, such as `{'low': {'retries': 2}}` (policy `tiers`)",
    "max_depth": "pending tasks at which new ones are refused with `QueueFull`; none: no limit",
    "max_concurrent": "tasks of the queue that may run at once, over all workers; none: no limit",
    "rate": "starts per second, over all workers; none: no limit",
    "burst": "starts that may come at once after a pause; none: one second's worth",
    "per_task": "limits by task name: `{'send': 3}` (at once), `{'send': {'rate': 5, 'burst': 9}}` (starts per second)",
    "per_partition": "a limit for each partition (`per=`): a number, or as above; none: no limit",
    "enqueue_rate": "tasks per second that each client may enqueue, else `RateLimited`; none: no limit",
    "enqueue_burst": "tasks that a client may enqueue at once after a pause; none: one second's worth",
    "fair": "whether tenants share the queue's starts by their weights; priorities then count within a tenant",
    "weights": "shares of tenants in a fair queue, such as `{'acme': 2}`; 1 for all others",
    "keep": "how long completed and cancelled tasks are kept",
    "keep_dead": "how long dead tasks are kept",
}
TASK = {
    "retries": "attempts after the first one has failed",
    "timeout": "seconds that a run may take; none: no limit",
    "lease": "seconds after which a run without a heartbeat counts as lost",
    "retry_base": "seconds before the second attempt; doubled for each further one",
    "retry_cap": "the longest wait between attempts, in seconds",
    "timeout_growth": "factor by which the timeout grows with each failed attempt",
}
CALL = {
    "queue": "the queue to put it into",
    "priority": "0 to 100, or `critical` (90), `high` (70), `normal` or `medium` (50), `low` (30)",
    "delay": "seconds or a timedelta until it may start",
    "at": "an aware datetime before which it may not start",
    "deadline": "when it should be done: an aware datetime, or seconds from now. It gains priority as it nears",
    "expires": "when it is cancelled unless it has started: an aware datetime, or seconds from now",
    "retries": "see above",
    "timeout": "see above",
    "lease": "see above",
    "retry_base": "see above",
    "retry_cap": "see above",
    "timeout_growth": "see above",
    "key": "an idempotency key: while it is held, the same call returns the same task",
    "window": "how long the key is held, counted from the enqueue; 0: while the task is unfinished. Default 24 h",
    "replace": "if a task still waits under this key, it gets the new arguments and options; the call is no duplicate",
    "debounce": "the same, and each call postpones the task by this many seconds",
    "debounce_limit": "postpone it no further than this many seconds after the first enqueue",
    "after": "what must end first: handles, calls, ids. See [workflows](../guides/workflows.md)",
    "per": "the partition whose limits (`per_partition`) apply; `@app.task(per=…)` names the parameter to use",
    "tenant": "the tenant whose share of a `fair` queue it is charged to",
    "requires": "capabilities that a worker must offer",
    "metadata": "labels to search by, as JSON, up to 16 KiB",
    "headers": "opaque texts that travel with the task, such as trace ids; what it enqueues inherits them",
    "id": "a UUID of your choice; `DuplicateTask` if another task has it",
    "block": "seconds to wait for room in a full queue",
    "connection": "your own connection to the same database, inside an open transaction",
}
WORKER = {
    "queues": "the queues to serve, in this order; none given: all queues of the app's tasks",
    "concurrency": "tasks that run at once",
    "capabilities": "what this worker offers to tasks that require something; `host:NAME` is always offered",
    "reserve": "slots kept for urgent work: `{80: 2}` keeps two for effective priorities of at least 80",
    "in_order": "serve the queues strictly in turn instead of merging them by priority",
    "name": "the worker's name; otherwise host, process and a random part",
    "lease": "seconds; overrides the lease of tasks and queues",
    "shutdown_timeout": "seconds that running tasks have to finish when the worker is asked to stop",
    "prefetch": "whether to claim a little more than there are free slots",
    "until_idle": "stop when nothing that the worker could run is waiting or running",
}


def seconds(span: int) -> str:
    """A duration for people."""
    value = span / SECOND
    for size, unit in ((86_400, "d"), (3_600, "h"), (1, "s")):
        if value >= size and value % size == 0 and (size != 3_600 or value < 86_400):
            return f"{value / size:,.0f} {unit}"
    return f"{value:g} s"


def limits(name: str) -> str:
    """What `name` accepts."""
    if name in DURATIONS:
        low, high = DURATIONS[name]
        return f"{seconds(low)} to {seconds(high)}"
    if name in WHOLE:
        return "{:,} to {:,}".format(*WHOLE[name])
    return "{:g} to {:,.0f}".format(*REAL[name]) if name in REAL else ""


def default(name: str, value: object) -> str:
    if value is None:
        return "none"
    if value in ({}, ()):
        return "none"
    if name in DURATIONS and isinstance(value, int):
        return seconds(value)
    return f"`{value}`" if isinstance(value, str | bool) else f"{value:g}" if isinstance(value, float) else str(value)


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def sizes() -> list[list[str]]:
    """How much one call may ask for, or be given."""
    return [
        ["`limit` of `claim`, `search`, `peek` and lists; `count` of `upcoming`", f"{PAGE_LIMIT:,}"],
        [
            "`window` of `app.stats`, age of `start` of `app.series`: figures are kept for that long",
            seconds(LONGEST_WINDOW),
        ],
        ["points of `app.series`", f"{MOST_POINTS:,}"],
        ["`delay`, `deadline`, `window`, `timeout` of waits and other durations", "a hundred years"],
        ["`at` and other moments", "the years 1970 to 2119"],
        ["`lease` of `claim`, `by` of `extend`", limits("lease")],
        ["names of queues, tasks, workers, schedules; tenants, partitions, ids", f"{NAME_LIMIT:,} characters"],
        ["`key`", f"{KEY_LIMIT:,} characters"],
        ["`reason`, a progress message (which is cut), `text` of a filter", f"{NOTE_LIMIT:,} characters"],
        ["`metadata`, `headers`", f"{METADATA_LIMIT // 1024} KiB"],
        ["a cron expression", f"{LONGEST_CRON:,} characters"],
        ["a store's URL", f"{URL_LIMIT:,} characters"],
        ["`concurrency` of a worker", "10,000"],
        ["`shutdown_timeout` of a worker", "1 d"],
    ]


def settings_page() -> str:
    queue, worker = QueueSettings(), WorkerSettings()
    names = [name for name in QueueSettings.__struct_fields__ if name not in ("version", "defaults", "declared")]
    own = [[f"`{name}`", QUEUE[name], default(name, getattr(queue, name)), limits(name)] for name in names]
    shared = [[f"`{name}`", TASK[name], default(name, getattr(FALLBACK, name)), limits(name)] for name in TASK]
    assert set(TASK) == SHARED
    calls = [[f"`{name}`", CALL[name]] for name in CallOptions.__annotations__]
    in_process = inspect.signature(Dibs.worker).parameters
    fields = [
        [f"`{name}`", WORKER[name], default(name, getattr(worker, name)), "yes" if name in in_process else ""]
        for name in WorkerSettings.__struct_fields__
    ]
    variables = [[f"`{name}`", meaning] for name, meaning in VARIABLES.items()]
    cleared = ", ".join(f"`{name}`" for name in QueueSettings.__struct_fields__ if name in OPTIONAL)
    return (
        f"# Settings\n\n{NOTE}"
        "Durations are seconds or a `timedelta`. An unknown name or a wrong value raises at once, with "
        "the nearest spelling.\n\n"
        "## Of a task, a call, a tier, a queue and the app\n\n"
        "For each setting the first of these that gives it counts: `task.using(…)`, "
        "`@app.task(…)`, the tier, `app.queues.set(…)`, `Dibs(…)`, the default here.\n\n"
        f"{table(['name', 'meaning', 'default', 'accepts'], shared)}\n"
        "## Of a queue\n\n"
        "`app.queues.set(name, …)` or `dibs queues set`. "
        f"None removes a limit: {cleared}, and those above.\n\n"
        f"{table(['name', 'meaning', 'default', 'accepts'], own)}\n"
        "## Of one call\n\n`task.using(…).enqueue(…)`\n\n"
        f"{table(['name', 'meaning'], calls)}\n"
        "## Of a worker\n\n`dibs.worker.WorkerSettings`; [`dibs worker`](cli.md) has options for all but `lease` and "
        "`prefetch`, `app.worker(…)` takes the marked ones.\n\n"
        f"{table(['name', 'meaning', 'default', '`app.worker`'], fields)}\n"
        "## Of the app, a task and a schedule\n\n"
        "Besides those above; [the API](api/tasks.md) explains them. A store URL has options of its own "
        "([PostgreSQL](../guides/postgresql.md#the-url), [Redis](../guides/redis.md#the-url)).\n\n"
        f"{table(['function', 'options'], functions())}\n"
        "## How much at once\n\n"
        "A larger value raises `InvalidOption` before anything is done. "
        "Texts must not contain lone surrogates or NUL, which a store can't keep.\n\n"
        f"{table(['what', 'at most'], sizes())}\n"
        "## The environment\n\n"
        f"{table(['variable', 'meaning'], variables)}"
    )


def functions() -> list[list[str]]:
    """The options that a function has of its own."""
    shown = {
        "Dibs(…)": Dibs.__init__.__kwdefaults__,
        "@app.task(…)": [name for name in TaskOptions.__annotations__ if name not in SHARED],
        "@app.schedule(…)": [*RecurrenceOptions.__annotations__, *(Dibs.schedule.__kwdefaults__ or ())],
    }
    return [[f"`{call}`", ", ".join(f"`{name}`" for name in names or ())] for call, names in shown.items()]


def states_page() -> str:
    kinds = [[f"`{state}`", "ended" if state in ENDED else "waiting" if state in WAITING else ""] for state in State]
    assert set(State) == ENDED | UNFINISHED
    rows = [[f"`{source or 'new'}`", move.value, f"`{target}`"] for (source, move), target in TRANSITIONS.items()]
    reasons = ", ".join(f"`{reason}`" for reason in Reason)
    return (
        f"# States\n\n{NOTE}"
        f"{diagram()}\n"
        f"{table(['state', 'kind'], kinds)}\n"
        f"Reasons that a cancelled or dead task carries: {reasons}.\n\n"
        f"## Every move\n\nA move that is not here can't happen.\n\n{table(['from', 'move', 'to'], rows)}"
    )


def errors_page() -> str:
    tree = (errors.__doc__ or "").split("\n\n")[1]
    rows = [
        [f"`{name}`", (inspect.getdoc(getattr(errors, name)) or "").replace("\n", " ")]
        for name in errors.__all__
        if name not in ("Retry", "Permanent")
    ]
    raised = [[f"`{name}`", inspect.getdoc(getattr(errors, name)) or ""] for name in ("Retry", "Permanent")]
    return (
        f"# Errors\n\n{NOTE}"
        "All of them are in `dibs.errors`. "
        "A wrong argument raises `InvalidOption` or `InvalidArguments`, both of which are a `ValueError`; "
        "its message is a sentence of less than 500 characters, in which long values are shortened.\n\n"
        f"```text\n{inspect.cleandoc(tree)}\n```\n\n"
        f"{table(['error', 'meaning'], rows)}\n"
        f"## What tasks raise\n\n{table(['error', 'meaning'], raised)}"
    )


def events_page() -> str:
    rows = [[f"`{each}`", MEANINGS[each], "computed" if each in COMPUTED else ""] for each in EventType]
    return (
        f"# Events\n\n{NOTE}"
        "`app.events(…)` and [`dibs events`](cli.md) give these to subscribers ([guide](../guides/events.md)). "
        "An event has a `type`, the instant `at` which it happened, and `data`: of a task `task_id`, `name` and "
        "`queue`, of a run also `worker` and `duration_ms`, of a queue `queue`, of a worker `worker`; and what is "
        f"named below. A topic is a type, or a family: {', '.join(f'`{each}`' for each in FAMILIES)}. Computed events "
        "are made from figures for the subscriber that names them, and are not stored.\n\n"
        f"{table(['type', 'meaning', ''], rows)}"
    )


def metrics_page() -> str:
    sections = []
    for scope, words in SCOPES.items():
        rows = [
            [f"`{each.full_name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), each.help]
            for each in METRICS
            if each.scope is scope
        ]
        sections.append(f"## {words}\n\n{table(['metric', 'kind', 'labels', 'meaning'], rows)}")
    known: dict[str, list[str]] = {}
    for metric in METRICS:
        for source in metric.sources:
            known.setdefault(source, []).append(f"`{metric.full_name}`")
    names = table(["elsewhere", "here"], [[f"`{source}`", ", ".join(ours)] for source, ours in sorted(known.items())])
    limits = ", ".join(f"{number} values of `{label}`" for label, number in LIMITS.items())
    return (
        f"# Metrics\n\n{NOTE}"
        "What Prometheus finds at a server's `/metrics` and at the port of a worker ([guide](../guides/metrics.md)). "
        "`tier` is that of the priority with which a task was submitted. Labels are bounded: at most "
        f"{limits}; all others count as `{OTHER}`. The edges of histograms are, in seconds: "
        f"{', '.join(f'{edge:g}' for edge in EDGES)}.\n\n"
        + "\n".join(sections)
        + f"\n## Names elsewhere\n\nWhat other queues call the same figures.\n\n{names}"
    )


def port_page() -> str:
    sections = [f"## {head}\n\n{said}\n\n{table(*rows)}" for head, (said, rows) in port_sections().items()]
    return (
        f"# The port\n\n{NOTE}"
        "All that the verbs of `dibs.engines.verbs` ask of a store. "
        "[How to write an engine](../design/writing-an-engine.md) says in which order to bring it.\n\n"
        + "\n".join(sections)
    )


def api_words() -> dict[str, str]:
    """What these pages say of options is said of the same options there."""
    told = {
        "CallOptions": CALL,
        "SharedOptions": TASK,
        "QueueChanges": QUEUE,
        "WorkerSettings": WORKER,
    }
    options = {
        f"{name}.{option}": TASK.get(option, words) if words == "see above" else words
        for name, table in told.items()
        for option, words in table.items()
    }
    sentences = {name: f"{words[0].upper()}{words[1:]}.".replace("../", "../../") for name, words in options.items()}
    return {**WORDS, **sentences}


def diagram() -> str:
    return f"```mermaid\n{mermaid()}```\n"


def with_diagram(text: str) -> str:
    """A page with its diagram drawn again."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{diagram()}{END}{after}"


def pages() -> dict[Path, str]:
    """Every generated page as it should be."""
    reference = ROOT / "docs" / "reference"
    concept = ROOT / "docs" / "concepts" / "states.md"
    return {
        reference / "settings.md": settings_page(),
        reference / "states.md": states_page(),
        reference / "errors.md": errors_page(),
        reference / "events.md": events_page(),
        reference / "metrics.md": metrics_page(),
        reference / "port.md": port_page(),
        reference / "cli.md": cli_page(),
        concept: with_diagram(concept.read_text()),
        **{reference / "api" / name: text for name, text in api_pages(NOTE, api_words()).items()},
    }


def main() -> int:
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not up to date: run scripts/generate_docs.py\n")
        return 1 if stale else 0
    wanted = pages()
    for path in stale:
        path.write_text(wanted[path])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
