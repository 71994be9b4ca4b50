"""What a worker logs about the runs of its tasks, and which task every record inside one belongs to."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worker_support import drain, eventually

from dibs.attempt.log_filter import add_task_facts, trace_id_in
from dibs.client.app import Dibs
from dibs.core.states import State
from dibs.core.times import HOUR, SECOND
from dibs.engines.values import LostTask, Rescued
from dibs.errors import Permanent
from dibs.observe.logs import JsonLines, TextLines
from dibs.runtime.rescue import MOST_LINES, log_rescued
from dibs.testing import ManualClock
from dibs.worker import Worker, WorkerSettings

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
FACTS = ("task_id", "task_name", "queue", "attempt", "lease", "trace_id")


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in FACTS if hasattr(record, name)}


class Said(logging.Handler):
    """Keeps the records of a logger, as handlers get them."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def about(self, task_id: str) -> list[logging.LogRecord]:
        return [each for each in self.records if getattr(each, "task_id", None) == task_id]

    def lines(self, level: int) -> list[str]:
        return [each.getMessage() for each in self.records if each.levelno == level]


@pytest.fixture
def said() -> Iterator[Said]:
    """What reaches a handler of the root logger."""
    handler, root = Said(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


# What becomes of runs.


def test_a_failed_attempt_is_a_warning_of_one_line(app: Dibs, said: Said) -> None:
    @app.task(name="shop.mail", retries=1, retry_base=0.05)
    def mail() -> None:
        raise RuntimeError("the server says no\nand more")

    task = mail.using(headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}).enqueue()
    drain(app)
    failed, died = said.about(task.id)
    assert failed.levelno == logging.WARNING
    start = f"shop.mail {task.id} failed (attempt 1 of 2): RuntimeError: the server says no; again in "
    assert failed.getMessage().startswith(start)
    assert "\n" not in TextLines().format(failed)
    facts = {"task_id": task.id, "task_name": "shop.mail", "queue": "default", "trace_id": TRACE}
    assert facts_of(failed) == {**facts, "attempt": 1, "lease": 1}
    assert facts_of(died) == {**facts, "attempt": 2, "lease": 2}
    assert failed.error_type == "RuntimeError"  # type: ignore[attr-defined]


def test_a_death_is_an_error_with_the_traceback(app: Dibs, said: Said) -> None:
    @app.task(name="shop.mail", retries=0)
    def mail() -> None:
        raise RuntimeError("no")

    task = mail.enqueue()
    drain(app)
    (died,) = said.about(task.id)
    assert died.levelno == logging.ERROR
    line = f"shop.mail {task.id} is dead (attempt 1 of 1, no attempt is left): RuntimeError: no"
    assert died.getMessage() == line
    first, *below = logging.Formatter("%(message)s").format(died).splitlines()
    assert first == line
    assert below[0] == "Traceback (most recent call last):"
    assert below[-1] == "RuntimeError: no"
    as_json = json.loads(JsonLines().format(died))
    assert as_json["message"] == line
    assert as_json["traceback"].endswith("RuntimeError: no\n")


def test_what_is_not_to_be_retried_says_so(app: Dibs, said: Said) -> None:
    @app.task(name="gives_up", retries=5)
    async def gives_up() -> None:
        raise Permanent("never")

    task = gives_up.enqueue()
    drain(app)
    (died,) = said.about(task.id)
    assert died.levelno == logging.ERROR
    assert "(attempt 1 of 6, not to be retried): dibs.errors.Permanent: never" in died.getMessage()


def test_a_timeout_says_so(app: Dibs, said: Said) -> None:
    @app.task(name="slow", retries=1, timeout=0.02)
    async def slow() -> None:
        await asyncio.Event().wait()

    task = slow.enqueue()
    drain(app)
    late, died = said.about(task.id)
    assert (late.levelno, died.levelno) == (logging.WARNING, logging.ERROR)
    words = "timed out (attempt 1 of 2): the run took longer than its timeout of 0.02 s; again at once."
    assert late.getMessage() == f"slow {task.id} {words}"
    assert "timed out and is dead (attempt 2 of 2, no attempt is left)" in died.getMessage()


