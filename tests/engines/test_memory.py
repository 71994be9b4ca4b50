"""What only the memory engine does. That it does what every engine does is shown by the conformance suite."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from dibs.core.task import NewTask
from dibs.engines import memory
from dibs.engines.memory import MemoryEngine, MemoryStore
from dibs.engines.port import at_once
from dibs.engines.sqlite import enqueueing
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import Query
from dibs.errors import StoreBusy, StoreError

PATIENCE = 20


def new(number: int) -> NewTask:
    return NewTask(id=f"{number:08}", queue="q", name="n")


def stored(engine: MemoryEngine) -> list[str]:
    return [record.id for record in at_once(engine.search(Query())).records]


def test_no_verb_needs_a_loop() -> None:
    engine = MemoryEngine()
    at_once(engine.enqueue([new(1)]))
    assert stored(engine) == [new(1).id]


def test_a_failed_write_leaves_nothing() -> None:
    engine = MemoryEngine()

    def fail(transaction: Transaction, tasks: Sequence[NewTask]) -> None:
        enqueueing.enqueue(transaction, tasks, atomic=True)
        raise LookupError("planted")

    at_once(engine.enqueue([new(1)]))
    with pytest.raises(LookupError, match="planted"):
        at_once(engine._write(fail, [new(2)]))
    assert stored(engine) == [new(1).id]
    at_once(engine.enqueue([new(3)]))
    assert len(stored(engine)) == 2


def test_an_error_of_the_driver_becomes_one_of_ours() -> None:
    def fail(transaction: Transaction) -> Any:
        return transaction.connection.execute("SELECT * FROM no_table")

    engine = MemoryEngine()
    for run in (engine._write, engine._read):
        with pytest.raises(StoreError, match=r":memory:.*no such table"):
            at_once(run(fail))


def test_a_store_ends_with_its_last_engine() -> None:
    engine = MemoryEngine()
    at_once(engine.enqueue([new(1)]))
    sibling = engine.sibling()
    gone = weakref.ref(engine._store)
    at_once(engine.close())
    del engine
    assert len(at_once(sibling.search(Query())).records) == 1
    at_once(sibling.close())
    assert gone() is not None
    del sibling
    assert gone() is None


def test_a_lock_that_is_never_released_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BUSY_TIMEOUT", 0.01)
    engine = MemoryEngine()
    with engine._store.lock, pytest.raises(StoreBusy):
        at_once(engine.enqueue([new(1)]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_for_statements_under_way() -> None:
    """SQLite has locks of its own. A child that inherits one of them taken would wait for ever."""
    engine, stop = MemoryEngine(), threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 100
            asyncio.run(engine.enqueue([new(number + each) for each in range(100)]))

    busy = threading.Thread(target=work)
    busy.start()
    try:
        codes = [forked(engine) for _ in range(20)]
    finally:
        stop.set()
        busy.join()
    assert codes == [0] * 20
    assert isinstance(engine._store, MemoryStore)
    assert len(stored(engine)) > 0


def forked(engine: MemoryEngine) -> int:
    """Use an engine in a forked child; its exit code: 0 if it started empty and works."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(PATIENCE)
            engine.forget()
            at_once(engine.enqueue([new(1)]))
            code = 0 if stored(engine) == [new(1).id] else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
