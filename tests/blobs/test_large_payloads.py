"""Large arguments and results from enqueue to result, on each engine, with blobs in a directory."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import blob_process_app
import pytest
from blob_support import PATIENCE, DirectoryPlace, MakeApp, S3Place, record_of

from dibs import Dibs, State, Task
from dibs.blobs import BlobStore, open_blobs
from dibs.blobs.memory import MemoryBlobs
from dibs.client.producer import wait_for_room
from dibs.core.reference import reference_in
from dibs.errors import PayloadTooLarge, UnknownTask
from dibs.runtime.payloads import Payloads

BIG = "0123456789" * 30_000
"""More than 256 KiB."""


@pytest.fixture
def echo(app: Dibs) -> Task[[str], str]:
    return add_echo(app)


def add_echo(app: Dibs) -> Task[[str], str]:
    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    return echo


def test_they_arrive_and_come_back(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    handle = echo.enqueue(BIG)
    assert len(record_of(app, handle.id).args) < 300
    assert len(directory.listed()) == 1
    with app.worker():
        assert handle.result(PATIENCE) == BIG
    record = record_of(app, handle.id)
    assert len(record.result) < 300
    kept = [reference_in(payload) for payload in (record.args, record.result)]
    assert directory.listed() == [reference.key for reference in kept if reference is not None]
    assert [f"/{handle.id}/args-" in directory.listed()[0], f"/{handle.id}/result-1-" in directory.listed()[1]] == [
        True,
        True,
    ]


def test_small_ones_go_with_their_task(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    handle = echo.enqueue("x" * 900)
    with app.worker():
        assert handle.result(PATIENCE) == "x" * 900
    assert directory.listed() == []


@pytest.mark.parametrize("executor", ["loop", "thread"])
def test_every_executor_gets_them(app: Dibs, executor: str) -> None:
    function: Any
    if executor == "loop":

        async def function(text: str) -> str:
            return text * 2
    else:

        def function(text: str) -> str:
            return text * 2

    task = app.task(name="double")(function)
    with app.worker():
        assert task.enqueue(BIG).result(PATIENCE) == BIG * 2


def test_executor_processes_get_them_too(directory: DirectoryPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    app = blob_process_app.app
    monkeypatch.setattr(app.hub, "payloads", Payloads(directory.store, 1024))
    with app.worker():
        assert blob_process_app.double.enqueue(BIG).result(PATIENCE) == BIG * 2
        handle = blob_process_app.envelope.enqueue()
        assert handle.result(PATIENCE) == {"$dibs": "blob", "key": "x" * 2000}
    assert len(directory.listed()) == 3


def test_looking_at_a_task_fetches_nothing(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    handle = echo.enqueue(BIG)
    with app.worker():
        handle.result(PATIENCE)
    args, result = directory.listed()
    directory.take_away()
    for info in (app.tasks.get(handle.id), handle.refresh(), app.tasks.search().tasks[0]):
        assert info.args == {"blob": args, "size": 300_011}
        assert info.result == {"blob": result, "size": 300_002}
    assert handle.info is not None
    assert handle.info.args == {"blob": args, "size": 300_011}


def test_a_codec_is_applied_before_the_upload(make_app: MakeApp, directory: DirectoryPlace) -> None:
    class Reversed:
        name = "reversed"

        def encode(self, payload: bytes) -> bytes:
            return payload[::-1]

        decode = encode

    app = make_app(payload_codec=Reversed())
    echo = add_echo(app)
    with app.worker():
        assert echo.enqueue(BIG).result(PATIENCE) == BIG
    for key in directory.listed():
        assert directory.store.get(key).startswith(b'{"$dibs":"reversed","data":')


def test_the_default_limit(make_app: MakeApp, directory: DirectoryPlace) -> None:
    app = make_app(inline_limit=None)
    echo = add_echo(app)
    echo.enqueue("x" * (256 * 1024 - 11))
    assert directory.listed() == []
    echo.enqueue("x" * (256 * 1024 - 10))
    assert len(directory.listed()) == 1


@pytest.mark.parametrize("executor", ["loop", "thread"])
def test_without_a_store_a_large_result_is_a_failure_that_no_retry_cures(make_app: MakeApp, executor: str) -> None:
    app = make_app(blobs=None)

    @app.task
    async def make() -> str:
        return "x" * 2000

    @app.task
    def make_in_thread() -> str:
        return "x" * 2000

    handle = (make if executor == "loop" else make_in_thread).enqueue()
    with app.worker():
        app.wait([handle], PATIENCE)
    record = record_of(app, handle.id)
    assert (record.state, record.reason, record.attempts) == (State.DEAD, "permanent", 1)
    assert (
        "2,002 bytes, more than the 1,024 that are kept with a task. Configure a blob store" in record.failure.message
    )


def test_without_a_store_large_arguments_are_refused_at_enqueue(make_app: MakeApp) -> None:
    app = make_app(blobs=None)
    echo = add_echo(app)
    for enqueue in (lambda: echo.enqueue(BIG), lambda: app.enqueue_many([echo.call("a"), echo.call(BIG)])):
        with pytest.raises(PayloadTooLarge, match=r"Dibs\(…, blobs='file:///var/lib/blobs'\).*DIBS_BLOBS"):
            enqueue()
    assert app.queues.list() == []


def test_arguments_that_another_task_may_get_stay_with_it(
    app: Dibs, echo: Task[[str], str], directory: DirectoryPlace
) -> None:
    first = echo.using(key="k", replace=True, delay=60).enqueue("x" * 900)
    with pytest.raises(PayloadTooLarge, match="A task that may replace another has no blob of its own"):
        echo.using(key="k", replace=True).enqueue(BIG)
    assert first.refresh().args == {"text": "x" * 900}
    assert directory.listed() == []


# Batches and async code.


class Watched(MemoryBlobs):
    """Notes on which threads it is used; `together` holds each upload until so many are under way."""

    def __init__(self, together: int = 1) -> None:
        super().__init__()
        self.threads: set[int] = set()
        self._barrier = threading.Barrier(together)

    def put(self, key: str, data: bytes) -> None:
        self.threads.add(threading.get_ident())
        self._barrier.wait(PATIENCE)
        super().put(key, data)

    def get(self, key: str) -> bytes:
        self.threads.add(threading.get_ident())
        return super().get(key)


def test_a_batch_goes_up_in_parallel(make_app: MakeApp) -> None:
    blobs = Watched(together=4)
    app = make_app(blobs=blobs)
    echo = add_echo(app)
    texts = ["small", *(f"{number}{BIG}" for number in range(8)), "small too"]
    handles = app.enqueue_many([echo.call(text) for text in texts])
    assert len(blobs.list()) == 8
    assert 4 <= len(blobs.threads) <= 8
    blobs._barrier = threading.Barrier(1)
    with app.worker():
        assert [handle.result(PATIENCE) for handle in handles] == texts


def test_nothing_blocks_an_event_loop(make_app: MakeApp) -> None:
    blobs = Watched()
    app = make_app(blobs=blobs)

    @app.task
    async def echo(text: str) -> str:
        loops.add(threading.get_ident())
        return text

    loops = {threading.get_ident()}

    async def main() -> None:
        handle = await echo.aenqueue(BIG)
        (other,) = await app.aenqueue_many([echo.call(BIG)])
        assert await handle == BIG
        assert await other == BIG

    with app.worker():
        asyncio.run(main())
    assert blobs.threads
    assert not loops & blobs.threads


def test_a_blocking_enqueue_uploads_on_its_own_thread(make_app: MakeApp) -> None:
    blobs = Watched()
    app = make_app(blobs=blobs)
    add_echo(app).enqueue(BIG)
    assert blobs.threads == {threading.get_ident()}


def test_in_somebodys_own_transaction(tmp_path: Path, directory: DirectoryPlace) -> None:
    file = tmp_path / "shop.db"
    with Dibs(f"sqlite:///{file}", blobs=directory.url) as app:
        echo = add_echo(app)
        app.queues.list()
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            handle = echo.using(connection=connection).enqueue(BIG)
            awaited = asyncio.run(echo.using(connection=connection).aenqueue(BIG))
            with pytest.raises(UnknownTask):
                handle.refresh()
            connection.execute("COMMIT")
        with app.worker():
            assert (handle.result(PATIENCE), awaited.result(PATIENCE)) == (BIG, BIG)


def test_a_key_stands_for_large_arguments_as_well(app: Dibs, echo: Task[[str], str], directory: DirectoryPlace) -> None:
    first = echo.using(key="k").enqueue(BIG)
    again = echo.using(key="k").enqueue(BIG)
    assert (again.id, again.duplicate) == (first.id, True)
    with app.worker():
        assert again.result(PATIENCE) == BIG


def test_the_same_id_with_the_same_arguments_is_the_same_task(app: Dibs, echo: Task[[str], str]) -> None:
    call = echo.using(id="3f2504e0-4f89-41d3-9a0c-0305e82c3301").call(BIG)
    first, second = app.enqueue_many([call]), app.enqueue_many([call])
    assert first[0].id == second[0].id
    with app.worker():
        assert second[0].result(PATIENCE) == BIG


def test_who_waits_long_for_room_renews_its_blob(
    app: Dibs, echo: Task[[str], str], directory: DirectoryPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(wait_for_room.__globals__, "RENEW_EVERY", 0.0)
    app.queues.set("default", max_depth=1)
    echo.enqueue("first")
    renewed = threading.Event()
    put = directory.store.put

    def put_again(key: str, data: bytes) -> None:
        put(key, data)
        if directory.listed() == [key]:
            renewed.set()

    blobs: Any = app.hub.payloads.blobs
    monkeypatch.setattr(blobs, "put", put_again)

    def make_room() -> None:
        assert renewed.wait(PATIENCE)
        app.tasks.cancel(app.peek()[0].id)

    helper = threading.Thread(target=make_room)
    helper.start()
    handle = echo.using(block=PATIENCE).enqueue(BIG)
    helper.join(PATIENCE)
    assert handle.refresh().state is State.PENDING


# Own loops, and fences.


def test_a_claim_has_its_arguments_and_keeps_its_result(app: Dibs, echo: Task[[str], str]) -> None:
    handles = [echo.enqueue(f"{number}{BIG}") for number in range(3)]
    claims = app.claim(limit=3)
    assert [claim.args for claim in claims] == [{"text": f"{number}{BIG}"} for number in range(3)]
    for claim in claims:
        assert app.settle(claim, result=claim.args["text"])
    assert [handle.result(PATIENCE) for handle in handles] == [f"{number}{BIG}" for number in range(3)]


def test_settling_twice_with_another_result_changes_nothing(app: Dibs, echo: Task[[str], str]) -> None:
    handle = echo.enqueue("x")
    (claim,) = app.claim()
    assert app.settle(claim, result=f"first{BIG}")
    assert app.settle(claim, result=f"second{BIG}")
    assert handle.result(PATIENCE) == f"first{BIG}"


@pytest.mark.parametrize("zombie_first", [True, False])
def test_a_zombie_can_not_touch_the_result_of_the_live_run(
    make_app: MakeApp, dibs_clock: Any, directory: DirectoryPlace, zombie_first: bool
) -> None:
    app = make_app(clock=dibs_clock)
    handle = add_echo(app).enqueue("x")
    (zombie,) = app.claim()
    dibs_clock.advance(60)
    (live,) = app.claim()
    settles: list[Callable[[], bool]] = [
        lambda: app.settle(zombie, result=f"zombie{BIG}"),
        lambda: app.settle(live, result=f"live{BIG}"),
    ]
    answers = [settle() for settle in (settles if zombie_first else reversed(settles))]
    assert answers == ([False, True] if zombie_first else [True, False])
    assert handle.result(PATIENCE) == f"live{BIG}"
    assert [f"result-{lease}-" in key for lease, key in enumerate(directory.listed(), 1)] == [True, True]


# Elsewhere.


def test_in_s3(s3: S3Place, tmp_path: Path) -> None:
    with Dibs(f"sqlite:///{tmp_path}/tasks.db", blobs=s3.url) as app:
        echo = add_echo(app)
        handles = app.enqueue_many([echo.call(f"{number}{BIG}") for number in range(5)])
        with app.worker():
            assert [handle.result(PATIENCE) for handle in handles] == [f"{number}{BIG}" for number in range(5)]
    assert len(s3.store.list()) == 10


def test_two_apps_with_the_same_store_read_each_other(tmp_path: Path, directory: DirectoryPlace) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    with Dibs(url, blobs=directory.url) as producer, Dibs(url, blobs=directory.url, inline_limit=2048) as other:
        handle = add_echo(producer).enqueue(BIG)
        add_echo(other)
        with other.worker():
            assert handle.result(PATIENCE) == BIG


def test_a_store_of_ones_own(app: Dibs) -> None:
    assert isinstance(Watched(), BlobStore)
    assert isinstance(open_blobs("memory://"), BlobStore)
    assert not isinstance(app, BlobStore)