def test_a_cancelled_run_is_told(app: Dibs, said: Said) -> None:
    started = threading.Event()

    @app.task(name="endless")
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    task = endless.enqueue()
    with app.worker() as worker:
        assert started.wait(20)
        app.tasks.cancel(task.id, reason="no longer needed")
        app.wait([task], timeout=20)
        eventually(lambda: len(said.about(task.id)) == 2)
    assert [(record.levelno, record.getMessage()) for record in said.about(task.id)] == [
        (logging.INFO, f"endless {task.id} is asked to stop: no longer needed."),
        (logging.INFO, f"endless {task.id} was cancelled: no longer needed."),
    ]
    assert {record.__dict__["worker"] for record in said.about(task.id)} == {worker.id}


def test_a_run_that_is_handed_back_is_told(app: Dibs, said: Said) -> None:
    started = threading.Event()

    @app.task(name="endless")
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    task = endless.enqueue()
    worker = app.worker().start()
    assert started.wait(20)
    worker.stop(timeout=0)
    (record,) = said.about(task.id)
    assert (record.levelno, record.getMessage()) == (
        logging.INFO,
        f"endless {task.id} was handed back: the worker is leaving.",
    )


def test_completed_runs_are_logged_at_debug_only(app: Dibs, said: Said) -> None:
    @app.task(name="fine")
    def fine() -> None: ...

    quiet = fine.enqueue()
    drain(app)
    assert said.about(quiet.id) == []
    logging.getLogger().setLevel(logging.DEBUG)
    task = fine.enqueue()
    drain(app)
    starts, ends = said.about(task.id)
    assert (starts.levelno, ends.levelno) == (logging.DEBUG, logging.DEBUG)
    assert starts.getMessage() == f"fine {task.id} starts (attempt 1 of 4)."
    assert ends.getMessage().startswith(f"fine {task.id} completed in ")
    assert 0 <= ends.duration < 20  # type: ignore[attr-defined]


def test_a_death_in_a_child_process_is_told_by_the_worker(said: Said) -> None:
    import process_app

    task = process_app.raises.enqueue("key")
    worker = Worker(process_app.app.hub, WorkerSettings(until_idle=True), "process_app:app").start()
    worker.wait(20)
    (record,) = said.about(task.id)
    assert record.levelno == logging.ERROR
    assert "process_app.py" in record.traceback  # type: ignore[attr-defined]


# What is taken back.


def test_what_is_taken_back_and_who_is_dead_is_a_warning(said: Said) -> None:
    clock = ManualClock()
    app = Dibs("memory://", clock=clock)

    @app.task(name="work")
    def work() -> None: ...

    task = work.enqueue()
    [claimed] = app.claim()
    clock.advance(HOUR / SECOND)
    app.claim()
    (record,) = said.about(task.id)
    assert record.levelno == logging.WARNING
    words = "which stopped without settling it (loss 1): again at once."
    assert record.getMessage() == f"work {task.id} was taken back from worker {record.worker}, {words}"  # type: ignore[attr-defined]
    assert record.lease == claimed.lease.number  # type: ignore[attr-defined]
    app.close()


def test_at_most_ten_lines_and_the_dead_come_first(said: Said) -> None:
    def lost(number: int, state: State) -> LostTask:
        return LostTask(
            id=f"{number}", name="n", queue="q", worker="w", lease=1, losses=2, state=state, due_in=4_200_000
        )

    tasks = [lost(number, State.RETRYING) for number in range(25)] + [lost(25, State.DEAD)]
    log_rescued(Rescued(tasks, [f"w{number}" for number in range(12)]))
    (dead,) = said.lines(logging.ERROR)
    assert dead == "n 25 was taken back from worker w, which stopped without settling it (loss 2): it is dead."
    warnings = said.lines(logging.WARNING)
    assert warnings[0] == "Worker w0 is dead: it gives no sign of life."
    assert warnings[MOST_LINES] == "And 2 more workers are dead."
    assert warnings[-2].endswith("again in 4.2 s.")
    assert warnings[-1] == "And 16 more tasks were taken back."
    assert len(warnings) == 2 * MOST_LINES + 1
    assert len(said.records) == 2 * MOST_LINES + 2


