"""Blobs of tasks that are gone are deleted; all others stay."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from blob_support import PATIENCE, DirectoryPlace, MakeApp, S3Place, eventually

from dibs import Dibs, Task
from dibs.core.reference import owner
from dibs.core.times import DAY, HOUR
from dibs.engines.values import Purge
from dibs.errors import QueueDraining, StoreUnavailable
from dibs.worker.maintenance import blob_sweeper as sweeping
from dibs.worker.maintenance.blob_sweeper import BlobSweeper

BIG = "0123456789" * 500


@pytest.fixture
def echo(app: Dibs) -> Task[[str], str]:
    return add_echo(app)


def add_echo(app: Dibs) -> Task[[str], str]:
    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    return echo


def sweep(app: Dibs, leads: bool = True) -> int:
    return app.hub.runner.run(BlobSweeper(app.hub, lambda: leads).sweep())


def forget(app: Dibs, task_id: str) -> None:
    """Cancel and purge a task."""
    app.tasks.cancel(task_id)
    app.hub.runner.run(app.hub.engine.act([Purge(task_id)]))


def test_blobs_of_purged_tasks_go_and_all_others_stay(
    app: Dibs, echo: Task[[str], str], directory: DirectoryPlace
) -> None:
    ended, gone = echo.enqueue(BIG), echo.enqueue(BIG)
    with app.worker():
        for handle in (ended, gone):
            handle.result(PATIENCE)
    cancelled, waiting = echo.enqueue(BIG), echo.enqueue(BIG)
    cancelled.cancel()
    assert len(directory.listed()) == 6
    forget(app, gone.id)
    directory.age(3700)
    assert sweep(app) == 2
    assert {owner(key) for key in directory.listed()} == {ended.id, cancelled.id, waiting.id}
    assert len(directory.listed()) == 4
    assert ended.result(PATIENCE) == BIG
    assert sweep(app) == 0


def test_what_is_younger_than_an_hour_stays(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    app.queues.set("default")
    app.queues.drain("default")
    with pytest.raises(QueueDraining):
        echo.enqueue(BIG)
    assert len(directory.listed()) == 1, "an orphan: uploaded, then refused"
    directory.age(3500)
    assert sweep(app) == 0
    directory.age(200)
    assert sweep(app) == 1
    assert directory.listed() == []


def test_an_upload_that_is_repeated_is_young_again(
    app: Dibs, echo: Task[[str], str], directory: DirectoryPlace
) -> None:
    call = echo.using(id="3f2504e0-4f89-41d3-9a0c-0305e82c3301").call(BIG)
    app.queues.set("default")
    app.queues.drain("default")
    for _ in range(2):
        with pytest.raises(QueueDraining):
            app.enqueue_many([call])
        assert sweep(app) == 0
        directory.age(3700)
    assert sweep(app) == 1


def test_duplicates_leave_nothing_for_long(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    first = echo.using(key="k").enqueue(BIG)
    echo.using(key="k").enqueue(BIG)
    assert len(directory.listed()) == 2
    directory.age(3700)
    assert sweep(app) == 1
    assert [owner(key) for key in directory.listed()] == [first.id]


def test_what_is_not_ours_stays(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    for key in ("readme.txt", "2026-01-02/notes", "2026-01-02/0190163d-8694-739b-aea5-966c26f8ad91/photo.jpg"):
        directory.store.put(key, b"x")
    directory.age(10 * 86_400)
    assert sweep(app) == 0
    assert len(directory.listed()) == 3


def test_many_steps(
    app: Dibs, echo: Task[[str], str], directory: DirectoryPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "MOST_AT_ONCE", 3)
    monkeypatch.setattr(sweeping, "ASKED", 2)
    monkeypatch.setattr(sweeping, "PAUSE", 0.0)
    handles = app.enqueue_many([echo.call(f"{number}{BIG}") for number in range(20)])
    for handle in handles[::2]:
        forget(app, handle.id)
    directory.age(3700)
    assert sweep(app) == 10
    assert {owner(key) for key in directory.listed()} == {handle.id for handle in handles[1::2]}


def test_by_the_clock_of_the_app(make_app: MakeApp, dibs_clock: Any, directory: DirectoryPlace) -> None:
    app = make_app(clock=dibs_clock)
    handle = add_echo(app).enqueue(BIG)
    forget(app, handle.id)
    (info,) = directory.store.list()
    dibs_clock.move_to_instant(max(info.modified_at + HOUR - 1, dibs_clock.now()))
    assert sweep(app) == 0
    dibs_clock.move_to_instant(info.modified_at + HOUR + 1)
    assert sweep(app) == 1


def test_pruned_tasks(make_app: MakeApp, dibs_clock: Any, directory: DirectoryPlace) -> None:
    app = make_app(clock=dibs_clock)
    echo = add_echo(app)
    handle = echo.enqueue(BIG)
    with app.worker():
        assert handle.result(PATIENCE) == BIG
    args, _ = directory.store.list()
    dibs_clock.move_to_instant(max(dibs_clock.now(), args.modified_at) + 20 * DAY)
    assert sweep(app) == 0, "the task is still known"
    engine = app.hub.engine

    async def prune() -> None:
        term = await engine.lead("test", now=dibs_clock.now() + DAY)
        assert term is not None
        for chore in (await engine.about()).chores:
            while (await engine.chore(chore.name, term, now=dibs_clock.now() + DAY)).more:
                pass

    app.hub.runner.run(prune())
    assert sweep(app) == 2
    assert directory.listed() == []


def test_the_blobs_of_another_task_store_stay(
    app: Dibs, echo: Task[[str], str], directory: DirectoryPlace, caplog: pytest.LogCaptureFixture
) -> None:
    forget(app, echo.enqueue(BIG).id)
    assert sweep(app) == 0, "the first sweep marks the blob store"
    directory.age(3700)
    with Dibs("memory://", blobs=directory.url, inline_limit=1024) as other:
        assert sweep(other) == 0
    assert "belongs to another task store" in caplog.text
    assert len(directory.listed()) == 1
    assert sweep(app) == 1


def test_only_the_leader_sweeps(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    forget(app, echo.enqueue(BIG).id)
    directory.age(3700)
    assert sweep(app, leads=False) == 0
    assert len(directory.listed()) == 1


def test_a_worker_sweeps_by_itself(
    app: Dibs, echo: Task[[str], str], directory: DirectoryPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "FIRST", 0.0)
    monkeypatch.setattr(sweeping, "INTERVAL", 0.01)
    forget(app, echo.enqueue(BIG).id)
    directory.age(3700)
    with app.worker():
        eventually(lambda: directory.listed() == [])


def test_a_store_that_is_away_is_no_trouble_for_the_worker(
    app: Dibs,
    echo: Task[[str], str],
    directory: DirectoryPlace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "dibs.worker")
    forget(app, echo.enqueue(BIG).id)
    directory.age(3700)

    async def broken(ids: list[str]) -> Any:
        raise StoreUnavailable("the task store is away.")

    with monkeypatch.context() as patch:
        patch.setattr(app.hub.engine, "get", broken)
        assert sweep(app) == 0
    assert len(directory.listed()) == 1, "who can't ask deletes nothing"
    assert "could not be swept: the task store is away. Next try in an hour." in caplog.text
    assert sweep(app) == 1


def test_in_s3(s3: S3Place) -> None:
    with Dibs("memory://", blobs=s3.url, inline_limit=1024) as app:
        echo = add_echo(app)
        kept, gone = echo.enqueue(BIG), echo.enqueue(BIG)
        forget(app, gone.id)
        assert sweep(app) == 0

        class Later:
            """An hour and a bit from now."""

            def now(self) -> int:
                return clock.now() + HOUR + 60_000_000

            def store_now(self) -> None:
                return None

        clock, app.hub.clock = app.hub.clock, Later()
        assert sweep(app) == 1
        assert [found for info in s3.store.list() if (found := owner(info.key))] == [kept.id]
