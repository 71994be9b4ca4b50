"""Several processes on one file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlite_help import beat, completed, new, opened, request

from dibs.core.states import State
from dibs.core.task import HistoryEvent, WorkerState
from dibs.engines.sqlite import SqliteEngine, notifier
from dibs.engines.sqlite.notifier import socket_directory
from dibs.engines.topics import work_topic, worker_topic
from dibs.engines.values import SettleOutcome

SCRIPT = Path(__file__).with_name("sqlite_process.py")
PATIENCE = 30.0


@contextmanager
def process(role: str, path: Path, *arguments: object, **variables: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(SCRIPT), role, str(path), *map(str, arguments)]
    environment = {**os.environ, **variables}
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def tell(child: subprocess.Popen[str], text: str = "go") -> None:
    assert child.stdin is not None
    child.stdin.write(text + "\n")
    child.stdin.flush()


def test_producers_and_workers_in_many_processes(tmp_path: Path) -> None:
    """All start at once on a file that does not exist yet; every task runs exactly once."""
    path = tmp_path / "x.db"
    with (
        process("enqueue", path, 150) as first,
        process("enqueue", path, 150) as second,
        process("drain", path, "a") as one,
        process("drain", path, "b") as other,
    ):
        assert [line(first), line(second)] == ["done", "done"]
        tell(one)
        tell(other)
        ran = line(one).split() + line(other).split()
    assert len(ran) == len(set(ran)) == 300

    async def go() -> None:
        async with opened(path) as engine:
            assert ((await engine.counts()).tasks)["default"][State.COMPLETED] == 300
            assert all(finding.level == "ok" for finding in await engine.check(full=True))

    asyncio.run(go())


def test_settings_changed_elsewhere_hold_at_once(tmp_path: Path) -> None:
    """Two engines of one process share a writer, so the other one is a process."""

    async def go() -> None:
        path = tmp_path / "x.db"
        async with opened(path) as engine:
            await engine.enqueue([new()])
            with process("enqueue", path, 1) as child:
                assert line(child) == "done"
            assert len((await engine.claim(request(5))).tasks) == 2

    asyncio.run(go())


def test_other_processes_wake_up_in_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with process("listen", path) as listener, process("ring", path) as ringer:
        assert line(listener) == "listening"
        assert line(ringer) == "ready"
        delays = []
        for _ in range(20):
            tell(ringer)
            rung_at, sent = line(ringer).split()
            heard_at, got = line(listener).split()
            assert sent == got
            delays.append(int(heard_at) - int(rung_at))
    delays.sort()
    assert delays[10] < 20_000_000, delays  # the net alone would take 25 ms on average


def test_the_net_catches_what_no_socket_tells(tmp_path: Path) -> None:
    """A listener without a socket hears of commits all the same."""

    async def go() -> None:
        path = tmp_path / "x.db"
        async with opened(path) as engine:
            subscription = engine.subscribe([work_topic("default")])
            for socket in socket_directory(path).iterdir():
                socket.unlink()
            waiting = asyncio.ensure_future(subscription.wait(PATIENCE))
            with process("enqueue", path, 1) as child:
                assert line(child) == "done"
                assert await waiting
            subscription.close()

    asyncio.run(go())


@pytest.mark.parametrize("hears", [True, False])
def test_the_commits_of_others_ring_no_heart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hears: bool) -> None:
    """A heartbeat that is woken writes: those of two idle workers would wake each other with every look.

    Without a socket only that worker notices a request to it, and then a second may pass.
    """
    if not hears:
        monkeypatch.setattr(notifier, "bind", lambda *_: (None, None))

    async def run() -> None:
        path = tmp_path / "x.db"
        async with opened(path) as engine:
            work = engine.subscribe([work_topic("default")])
            heart = engine.subscribe([worker_topic("w")])
            waiting = asyncio.create_task(heart.wait(0.5 if hears else PATIENCE))
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("CREATE TABLE others (n)")
            assert await work.wait(PATIENCE)
            assert await waiting is not hears
            await engine.beat(beat("w", os.getpid()))
            await engine.set_worker_state("w", WorkerState.PAUSED)
            assert await heart.wait(PATIENCE)
            work.close()
            heart.close()

    asyncio.run(run())


def test_bells_of_the_dead_are_removed(tmp_path: Path) -> None:
    async def go() -> None:
        path = tmp_path / "x.db"
        async with opened(path) as engine:
            with process("listen", path) as child:
                assert line(child) == "listening"
                assert len(list(socket_directory(path).iterdir())) == 1
            await engine.enqueue([new()])
            assert list(socket_directory(path).iterdir()) == []

    asyncio.run(go())


def test_a_long_path_gets_its_bells_elsewhere(tmp_path: Path) -> None:
    """Where processes with other temporary directories, however long, find them."""
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    path = folder / "x.db"
    with process("listen", path, TMPDIR=str(folder)) as listener, process("ring", path) as ringer:
        assert [line(listener), line(ringer)] == ["listening", "ready"]
        assert not (folder / "x.db-bells").exists()
        assert len(list(socket_directory(path).iterdir())) == 1
        tell(ringer)
        line(ringer)
        assert line(listener)
    socket_of_the_dead = next(socket_directory(path).iterdir())
    socket_of_the_dead.unlink()
    socket_directory(path).rmdir()


def test_tasks_of_a_killed_worker_come_back_long_before_the_lease_ends(tmp_path: Path) -> None:
    async def rescued(engine: SqliteEngine) -> list[str]:
        """Look until something is found, as workers do."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = await engine.rescue()
            if found.ids:
                assert found.workers == ["doomed"]
                return found.ids
            await asyncio.sleep(0.1)
        raise AssertionError("the killed worker was never noticed")

    async def go() -> None:
        path = tmp_path / "x.db"
        async with opened(path) as engine:
            await engine.enqueue([new()])
            await engine.beat(beat("mine", os.getpid()))
            with process("hold", path, "doomed") as child:
                task_id = line(child)
                assert (await engine.rescue()).ids == []
                child.kill()
                child.wait()
                killed_at = time.monotonic()
                assert await rescued(engine) == [task_id]
                assert time.monotonic() - killed_at < 15, "long before its lease ends"
            states = {worker.id: worker.state for worker in await engine.workers()}
            assert states == {"doomed": WorkerState.DEAD, "mine": WorkerState.ACTIVE}
            assert [entry.event for entry in await engine.history(task_id)] == [HistoryEvent.LOST]
            (task,) = (await engine.claim(request())).tasks
            assert (task.id, task.lease) == (task_id, 2)
            assert [answer.outcome for answer in await engine.settle([completed(task)])] == [SettleOutcome.DONE]

    asyncio.run(go())