# Records inside a task.


def test_every_record_inside_a_task_says_which(app: Dibs, said: Said) -> None:
    log = logging.getLogger("shop.somewhere.deep")

    async def nested() -> None:
        log.info("nested")

    @app.task(name="in_thread")
    def in_thread() -> None:
        log.info("thread")

    @app.task(name="on_loop")
    async def on_loop() -> None:
        log.info("loop")
        await asyncio.create_task(nested())
        await asyncio.to_thread(log.info, "to_thread")

    trace = {"trace_id": "abc"}
    first = in_thread.using(headers=trace, queue="mail").enqueue()
    second = on_loop.using(headers=trace).enqueue()
    drain(app, queues=("mail", "default"))
    inside = {each.getMessage(): facts_of(each) for each in said.records if each.name == log.name}
    common = {"attempt": 1, "trace_id": "abc"}
    in_loop = {"task_id": second.id, "task_name": "on_loop", "queue": "default", **common}
    assert inside == {
        "thread": {"task_id": first.id, "task_name": "in_thread", "queue": "mail", **common},
        **dict.fromkeys(("loop", "nested", "to_thread"), in_loop),
    }


def test_what_a_record_has_stays(app: Dibs, said: Said) -> None:
    @app.task
    def with_extra() -> None:
        logging.getLogger("shop").info("sold", extra={"queue": "at the till", "price": 3})

    with_extra.enqueue()
    drain(app)
    (record,) = [each for each in said.records if each.name == "shop"]
    assert (record.queue, record.price, record.attempt) == ("at the till", 3, 1)  # type: ignore[attr-defined]


def test_records_outside_of_tasks_get_nothing(app: Dibs, said: Said) -> None:
    with app.worker():
        logging.getLogger("shop").info("outside")
    (record,) = [each for each in said.records if each.name == "shop"]
    assert facts_of(record) == {}


def test_the_facts_are_added_once(said: Said) -> None:
    child = logging.getLogger("shop.with_handler")
    own = Said()
    child.addHandler(own)
    try:
        add_task_facts()
        add_task_facts()
        assert (len(said.filters), len(own.filters)) == (1, 1)
    finally:
        child.removeHandler(own)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, None),
        ({"trace_id": "x"}, "x"),
        ({"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "trace_id": "x"}, TRACE),
        ({"traceparent": "nonsense", "trace_id": "x"}, "x"),
        ({"traceparent": "nonsense"}, None),
    ],
)
def test_the_trace_of_a_task(headers: dict[str, str], found: str | None) -> None:
    assert trace_id_in(headers) == found


# Lines.


def record_with(message: str = "sold", **extra: Any) -> logging.LogRecord:
    return logging.getLogger("shop").makeRecord("shop", logging.INFO, "f.py", 1, message, (), None, extra=extra)


def test_text_has_the_logger_and_the_task() -> None:
    task = {"task_id": "01a1e471-087e-7abc-8000-000000000001", "task_name": "shop.mail", "attempt": 2}
    assert TextLines().format(record_with()).endswith(" INFO    shop: sold")
    assert (
        TextLines()
        .format(record_with(**task))
        .endswith(" shop: sold [shop.mail 01a1e471-087e-7abc-8000-000000000001, attempt 2]")
    )
    already = f"{task['task_id']} is sold"
    assert TextLines().format(record_with(already, **task)).endswith(already)


def test_json_has_what_the_user_added() -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError

    endless: list[Any] = []
    endless.append(endless)
    extra = {"price": 3, "at": Path("/x"), "level": "high", "endless": endless, "odd": Odd(), "half": "\ud800"}
    line = json.loads(JsonLines().format(record_with("caf\ud800é", **extra)))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "shop",
        "message": "caf?é",
        "price": 3,
        "at": "/x",
        "extra_level": "high",
        "endless": "[[...]]",
        "odd": "(it can't be shown: __str__ raised)",
        "half": "?",
    }


def test_json_has_tracebacks() -> None:
    try:
        raise LookupError("gone")
    except LookupError as error:
        record = record_with()
        record.exc_info = (LookupError, error, error.__traceback__)
    assert json.loads(JsonLines().format(record))["traceback"].endswith("LookupError: gone")


