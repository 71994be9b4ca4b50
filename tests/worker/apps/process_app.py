"""Tasks for executor processes. The app is made by the test; a child finds it by importing this module."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dibs.attempt.middleware import Next
from dibs.client.app import Dibs
from dibs.errors import Permanent, Retry
from dibs.worker import Context

app = Dibs("memory://", retry_base=0)
MIB = 1024 * 1024


@asynccontextmanager
async def lifespan() -> AsyncIterator[dict[str, int]]:
    yield {"pid": os.getpid()}


async def brackets(ctx: Context, call: Next) -> Any:
    result = await call()
    return [result] if ctx.name.endswith("bracketed") else result


app.hub.lifespan = lifespan
app.hub.middleware.append(brackets)


@app.task(executor="process")
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task(executor="process")
async def pid_and_state(ctx: Context) -> tuple[int, int, int]:
    return os.getpid(), ctx.state["pid"], ctx.attempt


@app.task(executor="process")
def bracketed() -> Any:
    return "inside"


@app.task(executor="process", retries=0)
def raises(kind: str) -> None:
    if kind == "permanent":
        raise Permanent("never")
    if kind == "exit":
        sys.exit(7)
    raise LookupError(kind)


@app.task(executor="process", retries=3, no_retry=[KeyError])
def refuses() -> None:
    raise KeyError("no")


@app.task(executor="process", retries=1)
def asks(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise Retry(after=0)
    return ctx.attempt


@app.task(executor="process")
def odd_result() -> Any:
    return object()


@app.task(executor="process", retries=0)
def dies(how: str) -> None:
    if how == "exit":
        os._exit(11)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    ctypes.string_at(0)


@app.task(executor="process", memory_limit=200 * MIB, retries=0)
def grows(megabytes: int) -> int:
    return len(bytearray(megabytes * MIB)) // MIB


class OddError(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


@app.task(executor="process", memory_limit=200 * MIB, retries=0)
def fails_oddly() -> None:
    raise OddError


@app.task(executor="process")
def sleeps(ctx: Context, file: str) -> None:
    """Says who it is, with a child of its own, and never ends."""
    ctx.progress(0.5, "asleep")
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(f"{file}.part").write_text(f"{os.getpid()} {grandchild.pid}")
    Path(f"{file}.part").rename(file)
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    sleeps.enqueue(sys.argv[1])
    app.worker().start().wait()
