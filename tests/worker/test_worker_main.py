"""Worker processes and how they end when the code is wrong, or changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from worker_support import PATIENCE, eventually, record_of

from dibs.client.app import Dibs
from dibs.errors import UsageError
from dibs.worker import Context, ExitCode
from dibs.worker.supervisor import reload, supervise

PROGRAM = """
import pathlib, signal, sys
target = pathlib.Path(sys.argv[1])
part = target.with_suffix(".part")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
part.write_text("VERSION")
part.rename(target)
signal.pause()
"""


def test_a_child_that_was_called_wrongly_is_not_started_again() -> None:
    command = [sys.executable, "-c", f"import sys; sys.exit({ExitCode.USAGE:d})"]
    assert supervise(command, 2) == ExitCode.USAGE


def test_children_that_end_by_themselves_end_the_supervisor() -> None:
    assert supervise([sys.executable, "-c", "pass"], 3) == 0


def test_a_child_that_fails_is_started_again(tmp_path: Path) -> None:
    code = f"import pathlib, sys; p = pathlib.Path({str(tmp_path / 'ran')!r}); seen = p.exists(); p.touch(); "
    assert supervise([sys.executable, "-c", code + "sys.exit(0 if seen else 1)"], 1) == 0


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_reload_starts_again_when_code_changes(tmp_path: Path) -> None:
    program, said = tmp_path / "code" / "program.py", tmp_path / "said"
    program.parent.mkdir()
    program.write_text(PROGRAM.replace("VERSION", "one"))
    command = [sys.executable, str(program), str(said)]
    script = (
        "import logging; from dibs.worker.supervisor import reload; logging.basicConfig(level='INFO'); "
        f"raise SystemExit(reload({command!r}, [{str(program.parent)!r}]))"
    )
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", script], stderr=file)
    try:
        eventually(lambda: said.exists() and said.read_text() == "one")

        def changed() -> bool:
            # Written until it is noticed: the watcher may not be looking yet.
            program.write_text(PROGRAM.replace("VERSION", "two"))
            return said.read_text() == "two"

        eventually(changed)
        process.send_signal(signal.SIGTERM)
        # A child that has just been started again may not listen yet, and dies of the signal.
        assert process.wait(timeout=PATIENCE) in (0, 128 + signal.SIGTERM)
        assert "program.py changed; starting again." in log.read_text()
        assert "detected" not in log.read_text(), "what watchfiles counts is no news"
    finally:
        process.kill()
        process.wait()


def test_reload_without_watchfiles_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(UsageError, match="pip install"):
        reload(["true"], ["."])


def test_extend_asks_for_a_longer_lease(app: Dibs) -> None:
    asked, go_on = threading.Event(), threading.Event()

    @app.task(lease=5)
    def work(ctx: Context) -> None:
        ctx.extend(600)
        asked.set()
        go_on.wait(PATIENCE)

    handle = work.enqueue()
    with app.worker():
        assert asked.wait(PATIENCE)

        def kept() -> bool:
            record = record_of(app, handle.id)
            return bool(record.lease_expires_at - record.started_at > 500 * 10**6)

        eventually(kept)
        go_on.set()
        handle.result(timeout=PATIENCE)
