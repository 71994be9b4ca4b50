"""A blob store that is away, a blob that is gone or was changed: what becomes of the task."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from blob_support import PATIENCE, DirectoryPlace, MakeApp, eventually, record_of

from dibs import Dibs, State, Task
from dibs.attempt import payloads as worker_payloads
from dibs.blobs.memory import MemoryBlobs
from dibs.core.task import HistoryEvent
from dibs.core.times import SECOND
from dibs.errors import BlobCorrupt, BlobLost, BlobStoreUnavailable, TaskFailed
from dibs.testing import ManualClock

BIG = "0123456789" * 500


def add_echo(app: Dibs) -> Task[[str], str]:
    @app.task(name="echo", retries=1)
    def echo(text: str) -> str:
        return text

    return echo


@pytest.fixture
def echo(app: Dibs) -> Task[[str], str]:
    return add_echo(app)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """None: a result is tried to be kept four times at once."""
    monkeypatch.setattr(worker_payloads, "PAUSES", (0.0, 0.0, 0.0))


def block(directory: DirectoryPlace) -> None:
    """Remove the directory so that it can't be made again either."""
    directory.take_away()
    directory.root.write_text("in the way")


def unblock(directory: DirectoryPlace) -> None:
    directory.root.unlink()
    directory.bring_back()


# At enqueue.