# The worker itself.


def test_the_first_line_says_who_serves_what_from_where(said: Said, tmp_path: Path) -> None:
    from dibs.version import __version__

    with Dibs(f"sqlite:///{tmp_path}/tasks.db") as app:

        @app.task(queue="mail")
        def send() -> None: ...

        with app.worker(name="w", concurrency=3):
            pass
    assert said.lines(logging.INFO)[0] == (
        f"Dibs {__version__}: worker w serves mail from sqlite:///{tmp_path}/tasks.db; concurrency 3, tasks known: 1."
    )


def test_a_queue_that_no_task_uses_is_a_warning(app: Dibs, said: Said) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    with app.worker(queues=("mial",)):
        pass
    assert said.lines(logging.WARNING) == ["No task of this app has the queue 'mial' by default. Did you mean 'mail'?"]


def test_a_task_that_blocks_the_loop_from_the_start_is_named(app: Dibs, said: Said) -> None:
    named = threading.Event()

    class Hears(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            if "has blocked the event loop" in record.getMessage():
                named.set()
            return True

    said.addFilter(Hears())

    @app.task(name="blocks")
    async def blocks() -> bool:
        return named.wait(8)  # the heartbeat would look by itself after 10 s

    task = blocks.enqueue()
    drain(app)
    assert task.result(timeout=20) is True
    (record,) = [each for each in said.about(task.id) if each.levelno == logging.WARNING]
    assert record.getMessage().startswith(f"blocks {task.id} has blocked the event loop for ")


# Figures in the store.


def test_the_stores_figures_about_a_worker_are_current(app: Dibs) -> None:
    go_on, started = threading.Event(), threading.Event()

    @app.task
    def works() -> None:
        started.set()
        assert go_on.wait(20)

    def busy() -> list[int]:
        return [each.running for each in app.workers.list()]

    for _ in range(3):
        works.enqueue()
    with app.worker(concurrency=2):
        assert started.wait(20)
        eventually(lambda: busy() == [2], patience=5)
        go_on.set()
        eventually(lambda: busy() == [0], patience=5)
        eventually(lambda: app.stats().completed == 3, patience=5)


def test_what_is_leased_but_not_started_is_told_apart(app: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.worker.fetcher.STALE", 60.0)  # the buffer is not handed back
    go_on = threading.Event()

    @app.task
    def quick() -> None: ...

    @app.task
    def works() -> None:
        assert go_on.wait(20)

    with app.worker(concurrency=1):
        app.wait([quick.enqueue() for _ in range(20)], timeout=20)  # so that it prefetches
        app.enqueue_many([works.call() for _ in range(5)])
        eventually(lambda: [(each.running, each.buffered) for each in app.workers.list()] == [(1, 4)], patience=5)
        go_on.set()


def test_a_worker_that_does_nothing_sends_nothing_extra(app: Dibs) -> None:
    @app.task
    def works() -> None: ...

    with app.worker() as worker:
        app.wait([works.enqueue()], timeout=20)
        assert worker._session is not None
        heartbeat = worker._session._heartbeat
        eventually(lambda: heartbeat._resting and not heartbeat._has_changed(), patience=5)
        assert heartbeat._until_next() > 5


def test_a_record_that_can_not_be_formatted_is_one_line_of_json() -> None:
    line = json.loads(JsonLines().format(logging.makeLogRecord({"msg": "%d", "args": ("x",), "name": "shop"})))
    assert line["message"] == "%d (its arguments can't be shown)"


def test_a_handler_that_raises_costs_no_figures(app: Dibs) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                raise RuntimeError("the handler broke")

    @app.task(name="fails", retries=0)
    def fails() -> None:
        raise ValueError("no")

    for _ in range(20):
        fails.enqueue()
    handler, logger = Broken(), logging.getLogger("dibs.worker")
    logger.addHandler(handler)
    try:
        worker = app.worker(until_idle=True)
        with worker:
            report = worker.wait(30)
    finally:
        logger.removeHandler(handler)
    assert report is not None
    assert (report.stats.executed, report.stats.failed, report.stats.dead) == (20, 20, 20)
