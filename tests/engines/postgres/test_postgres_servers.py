"""The servers that tests start end with the tests, however those end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

TESTS = Path(__file__).parents[2]
PATIENCE = 30.0
PROGRAM = """
import sys, threading
from servers.postgres import server
found = server()
print(found.folder, (found.data / "postmaster.pid").read_text().split()[0], flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_test_run_leaves_nothing(number: signal.Signals) -> None:
    tests = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=TESTS, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert tests.stdout is not None
    folder, server = tests.stdout.readline().split()
    assert psutil.pid_exists(int(server))
    assert Path(folder).exists()
    tests.send_signal(number)
    tests.wait(PATIENCE)
    tests.stdout.close()
    until, pause = time.monotonic() + PATIENCE, threading.Event()
    while psutil.pid_exists(int(server)) or Path(folder).exists():
        assert time.monotonic() < until, "a server was left behind"
        pause.wait(0.02)
