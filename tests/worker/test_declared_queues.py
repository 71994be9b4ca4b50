"""Settings of queues that code declares: written by workers when they start, and what operators set stays."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from dibs import Dibs
from dibs.core.settings import QueueSettings, change_settings, declare_settings
from dibs.core.times import SECOND
from dibs.errors import InvalidOption
from dibs.testing import Sandbox

Settings = dict[str, Any]


def deployed(url: str, **settings: Any) -> Dibs:
    """The same program in a version that declares these settings."""
    app = Dibs(url)

    @app.task(name="work", queue="mail")
    def work() -> None: ...

    if settings:
        app.queue("mail", **settings)
    return app


def started(url: str, **settings: Any) -> QueueSettings:
    """What holds after a worker of this version has started and left."""
    with deployed(url, **settings) as app:
        with app.worker():
            pass
        return app.queues.get("mail").settings


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tasks.db"


def test_a_worker_writes_what_the_code_declares_before_it_is_ready(url: str) -> None:
    with deployed(url, max_concurrent=3, per_partition=1, timeout=30, policy="tiers") as app:
        app.task_named("work").enqueue()
        assert app.queues.get("mail").settings == QueueSettings(), "what only enqueues writes nothing"
        with app.worker(queues=["other"]):
            settings = app.queues.get("mail").settings
    assert (settings.max_concurrent, settings.defaults.timeout, settings.policy) == (3, 30 * SECOND, "tiers")
    assert settings.per_partition is not None


def test_starting_again_changes_nothing_and_an_operator_has_the_last_word(url: str) -> None:
    first = started(url, max_concurrent=3, rate=5)
    assert started(url, max_concurrent=3, rate=5).version == first.version
    with deployed(url) as operator:
        operator.queues.set("mail", max_concurrent=9, aging=60)
    again = started(url, max_concurrent=3, rate=5)
    assert (again.max_concurrent, again.rate, again.aging, again.version) == (9, 5, 60 * SECOND, first.version + 1)


def test_what_has_changed_in_the_code_is_written_and_nothing_else(url: str) -> None:
    started(url, max_concurrent=3, rate=5)
    with deployed(url) as operator:
        operator.queues.set("mail", max_concurrent=9)
    changed = started(url, max_concurrent=3, rate=7)
    assert (changed.max_concurrent, changed.rate) == (9, 7)
    changed = started(url, max_concurrent=4, rate=7)
    assert (changed.max_concurrent, changed.rate) == (4, 7)
    gone = started(url, rate=7)
    assert (gone.max_concurrent, gone.rate) == (None, 7), "what is no longer declared goes back to its default"
    assert started(url).rate == 7, "code that declares nothing of a queue says nothing about it"


def test_the_audit_log_says_what_was_declared(url: str) -> None:
    started(url, max_concurrent=3)
    with deployed(url) as app:
        (line,) = app.audit(act="set queue")
        assert (line.target, line.after) == ("mail", {"max_concurrent": 3})


def test_contradictions_with_what_an_operator_has_set_are_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    started(url, rate=5)
    with deployed(url) as operator:
        operator.queues.set("mail", rate=None)
    with caplog.at_level(logging.ERROR):
        settings = started(url, rate=5, burst=9)
    assert (settings.rate, settings.burst) == (None, None)
    assert "contradict what an operator has set: burst needs a rate" in caplog.text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_concurent": 3}, "no option 'max_concurent'. Did you mean 'max_concurrent'"),
        ({"max_concurrent": 0}, "max_concurrent must be a whole number"),
        ({"burst": 3}, "burst needs a rate"),
        ({"policy": "tires"}, "Did you mean 'tiers'"),
    ],
)
def test_declarations_are_checked_where_they_are_written(settings: Settings, words: str) -> None:
    with Dibs("memory://") as app, pytest.raises(InvalidOption, match=words):
        app.queue("mail", **settings)


def test_a_queue_is_declared_once() -> None:
    with Dibs("memory://") as app:
        app.queue("mail", rate=5)
        with pytest.raises(InvalidOption, match="declared twice"):
            app.queue("mail", rate=6)


def test_a_sandbox_has_them_from_the_start() -> None:
    with Dibs("memory://") as app:
        app.queue("mail", max_depth=1)
        with Sandbox(app):
            assert app.queues.get("mail").settings.max_depth == 1


def test_equal_declarations_change_nothing() -> None:
    given = {"tiers": {"low": {"retries": 2}}, "weights": {"acme": 2}, "per_task": {"send": 3}, "keep": 60, "rate": 5}
    code = change_settings(QueueSettings(), given)
    written = declare_settings(QueueSettings(), code, given)
    assert declare_settings(written, code, given) is written
    assert declare_settings(QueueSettings(), QueueSettings(), ()) == QueueSettings()