def test_a_living_worker_is_never_taken_for_dead(tmp_path: Path) -> None:
    """Not by others, and not by engines of its own process: a look at the file could drop its locks."""

    async def go() -> None:
        path = tmp_path / "x.db"
        async with opened(path) as engine, opened(path) as twin:
            await engine.enqueue([new()])
            await engine.beat(beat("mine", os.getpid()))
            with process("hold", path, "theirs") as child:
                line(child)
                looked = 0
                until = time.monotonic() + 1.5
                while time.monotonic() < until:
                    for each in (engine, twin):
                        rescued = await each.rescue()
                        assert (rescued.ids, rescued.workers) == ([], [])
                        looked += 1
            assert looked > 2
            await engine.leave("mine")
            assert [worker.id for worker in await engine.workers()] == ["theirs"]

    asyncio.run(go())


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    loop = asyncio.new_event_loop()
    engine = SqliteEngine(path)
    loop.run_until_complete(engine.open(lambda: True))  # no executor thread, as in a blocking caller
    loop.run_until_complete(engine.enqueue([new()]))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            engine.forget()
            own = asyncio.new_event_loop()
            own.run_until_complete(engine.open(lambda: True))
            own.run_until_complete(engine.enqueue([new()]))
            own.run_until_complete(engine.close())
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    loop.run_until_complete(engine.enqueue([new()]))
    counts = (loop.run_until_complete(engine.counts())).tasks
    assert counts["default"][State.PENDING] == 3
    loop.run_until_complete(engine.close())
    loop.close()


def test_engines_of_one_process_share_one_writer(tmp_path: Path) -> None:
    async def go() -> None:
        path = tmp_path / "x.db"
        async with opened(path, synchronous="normal") as lax, opened(path) as strict:
            assert lax._store is strict._store
            assert lax._store is not None
            writer = lax._store.writer
            assert writer is not None
            assert writer.execute("PRAGMA synchronous").fetchone() == (2,)  # the stricter one holds
            sibling = lax.sibling()
            await sibling.open()
            await asyncio.gather(*(each.enqueue([new()]) for each in (lax, strict, sibling) for _ in range(20)))
            assert ((await sibling.counts()).tasks)["default"][State.PENDING] == 60
            await sibling.close()

    asyncio.run(go())
