"""Files that are removed, renamed or replaced under the processes that have them open."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dibs import Dibs
from dibs.engines.sqlite.files import PIN, StoreFiles
from dibs.errors import StoreUnavailable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="an open file can't be removed here")

PRODUCER = Path(__file__).with_name("sqlite_producer.py")
PATIENCE = 40.0
ENOUGH = 30

APP = """
import time
from pathlib import Path
from dibs import Dibs

app = Dibs("sqlite:///{path}")

@app.task(name="note")
def note(number: int) -> None:
    with Path("ran").open("a") as file:
        file.write(str(number) + "\\n")

@app.task(name="hold")
def hold() -> None:
    Path("held").touch()
    while not Path("let go").exists():
        time.sleep(0.01)
"""


class Producer:
    """A process that enqueues as fast as it goes, and what it has said so far."""

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PRODUCER), url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.lines: list[tuple[str, int, str]] = []
        self.said = threading.Condition()
        self.listening = threading.Thread(target=self.listen)
        self.listening.start()

    def listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                word, began, rest = line.rstrip("\n").split(" ", 2)
                with self.said:
                    self.lines.append((word, int(began), rest))
                    self.said.notify_all()

    def until(self, word: str, times: int = ENOUGH, since: int = 0) -> list[str]:
        """What it said of calls that began later than `since` and ended so, once there are enough of them."""
        with self.said:
            assert self.said.wait_for(lambda: len(self.told(word, since)) >= times, PATIENCE), self.lines[-3:]
            return self.told(word, since)

    def told(self, word: str, since: int = 0) -> list[str]:
        return [rest for each, began, rest in [*self.lines] if each == word and began > since]

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.listening.join(PATIENCE)


@contextmanager
def producing(path: Path) -> Iterator[Producer]:
    producer = Producer(f"sqlite:///{path}")
    try:
        yield producer
    finally:
        producer.end()


def beside(path: Path, *sides: str) -> list[Path]:
    return [path.with_name(path.name + side) for side in sides]


def remove(*sides: str) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        for each in beside(path, *sides):
            each.unlink()

    return act


def rename(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replace(path: Path) -> None:
    """By another store, which nobody has open."""
    other = path.with_name("other.db")
    with Dibs(f"sqlite:///{other}") as app:
        app.queues.list()
    other.replace(path)


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(remove(""), "x.db was removed or renamed while it was open", id="the file is removed"),
        pytest.param(rename, "x.db was removed or renamed", id="the file is renamed", marks=pytest.mark.soak),
        pytest.param(replace, "x.db was replaced by another file", id="the file is replaced"),
        pytest.param(remove("", "-wal", "-shm"), "x.db was removed or renamed", id="all three are removed"),
        pytest.param(remove_folder, "x.db was removed or renamed", id="the folder is removed", marks=pytest.mark.soak),
        pytest.param(
            remove("-wal"), "x.db-wal was removed or renamed", id="the log is removed", marks=pytest.mark.soak
        ),
        pytest.param(
            remove("-shm"),
            "was removed or renamed while the store was open",
            id="the index is removed",
            marks=pytest.mark.soak,
        ),
        pytest.param(remove("-wal", "-shm"), "x.db-wal was removed or renamed", id="log and index are removed"),
    ],
)
def test_nothing_is_acknowledged_once_the_files_are_gone(
    tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    """Two producers under load: no call that began afterwards is answered as if all were well."""
    path = tmp_path / "folder" / "x.db"
    path.parent.mkdir()
    with producing(path) as one, producing(path) as other:
        for each in (one, other):
            each.until("kept")
        damage(path)
        gone_at = time.time_ns()
        for each in (one, other):
            refused = each.until("refused", since=gone_at)
            assert all(said in why for why in refused), refused[0]
            assert each.told("kept", since=gone_at) == []
        other.end()
        assert other.process.returncode == 0
    kept = set(one.told("kept") + other.told("kept"))
    if damage in (rename, replace, remove_folder) or not path.exists():
        if path.parent.exists():
            assert_new_store_works(path)
    else:  # the last one to close has written the log back: nothing that was acknowledged is lost
        assert kept <= set(stored(path))


def stored(path: Path) -> list[str]:
    with Dibs(f"sqlite:///{path}") as app:
        return ids(app)


def ids(app: Dibs) -> list[str]:
    page = app.tasks.search(limit=1000)
    found = [task.id for task in page.tasks]
    while page.cursor is not None:
        page = app.tasks.search(limit=1000, cursor=page.cursor)
        found += [task.id for task in page.tasks]
    return found


def assert_new_store_works(path: Path) -> None:
    for each in beside(path, "", "-wal", "-shm"):
        each.unlink(missing_ok=True)
    with Dibs(f"sqlite:///{path}") as app:
        note = app.task(lambda number: None, name="note")
        task = note.enqueue(1)
        assert ids(app) == [task.id]


def test_work_goes_on_when_the_very_file_is_back(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with producing(path) as producer:
        producer.until("kept")
        path.rename(tmp_path / "elsewhere.db")
        gone_at = time.time_ns()
        producer.until("refused", since=gone_at)
        (tmp_path / "elsewhere.db").rename(path)
        producer.until("kept", since=time.time_ns())
    assert set(producer.told("kept")) <= set(stored(path))


def test_who_opens_the_store_anew_gets_the_new_file(tmp_path: Path) -> None:
    """In the same process too, where an app that lost its file is still open and stays without."""
    path = tmp_path / "x.db"
    url = f"sqlite:///{path}"
    with Dibs(url) as old:
        lost = old.task(lambda: None, name="work")
        lost.enqueue()
        path.unlink()
        with Dibs(url) as new:
            task = new.task(lambda: None, name="work").enqueue()
            with pytest.raises(StoreUnavailable, match="was replaced by another file"):
                lost.enqueue()
            with pytest.raises(StoreUnavailable, match="was replaced by another file"):
                old.tasks.search()
            assert ids(new) == [task.id]
        assert stored(path) == [task.id]
    assert stored(path) == [task.id]


def test_reading_and_a_transaction_of_ones_own_notice_too(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Dibs(f"sqlite:///{path}") as app, closing(sqlite3.connect(path)) as connection:
        work = app.task(lambda: None, name="work")
        task = work.enqueue()
        assert app.tasks.get(task.id).id == task.id
        connection.execute("BEGIN IMMEDIATE")
        path.unlink()
        with pytest.raises(StoreUnavailable, match="was removed"):
            work.using(connection=connection).enqueue()
        with pytest.raises(StoreUnavailable, match="was removed"):
            app.tasks.get(task.id)


def test_a_file_that_was_emptied(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with producing(path) as producer:
        producer.until("kept")
        os.truncate(path, 0)
        assert "was emptied while it was open" in producer.until("refused", 1)[0]


def test_others_who_come_and_go_are_no_alarm(tmp_path: Path) -> None:
    """The last engine that closes removes the log; no other does."""
    path = tmp_path / "x.db"
    with producing(path) as producer:
        producer.until("kept")
        with producing(path) as other:
            other.until("kept", 3)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.execute("VACUUM")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                connection.execute("PRAGMA journal_mode = DELETE")
        producer.until("kept", since=time.time_ns())
        assert producer.told("refused") == []


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`dibs worker` in `tmp_path`, with its log in a file there."""
    (tmp_path / "shop.py").write_text(APP.format(path=tmp_path / "x.db"))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dibs", "worker", "shop:app"], cwd=tmp_path, stdout=log, stderr=log
        )
    yield process
    process.kill()
    process.wait(PATIENCE)


