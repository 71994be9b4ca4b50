"""Everything that can be said wrongly: each with a sentence that helps, and nothing written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dibs import Context, Dibs, Filter, Task
from dibs.client.consumer import Claim
from dibs.errors import (
    InvalidArguments,
    InvalidOption,
    PayloadTooLarge,
    StoreCorrupt,
    StoreError,
    StoreMismatch,
    StoreUnavailable,
    UsageError,
)
from dibs.testing import Sandbox

UUID_EXAMPLE = "0190163d-8694-739b-aea5-966c26f8ad91"


@pytest.fixture
def work(app: Dibs) -> Task[..., Any]:
    @app.task(name="work")
    def work(number: int, text: str = "") -> None: ...

    return work


NAMES = "critical, high, normal, medium, low"
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"priority": 101}, f"priority must be a whole number from 0 to 100 or one of {NAMES}, not 101."),
    ({"priority": 50.0}, f"priority must be a whole number from 0 to 100 or one of {NAMES}, not 50.0."),
    (
        {"priority": "hihg"},
        f"priority 'hihg' is not known. Did you mean 'high'? Use {NAMES} or a number from 0 to 100.",
    ),
    ({"delay": -1}, "delay must not be negative, and -1 is. Give seconds from now, 0 or more."),
    ({"delay": "1h"}, "delay must be a number of seconds or a timedelta, not '1h'."),
    ({"delay": timedelta(days=40_000)}, "delay=datetime.timedelta(days=40000) is more than a hundred years."),
    (
        {"at": datetime(2026, 1, 1)},  # noqa: DTZ001
        "at=2026-01-01T00:00:00 has no time zone. Use datetime.now(UTC) or add a tzinfo.",
    ),
    (
        {"deadline": datetime(2026, 1, 1)},  # noqa: DTZ001
        "deadline=2026-01-01T00:00:00 has no time zone. Use datetime.now(UTC) or add a tzinfo.",
    ),
    ({"at": 5}, "at must be a datetime, not 5."),
    ({"delay": 1, "at": datetime.now().astimezone()}, "delay and at both say when: give one of them."),
    ({"retries": -1}, "retries must be a whole number from 0 to 1,000,000, not -1."),
    ({"timeout": 0}, "timeout must be from 1e-06 s to 86,400 s, not 0."),
    ({"lease": 0.1}, "lease must be from 1 s to 86,400 s, not 0.1."),
    ({"key": ""}, "key must be a text of 1 to 500 characters, not ''."),
    ({"requires": "gpu"}, "requires must be a list of capabilities such as ['gpu'], not 'gpu'."),
    ({"metadata": {"x": object}}, "metadata can't be carried as JSON: JSON can't carry a type."),
    (
        {"metadata": {"x": "y" * 20_000}},
        "metadata takes 20,008 bytes, more than 16,384: it is for labels, not for data.",
    ),
    ({"id": "42"}, f"id must be a UUID, such as '{UUID_EXAMPLE}', not '42'."),
    (
        {"queue": "no spaces"},
        (
            "queue must be 1 to 200 letters, digits or any of _ . : / - (starting with a letter, digit or _), "
            "not 'no spaces'."
        ),
    ),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS, ids=[str(list(o)) for o, _ in OPTIONS])
def test_options_of_a_call(work: Task[..., Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        work.using(**options)
    assert str(caught.value) == message


ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, "work needs an argument 'number'."),
    ((1, "a", 2), {}, "work takes 2 positional argument(s), and 3 were given. Its parameters: number, text."),
    ((1,), {"number": 1}, "work got 'number' twice, by position and by name."),
    (
        (1,),
        {"priority": 90},
        (
            "work has no parameter 'priority'. Its parameters: number, text. "
            "Options such as priority or delay go into .using(…)."
        ),
    ),
    (("1",), {}, "the arguments of work don't fit its signature: Expected `int`, got `str` - at `$.number`."),
    ((object(),), {}, "the arguments of work can't be carried as JSON: JSON can't carry an object."),
]


@pytest.mark.parametrize(("args", "kwargs", "message"), ARGUMENTS)
def test_arguments(
    app: Dibs, work: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        work.enqueue(*args, **kwargs)
    assert str(caught.value) == message
    assert app.queues.list() == []


def test_a_payload_over_the_limit(app: Dibs, work: Task[..., Any]) -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        work.enqueue(1, "x" * 300_000)
    assert str(caught.value) == (
        "the arguments of work: 300,022 bytes, more than the 262,144 that are kept with a task. Configure a blob store "
        "for large payloads: Dibs(…, blobs='file:///var/lib/blobs'), blobs='s3://bucket/prefix', or the variable "
        "DIBS_BLOBS. Or store the data elsewhere and pass a reference to it."
    )
    assert app.queues.list() == []


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"agin": 5}, "a queue has no option 'agin'. Did you mean 'aging'?"),
    ({"policy": "fifo"}, "policy must be one of aging, tiers, strict, not 'fifo'."),
    ({"max_depth": 0}, "max_depth must be a whole number from 1 to 1,000,000,000,000, not 0."),
    ({"burst": 5}, "burst needs a rate."),
    ({"tiers": {"lowest": {}}}, "tiers has no option 'lowest'. Did you mean 'low'?"),
    ({"promote_low": 50, "promote_medium": 5}, "promote_medium counts from when the task became ready"),
    ({"aging": "fast", "rate": -1}, "aging must be a number of seconds or a timedelta, not 'fast'. rate must be"),
]


@pytest.mark.parametrize(("changes", "start"), SETTINGS, ids=[str(list(c)) for c, _ in SETTINGS])
def test_settings_of_a_queue(app: Dibs, changes: dict[str, Any], start: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        app.queues.set("default", **changes)
    assert str(caught.value).startswith(start)
    assert app.queues.list() == []


DEFINITIONS: list[tuple[dict[str, Any], str]] = [
    ({"priority": "urgent"}, "priority 'urgent' is not known."),
    ({"executor": "fiber"}, "executor must be one of loop, thread, process, not 'fiber'."),
    ({"executor": "loop"}, "task work is a plain function: only async functions run on the loop."),
    ({"retry_on": ("ValueError",)}, "retry_on must be exception classes, and 'ValueError' is none."),
    ({"memory_limit": 5}, "memory_limit must be a whole number from 16,777,216 to"),
    ({"timeout": -5}, "timeout must not be negative, and -5 is."),
    ({"requires": "gpu"}, "requires must be a list of capabilities such as ['gpu'], not 'gpu'."),
]


@pytest.mark.parametrize(("options", "start"), DEFINITIONS, ids=[str(list(o)) for o, _ in DEFINITIONS])
def test_definitions(options: dict[str, Any], start: str) -> None:
    def work() -> None: ...

    with pytest.raises(InvalidOption) as caught:
        Dibs("memory://").task(name="work", **options)(work)
    assert str(caught.value).startswith(start)


def test_definitions_of_things_that_are_no_tasks() -> None:
    app = Dibs("memory://")

    def variable(*numbers: int) -> None: ...

    async def coroutine() -> None: ...

    with pytest.raises(InvalidOption, match="takes \\*numbers: arguments are stored by name"):
        app.task(variable)
    with pytest.raises(InvalidOption, match="is async: it runs on the loop, or in a process"):
        app.task(executor="thread")(coroutine)
    with pytest.raises(InvalidOption, match="a task is made from a function, not from 5"):
        app.task(5)  # type: ignore[call-overload]


def test_urls() -> None:
    with pytest.raises(InvalidOption) as caught:
        Dibs("sqlit:///tasks.db")
    assert str(caught.value).startswith("no engine knows the URL scheme 'sqlit'. Did you mean 'sqlite'?")
    with pytest.raises(InvalidOption, match=r"'tasks\.db' is not a store URL"):
        Dibs("tasks.db")


def test_app_defaults() -> None:
    with pytest.raises(InvalidOption, match="retries must be a whole number from 0"):
        Dibs("memory://", retries=-1)


# Files that can't be used.


def unreadable(file: Path) -> None:
    file.mkdir()


def foreign(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    connection.close()


def corrupt(file: Path) -> None:
    file.write_bytes(b"this is not a database, whatever its name says" * 100)


def missing_folder(file: Path) -> None:
    """Nothing to do: the folder is not there."""


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (unreadable, StoreUnavailable),
        (foreign, StoreMismatch),
        (corrupt, (StoreMismatch, StoreCorrupt)),
        (missing_folder, StoreUnavailable),
    ],
)
def test_files_that_can_not_be_used(
    tmp_path: Path, damage: Callable[[Path], None], error: type[StoreError] | tuple[type[StoreError], ...]
) -> None:
    file = tmp_path / ("gone/tasks.db" if damage is missing_folder else "tasks.db")
    damage(file)
    with Dibs(f"sqlite:///{file}") as app:

        @app.task
        def work() -> None: ...

        with pytest.raises(error) as caught:
            work.enqueue()
        assert "tasks.db" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    with Dibs(f"sqlite:///{file}") as app:
        app.queues.set("default", max_depth=1)
    file.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        with Dibs(f"sqlite:///{file}") as app, pytest.raises(StoreUnavailable):
            app.queues.set("default", max_depth=2)
    finally:
        tmp_path.chmod(0o700)


def test_the_memory_engine_has_no_transactions() -> None:
    app = Dibs("memory://")

    @app.task
    def work() -> None: ...

    with pytest.raises(UsageError, match="this engine can't join a transaction: leave connection= out"):
        work.using(connection=sqlite3.connect(":memory:")).enqueue()


# Odd values in calls other than an enqueue: each did something else once, from a wait without end to an AttributeError.

SURROGATE = "a\ud800b"


def claimed(app: Dibs) -> Claim:
    app.task_named("work").enqueue(1)
    return app.claim(lease=60)[0]


CALLS: list[tuple[str, Callable[[Dibs], object], str]] = [
    (
        "claim waits for nan",
        lambda app: app.claim(wait=float("nan")),
        "wait must be a number of seconds or a timedelta, not nan.",
    ),
    ("claim without a lease", lambda app: app.claim(lease=0), "lease must be from 1 s to 86,400 s, not 0."),
    (
        "claim from a text",
        lambda app: app.claim("mail"),
        "queues must be a list of queues such as ['mail'], not 'mail'.",
    ),
    (
        "claim of a name",
        lambda app: app.claim(names="work"),
        "names must be a list of tasks' names such as ['mail.send'], not 'work'.",
    ),
    (
        "a worker of a text",
        lambda app: app.worker(queues="mail"),
        "queues must be a list of queues such as ['mail'], not 'mail'.",
    ),
    (
        "a worker with a text as capability",
        lambda app: app.worker(capabilities="gpu"),
        "capabilities must be a list of capabilities such as ['gpu'], not 'gpu'.",
    ),
    (
        "a window of years",
        lambda app: app.stats(window=timedelta(days=1500)),
        "window must be at most 7 days, for which figures are kept, not datetime.timedelta(days=1500).",
    ),
    (
        "metadata that is none",
        lambda app: app.task_named("work").using(metadata=True),
        "metadata must be a mapping such as {'customer': 42}, not True.",
    ),
    (
        "headers that are none",
        lambda app: app.task_named("work").using(headers="x"),
        "headers must be a mapping such as {'trace': '4bf92f35'}, not 'x'.",
    ),
    (
        "a text that is none",
        lambda app: app.tasks.search(Filter(text=True)),
        "text must be a text of at most 1,000 characters, not True.",
    ),
    ("no filter", lambda app: app.tasks.search(None), "a filter must be a Filter, not None."),
    (
        "no calls",
        lambda app: app.enqueue_many([None]),
        "enqueue_many() takes a list of calls (task.call(…)), and None is none of them.",
    ),
    (
        "an id in place of a handle",
        lambda app: app.wait(["id"]),
        "wait() takes a list of handles (app.handle(id) gives one), and 'id' is none of them.",
    ),
    (
        "a large number as id",
        lambda app: app.tasks.history(2**63),
        "a task's id must be a text of at most 200 characters, not 9223372036854775808.",
    ),
    (
        "a lone surrogate as id",
        lambda app: app.tasks.get(SURROGATE),
        r"a task's id has a lone surrogate, which can't be stored: 'a\ud800b'.",
    ),
    (
        "a lone surrogate as key",
        lambda app: app.task_named("work").using(key=SURROGATE),
        r"key has a lone surrogate, which can't be stored: 'a\ud800b'.",
    ),
    (
        "a reason that can't be stored",
        lambda app: app.task_named("work").enqueue(1).cancel("a\0b"),
        r"reason has a NUL character, which can't be stored: 'a\x00b'.",
    ),
    (
        "a result waited for without end",
        lambda app: app.task_named("work").enqueue(1).result(timeout=float("nan")),
        "timeout must be a number of seconds or a timedelta, not nan.",
    ),
    (
        "progress that is true",
        lambda app: app.extend(claimed(app), progress=True),
        "progress must be a number from 0 to 1, not True.",
    ),
    (
        "progress that is nan",
        lambda app: app.extend(claimed(app), progress=float("nan")),
        "progress must be a number from 0 to 1, not nan.",
    ),
    (
        "extended by nothing",
        lambda app: app.extend(claimed(app), 0),
        "by must be from 1 s to 86,400 s, not 0.",
    ),
    (
        "an outcome that is none",
        lambda app: app.settle(claimed(app), ["done"]),
        "outcome must be one of completed, failed, permanent, cancelled, released, snoozed, not ['done'].",
    ),
    (
        "a dry run that is a text",
        lambda app: app.tasks.purge_matching(Filter(), dry_run="no"),
        "dry_run must be True or False, not 'no'.",
    ),
    (
        "a wait that is no boolean",
        lambda app: app.tasks.purge_matching(Filter(), wait="no"),
        "wait must be True or False, not 'no'.",
    ),
]


@pytest.mark.parametrize(("call", "message"), [(call, said) for _, call, said in CALLS], ids=[c[0] for c in CALLS])
def test_odd_values(app: Dibs, work: Task[..., Any], call: Callable[[Dibs], object], message: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        call(app)
    assert str(caught.value) == message


def test_an_empty_url_is_no_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidOption, match=r"'' is not a store URL\. Use sqlite:///tasks\.db"):
        Dibs("")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["x" * 100_000, b"x" * 100_000, list(range(100_000)), 10**100_000], ids=type)
def test_messages_repeat_no_long_value(app: Dibs, work: Task[..., Any], value: Any) -> None:
    for call in (
        lambda: work.using(key=value),
        lambda: work.using(delay=value),
        lambda: app.claim(limit=value),
        lambda: app.tasks.get(value),
        lambda: app.queues.set("default", policy=value, aging=value, max_depth=value, tiers=value, weights=value),
    ):
        with pytest.raises(InvalidOption) as caught:
            call()
        assert len(str(caught.value)) < 500


def test_less_than_no_time_left_is_none(app: Dibs, work: Task[..., Any]) -> None:
    handle = work.enqueue(1)
    with pytest.raises(TimeoutError, match="had not ended after 0 s"):
        handle.result(timeout=-1)
    assert app.claim(["nobody"], wait=-1) == []


def test_the_text_of_an_error_is_made_fit_for_the_store(app: Dibs, work: Task[..., Any]) -> None:
    claim = claimed(app)
    assert app.settle(claim, "permanent", error=ValueError(SURROGATE + "\0"))
    error = app.tasks.get(claim.id).error
    assert error is not None
    assert error.message == "a?b?"


def test_progress_of_a_running_task() -> None:
    app = Dibs("memory://")
    refused: list[str] = []

    @app.task
    def work(ctx: Context) -> None:
        ctx.progress(0.5, f"at {SURROGATE}" + "x" * 2000)
        for odd in (True, float("nan"), "half", None):
            with pytest.raises(InvalidOption) as caught:
                ctx.progress(odd)  # type: ignore[arg-type]
            refused.append(str(caught.value))

    with Sandbox(app) as sandbox:
        work.enqueue()
        info = sandbox.run_due()[0]
    assert refused == [
        f"progress must be a number from 0 to 1, not {odd}." for odd in ("True", "nan", "'half'", "None")
    ]
    assert info.progress_message.startswith("at a?bxxx")
    assert len(info.progress_message) == 1000


@pytest.mark.parametrize("field", ["state", "queue", "name"])
def test_a_filter_that_names_nothing_is_refused(field: str) -> None:
    """A computed list that came out empty must not cancel everything."""
    with Dibs("memory://") as app, pytest.raises(InvalidOption, match="names nothing"):
        app.tasks.cancel_matching(Filter(**{field: []}))
