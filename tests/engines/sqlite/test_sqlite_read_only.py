"""Stores that can be read but not written: on a read-only mount, or without the right to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dibs import Dibs
from dibs.core.states import State
from dibs.errors import StoreUnavailable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX rights")

SCRIPT = Path(__file__).with_name("sqlite_reader.py")
MOUNT = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
WRITE = """
import sys
from dibs import Dibs
with Dibs(sys.argv[1]) as app:
    app.task(lambda: None, name="work").enqueue()
"""
POWERLESS = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
"""Root without its power to write everything."""


def works(command: list[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


def can_mount() -> bool:
    return os.geteuid() == 0 and works(
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /mnt && exec "$@"', "sh"]
    )


@contextmanager
def mounted(folder: Path) -> Iterator[list[str]]:
    """Through which to start a process that sees the folder as a read-only mount."""
    if not can_mount():
        pytest.skip("needs root, and the right to mount")
    yield ["unshare", "--mount", "sh", "-c", MOUNT, "mount", str(folder)]


@contextmanager
def without_rights(folder: Path) -> Iterator[list[str]]:
    """Through which to start a process that may only read the folder and what is in it."""
    before = POWERLESS if os.geteuid() == 0 else []
    if before and not works(before):
        pytest.skip("root may write everything, and there is no setpriv")
    files = [*folder.iterdir()]
    for each in files:
        each.chmod(0o444 if each.is_file() else 0o555)
    folder.chmod(0o555)
    try:
        yield before
    finally:
        folder.chmod(0o755)


def seen(through: list[str], path: Path) -> Any:
    done = subprocess.run(
        [*through, sys.executable, str(SCRIPT), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "x.db"


def three(app: Dibs) -> list[str]:
    work = app.task(lambda: None, name="work")
    return [work.enqueue().id for _ in range(3)]


def assert_readable(told: Any, ids: list[str], path: Path) -> None:
    assert told["found"] == told["still"] == sorted(ids)
    assert "no worker serves" in told["why"].lower()
    assert told["refused"].startswith("StoreUnavailable: ")
    assert "is read-only. Nothing was written" in told["refused"]
    assert told["list"][0] == 0
    assert all(each in told["list"][1] for each in ids)
    assert told["show"][0] == 0
    assert "pending" in told["show"][1]
    assert told["doctor"][0] == 0, told["doctor"]
    assert "read-only: the file, or the directory it is in, can't be written" in told["doctor"][1]


@pytest.mark.parametrize("place", [mounted, without_rights])
def test_a_store_that_nobody_has_open_can_be_read(path: Path, place: Callable[[Path], Any]) -> None:
    with Dibs(f"sqlite:///{path}") as app:
        ids = three(app)
    with place(path.parent) as through:
        told = seen(through, path)
    assert_readable(told, ids, path)
    assert told["beside"] == ["x.db", "x.db-presence"]


@pytest.mark.parametrize("place", [mounted, pytest.param(without_rights, marks=pytest.mark.soak)])
def test_a_store_that_others_write_to_can_be_read(path: Path, place: Callable[[Path], Any]) -> None:
    with Dibs(f"sqlite:///{path}") as app:
        ids = three(app)
        with place(path.parent) as through:
            assert_readable(seen(through, path), ids, path)


def test_a_log_that_was_left_behind_is_not_passed_over(path: Path, tmp_path: Path) -> None:
    """Without its index SQLite can't read it there: better no answer than one that lacks the newest tasks."""
    with Dibs(f"sqlite:///{tmp_path}/y.db") as app:
        app.task(lambda: None, name="work").enqueue()
        for side in ("", "-wal"):
            shutil.copy(tmp_path / f"y.db{side}", path.with_name(path.name + side))
    with without_rights(path.parent) as through:
        done = subprocess.run(
            [*through, sys.executable, str(SCRIPT), str(path)], capture_output=True, text=True, check=False
        )
    assert "its newest part is in x.db-wal" in done.stdout + done.stderr


def test_a_resting_store_that_is_written_to_between_reads_is_read_anew(path: Path) -> None:
    """Read without locks, so each read looks whether the store was still at rest when it was over."""
    with Dibs(f"sqlite:///{path}") as app:
        first = app.task(lambda: None, name="work").enqueue()
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("root may write everything")
    with Dibs(f"sqlite:///{path}") as reader:
        assert reader.queues.get("default").counts[State.PENDING] == 1
        with pytest.raises(StoreUnavailable, match="read-only"):
            reader.tasks.cancel(first.id)
        path.chmod(0o644)
        subprocess.run([sys.executable, "-c", WRITE, f"sqlite:///{path}"], check=True)
        assert reader.queues.get("default").counts[State.PENDING] == 2
        reader.tasks.cancel(first.id)  # it can be written again
        assert reader.queues.get("default").counts[State.PENDING] == 1