def eventually(holds: Callable[[], bool], why: Callable[[], str]) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, why()
        time.sleep(0.02)


def test_a_worker_that_lost_its_file_says_so_and_settles_nothing_into_the_void(
    tmp_path: Path, worker: subprocess.Popen[bytes]
) -> None:
    path, log = tmp_path / "x.db", tmp_path / "log"
    with Dibs(f"sqlite:///{path}") as app:
        held = app.task(lambda: None, name="hold").enqueue()
        app.task(lambda number: None, name="note").enqueue(0)
        eventually(lambda: (tmp_path / "held").exists() and (tmp_path / "ran").exists(), log.read_text)
    for each in beside(path, "", "-wal", "-shm"):
        each.unlink()
    eventually(lambda: "The store does not answer" in log.read_text(), log.read_text)
    (line,) = [line for line in log.read_text().splitlines() if "does not answer" in line]
    assert "x.db was removed or renamed while it was open" in line
    assert "restore a backup, and start again" in line
    with Dibs(f"sqlite:///{path}") as app:  # another store, which the worker must not touch
        later = app.task(lambda number: None, name="note").enqueue(1)
        (tmp_path / "let go").touch()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) != 0
        assert "could not be delivered" in log.read_text()
        assert (tmp_path / "ran").read_text() == "0\n"
        assert [(task.id, str(task.state)) for task in app.tasks.search().tasks] == [(later.id, "pending")]
        assert held.id not in stored(path)
        started = subprocess.run(
            [sys.executable, "-m", "dibs", "worker", "shop:app", "--until-idle"],
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
        assert started.returncode == 0, started.stderr
        assert (tmp_path / "ran").read_text() == "0\n1\n"


@pytest.mark.skipif(PIN is None, reason="nothing is pinned here")
def test_no_descriptor_is_left_to_watch_a_file(tmp_path: Path) -> None:
    """It reaches the caller as one of Dibs's own errors."""
    path = tmp_path / "x.db"
    resource = pytest.importorskip("resource")
    path.write_bytes(b"not empty")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(StoreUnavailable, match="can't be watched: Too many open files"):
            StoreFiles(path).remember()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
