"""Blobs in a directory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from blob_support import PATIENCE, DirectoryPlace

from dibs.blobs import open_blobs
from dibs.blobs.directory import ABANDONED, INCOMING
from dibs.errors import BlobLost, BlobStoreUnavailable, InvalidOption


def test_nothing_is_made_before_the_first_blob(directory: DirectoryPlace) -> None:
    assert directory.store.list() == []
    assert not directory.root.parent.exists()
    directory.store.put("a/b", b"x")
    assert (directory.root / "a" / "b").read_bytes() == b"x"


def test_nobody_else_may_read_them(directory: DirectoryPlace) -> None:
    directory.store.put("a/b", b"x")
    assert (directory.root / "a" / "b").stat().st_mode & 0o777 == 0o600
    for made in (directory.root, directory.root / "a", directory.root / INCOMING):
        assert made.stat().st_mode & 0o777 == 0o700


def test_deleting_takes_empty_directories_along(directory: DirectoryPlace) -> None:
    directory.store.put("day/task/args", b"x")
    directory.store.put("day/other/args", b"x")
    directory.store.delete(["day/task/args"])
    assert sorted(path.name for path in (directory.root / "day").iterdir()) == ["other"]
    directory.store.delete(["day/other/args"])
    assert [path.name for path in directory.root.iterdir()] == [INCOMING]


@pytest.mark.parametrize(
    "key", ["../secret", "a/../../secret", "/etc/passwd", ".hidden", "a//b", "a/.b", "", "a/", "a b"]
)
def test_no_key_leads_out_of_it(directory: DirectoryPlace, key: str) -> None:
    directory.store.put("a/b", b"x")
    (directory.root.parent / "secret").write_text("secret")
    with pytest.raises(BlobLost, match="no blob can be called"):
        directory.store.get(key)
    with pytest.raises(InvalidOption, match="a blob can't be called"):
        directory.store.put(key, b"x")
    directory.store.delete([key])
    assert (directory.root.parent / "secret").read_text() == "secret"


def test_one_that_is_not_mounted_has_lost_nothing(directory: DirectoryPlace) -> None:
    directory.store.put("a/b", b"x")
    directory.take_away()
    with pytest.raises(BlobStoreUnavailable, match="is it mounted"):
        directory.store.get("a/b")
    directory.root.mkdir()  # the empty mount point
    with pytest.raises(BlobStoreUnavailable, match="is it mounted"):
        directory.store.get("a/b")
    directory.root.rmdir()
    directory.bring_back()
    assert directory.store.get("a/b") == b"x"


def test_one_that_can_not_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BlobStoreUnavailable, match=r"can't write to the blob directory .*file.*exists.*writable"):
        open_blobs(str(tmp_path / "file")).put("a/b", b"x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_one_that_may_not_be_written_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BlobStoreUnavailable, match="Permission denied"):
        open_blobs(str(tmp_path / "blobs")).put("a/b", b"x")
    tmp_path.chmod(0o700)


def test_what_a_dead_writer_left_is_tidied_away(directory: DirectoryPlace) -> None:
    directory.store.put("a/b", b"x")
    left, busy = directory.root / INCOMING / "left", directory.root / INCOMING / "busy"
    left.write_bytes(b"half")
    busy.write_bytes(b"half")
    then = time.time() - ABANDONED - 60
    os.utime(left, (then, then))
    assert directory.listed() == ["a/b"]
    assert not left.exists()
    assert busy.exists()


WRITER = """
import sys
from dibs.blobs import open_blobs
store = open_blobs(sys.argv[1])
for turn in range(40):
    store.put("day/task/args", sys.argv[2].encode() * 50_000)
    store.delete([f"day/task/args-{turn}", "day/other/x"])
"""


def test_processes_that_write_the_same_key_never_mix(directory: DirectoryPlace) -> None:
    directory.store.put("day/task/args", b"0" * 50_000)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, directory.url, letter]) for letter in "12"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        data = directory.store.get("day/task/args")
        assert len(data) == 50_000
        assert len(set(data)) == 1
        seen.add(data[:1])
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0]
    assert seen <= {b"0", b"1", b"2"}
    assert list((directory.root / INCOMING).iterdir()) == []


def test_a_directory_that_somebody_removes_meanwhile_is_made_again(directory: DirectoryPlace) -> None:
    done = threading.Event()

    def remove() -> None:
        while not done.wait(0.0005):  # one that never rests would be at it between any two steps of ours
            directory.store.delete(["day/task/other"])

    remover = threading.Thread(target=remove)
    remover.start()
    for number in range(60):
        directory.store.put("day/task/mine", str(number).encode())
        assert directory.store.get("day/task/mine") == str(number).encode()
        directory.store.delete(["day/task/mine"])
    done.set()
    remover.join(PATIENCE)