def test_at_enqueue_nothing_is_enqueued(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    directory.store.put("a", b"x")
    block(directory)
    for enqueue in (
        lambda: echo.enqueue(BIG),
        lambda: app.enqueue_many([echo.call("small"), *(echo.call(BIG) for _ in range(20))]),
    ):
        with pytest.raises(BlobStoreUnavailable, match="can't write to the blob directory"):
            enqueue()
    assert app.queues.list() == []
    unblock(directory)
    handle = echo.enqueue(BIG)
    with app.worker():
        assert handle.result(PATIENCE) == BIG


def test_small_tasks_don_t_mind(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    directory.store.put("a", b"x")
    block(directory)
    with app.worker():
        assert echo.enqueue("small").result(PATIENCE) == "small"


# Before the run.


def test_before_the_run_the_task_is_put_off_and_no_attempt_is_counted(
    make_app: MakeApp, dibs_clock: ManualClock, directory: DirectoryPlace
) -> None:
    app = make_app(clock=dibs_clock)
    handle = add_echo(app).enqueue(BIG)
    block(directory)
    with app.worker():
        eventually(lambda: record_of(app, handle.id).state is State.SCHEDULED)
        record = record_of(app, handle.id)
        assert (record.attempts, record.losses) == (0, 0)
        assert 4.4 * SECOND < record.due_at - dibs_clock.now() < 5.6 * SECOND
        (entry,) = handle.history()
        assert entry.event == HistoryEvent.SNOOZED
        assert "put off, as its arguments could not be fetched" in entry.note

        dibs_clock.advance(6)
        app.queues.pause("default")
        app.queues.resume("default")  # which has the worker look, whose clock has not moved
        eventually(lambda: len(handle.history()) == 2 and record_of(app, handle.id).state is State.SCHEDULED)
        later = record_of(app, handle.id)
        assert 8.8 * SECOND < later.due_at - dibs_clock.now() < 11.2 * SECOND

    unblock(directory)
    dibs_clock.advance(12)
    with app.worker():
        assert handle.result(PATIENCE) == BIG


def test_a_worker_without_a_store_leaves_the_task_to_others(
    make_app: MakeApp, dibs_clock: ManualClock, directory: DirectoryPlace
) -> None:
    app = make_app(clock=dibs_clock)
    handle = add_echo(app).enqueue(BIG)
    has, app.hub.payloads.blobs = app.hub.payloads.blobs, None
    with app.worker():
        eventually(lambda: record_of(app, handle.id).state is State.SCHEDULED)
    assert "this app has no blob store" in handle.history()[0].note
    app.hub.payloads.blobs = has
    dibs_clock.advance(60)
    with app.worker():
        assert handle.result(PATIENCE) == BIG


@pytest.mark.parametrize("harm", ["lost", "changed"])
def test_a_blob_that_is_gone_or_changed_makes_its_task_dead_at_once(
    app: Dibs, echo: Task[[str], str], directory: DirectoryPlace, harm: str
) -> None:
    handle = echo.enqueue(BIG)
    (key,) = directory.listed()
    if harm == "lost":
        directory.store.delete([key])
    else:
        directory.overwrite(key, b"something else")
    with app.worker(), pytest.raises(TaskFailed) as caught:
        handle.result(PATIENCE)
    assert caught.value.reason == "permanent"
    assert caught.value.error_type == ("dibs.errors.BlobLost" if harm == "lost" else "dibs.errors.BlobCorrupt")
    assert key in caught.value.error_message
    assert record_of(app, handle.id).attempts == 1


def test_what_else_a_store_raises_counts_as_away(make_app: MakeApp, dibs_clock: ManualClock) -> None:
    class Breaking(MemoryBlobs):
        def get(self, key: str) -> bytes:
            raise KeyError(key)

    app = make_app(blobs=Breaking(), clock=dibs_clock)
    handle = add_echo(app).enqueue(BIG)
    with app.worker():
        eventually(lambda: record_of(app, handle.id).state is State.SCHEDULED)
    assert "the blob store memory:// failed: KeyError" in handle.history()[0].note


def test_a_run_whose_arguments_are_on_their_way_can_be_cancelled(make_app: MakeApp) -> None:
    class Slow(MemoryBlobs):
        def get(self, key: str) -> bytes:
            asked.set()
            assert go_on.wait(PATIENCE)
            return super().get(key)

    asked, go_on = threading.Event(), threading.Event()
    app = make_app(blobs=Slow())
    handle = add_echo(app).enqueue(BIG)
    with app.worker():
        assert asked.wait(PATIENCE)
        assert handle.cancel("changed my mind")
        (info,) = app.wait([handle], PATIENCE)
        go_on.set()
    assert (info.state, info.note) == (State.CANCELLED, "changed my mind")


def test_fetching_does_not_use_up_the_timeout(make_app: MakeApp) -> None:
    class Looking(MemoryBlobs):
        def get(self, key: str) -> bytes:
            assert worker._session is not None
            ends.extend(run.timeout_at for run in worker._session.slots.active())
            return super().get(key)

    ends: list[float | None] = []
    app = make_app(blobs=Looking())

    @app.task(timeout=60)
    def echo(text: str) -> str:
        return text

    worker = app.worker()
    with worker:
        assert echo.enqueue(BIG).result(PATIENCE) == BIG
    assert ends == [None, *ends[1:]], "the time had not begun to run"


# After the run.


@pytest.mark.usefixtures("patience")
def test_after_the_run_the_attempt_fails_and_says_that_the_work_was_done(app: Dibs, directory: DirectoryPlace) -> None:
    runs: list[int] = []

    @app.task(retries=1)
    def work() -> str:
        runs.append(1)
        if len(runs) == 1:
            block(directory)
        else:
            unblock(directory)
        return BIG

    directory.store.put("a", b"x")
    handle = work.enqueue()
    with app.worker():
        assert handle.result(PATIENCE) == BIG
    (entry,) = handle.history()
    assert entry.event == HistoryEvent.FAILED
    assert entry.error is not None
    assert entry.error.type == "dibs.errors.BlobStoreUnavailable"
    assert "the task ran and gave a result of 5,002 bytes, but it could not be kept: can't write" in entry.error.message
    assert len(runs) == 2


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("kind", ["loop", "thread"])
def test_a_result_is_tried_to_be_kept_more_than_once(make_app: MakeApp, kind: str) -> None:
    class Hiccup(MemoryBlobs):
        def put(self, key: str, data: bytes) -> None:
            tries.append(key)
            if len(tries) < 4:
                raise BlobStoreUnavailable("a hiccup")
            super().put(key, data)

    tries: list[str] = []
    app = make_app(blobs=Hiccup())

    @app.task(name="loop", retries=0)
    async def in_loop() -> str:
        return BIG

    @app.task(name="thread", retries=0)
    def in_thread() -> str:
        return BIG

    with app.worker():
        assert app.task_named(kind).enqueue().result(PATIENCE) == BIG
    assert len(tries) == 4
    assert len(set(tries)) == 1, "the same key each time"


@pytest.mark.parametrize("kind", ["loop", "thread"])
def test_a_run_whose_result_can_not_be_kept_can_be_cancelled(make_app: MakeApp, kind: str) -> None:
    class Stuck(MemoryBlobs):
        def put(self, key: str, data: bytes) -> None:
            asked.set()
            raise BlobStoreUnavailable("away for long")

    asked = threading.Event()
    app = make_app(blobs=Stuck())

    @app.task(name="loop")
    async def in_loop() -> str:
        return BIG

    @app.task(name="thread")
    def in_thread() -> str:
        return BIG

    with app.worker():
        handle = app.task_named(kind).enqueue()
        assert asked.wait(PATIENCE)
        assert handle.cancel()
        (info,) = app.wait([handle], PATIENCE)
    assert info.state is State.CANCELLED


# Reading.


def test_a_result_that_can_not_be_read(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    handle = echo.enqueue(BIG)
    with app.worker():
        assert handle.result(PATIENCE) == BIG
    _, key = directory.listed()
    block(directory)
    with pytest.raises(BlobStoreUnavailable):
        handle.result(PATIENCE)
    unblock(directory)
    assert handle.result(PATIENCE) == BIG
    directory.overwrite(key, b"something else")
    with pytest.raises(BlobCorrupt, match=key):
        handle.result(PATIENCE)
    directory.store.delete([key])
    with pytest.raises(BlobLost, match=key):
        handle.result(PATIENCE)


def test_the_timeout_of_a_result_covers_fetching_it(make_app: MakeApp) -> None:
    class Slow(MemoryBlobs):
        def get(self, key: str) -> bytes:
            if "/result-" in key:
                assert go_on.wait(PATIENCE)
            return super().get(key)

    go_on = threading.Event()
    app = make_app(blobs=Slow())
    handle = add_echo(app).enqueue(BIG)
    with app.worker():
        app.wait([handle], PATIENCE)
    told = ""
    timeout = 0.01
    while "has completed, but its result had not been fetched after" not in told:  # a busy machine may need longer
        assert timeout < PATIENCE
        with pytest.raises(TimeoutError) as caught:
            handle.result(timeout)
        told, timeout = str(caught.value), timeout * 3
    go_on.set()
    assert handle.result(PATIENCE) == BIG


def test_claims_that_can_not_be_made_ready_are_settled_and_the_others_given(
    make_app: MakeApp, dibs_clock: ManualClock, directory: DirectoryPlace
) -> None:
    app = make_app(clock=dibs_clock)
    echo = add_echo(app)
    lost, fine = echo.enqueue(BIG), echo.enqueue("small")
    directory.store.delete(directory.listed())
    assert [claim.id for claim in app.claim(limit=2)] == [fine.id]
    assert record_of(app, lost.id).state is State.DEAD

    away = echo.enqueue(BIG)
    block(directory)
    assert app.claim() == []
    assert record_of(app, away.id).state is State.SCHEDULED
    unblock(directory)
    dibs_clock.advance(60)
    (claim,) = app.claim()
    block(directory)
    with pytest.raises(BlobStoreUnavailable):
        app.settle(claim, result=BIG)
    unblock(directory)
    assert app.settle(claim, result=BIG), "nothing had been settled"
    assert away.result(PATIENCE) == BIG


def test_the_log_says_once_that_it_went_and_once_that_it_is_back(
    app: Dibs, echo: Task[[str], str], directory: DirectoryPlace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "dibs.blobs")
    directory.store.put("a", b"x")
    block(directory)
    for _ in range(3):
        with pytest.raises(BlobStoreUnavailable):
            echo.enqueue(BIG)
    unblock(directory)
    for _ in range(3):
        echo.enqueue(BIG)
    told: list[Any] = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert told[0].startswith("The blob store does not answer: can't write to the blob directory")
    assert told[1] == "The blob store answers again."
