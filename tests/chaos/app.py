"""The tasks of a run. Each says in the journal when it starts and ends, and under which lease.

What a task returns names the lease it ran under, so that an outcome recorded for another lease shows.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos import planted
from chaos.clocks import Clocks
from chaos.journal import Journal
from chaos.limits import BURST, DOOMED_RETRIES, MAX_CONCURRENT, RATE
from dibs import Context, Dibs

FOLDER = Path(os.environ["CHAOS_FOLDER"])
WORKER = os.environ.get("CHAOS_WHO", "control")
LEASE = float(os.environ["CHAOS_LEASE"])
PR_SET_PDEATHSIG = 1

journal = Journal(FOLDER, WORKER)
clocks = Clocks(FOLDER / "clock")
clocks.install()
planted.plant(os.environ.get("CHAOS_PLANT", ""))

app = Dibs(os.environ["CHAOS_URL"], lease=LEASE, retries=20, retry_base=0.1, retry_cap=1)


def die_with_parent() -> None:
    """Nobody stays behind when the run itself is killed, where the system can see to that."""
    if sys.platform == "linux" and os.environ.get("CHAOS_PARENT") == str(os.getppid()):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


die_with_parent()


class Wanted(Exception):
    """A failure that its producer asked for."""


@contextmanager
def noted(ctx: Context) -> Iterator[None]:
    """Around the body of a task: its start and its end in the journal."""
    journal.write("start", task=ctx.id, lease=ctx.lease, name=ctx.name)
    ended = "cut short"
    try:
        yield
        ended = "done"
    except Wanted:
        ended = "failed"
        raise
    finally:
        journal.write("end", task=ctx.id, lease=ctx.lease, name=ctx.name, how=ended)


async def act(ctx: Context, seconds: float, fails: int) -> int:
    with noted(ctx):
        await asyncio.sleep(seconds)
        if ctx.attempt <= fails:
            raise Wanted(f"attempt {ctx.attempt} of {fails} that fail")
    return ctx.lease


def act_in_thread(ctx: Context, seconds: float, fails: int) -> int:
    with noted(ctx):
        threading.Event().wait(seconds)
        if ctx.attempt <= fails:
            raise Wanted(f"attempt {ctx.attempt} of {fails} that fail")
    return ctx.lease


@app.task(queue="work", name="work")
async def work(ctx: Context, seconds: float, fails: int = 0) -> int:
    return await act(ctx, seconds, fails)


@app.task(queue="work", name="threaded")
def threaded(ctx: Context, seconds: float, fails: int = 0) -> int:
    return act_in_thread(ctx, seconds, fails)


@app.task(queue="work", name="apart", executor="process")
def apart(ctx: Context, seconds: float, fails: int = 0) -> int:
    return act_in_thread(ctx, seconds, fails)


@app.task(queue="work", name="doomed", retries=DOOMED_RETRIES)
async def doomed(ctx: Context, seconds: float) -> int:
    return await act(ctx, seconds, fails=1000)


@app.task(queue="limited", name="limited", per="customer")
async def limited(ctx: Context, customer: str, seconds: float) -> int:
    return await act(ctx, seconds, 0)


@app.task(queue="paced", name="paced")
async def paced(ctx: Context) -> int:
    return await act(ctx, 0.01, 0)


@app.task(queue="ordered", name="ordered")
async def ordered(ctx: Context, seconds: float) -> int:
    return await act(ctx, seconds, 0)


@app.task(queue="probe", name="probe", priority="critical")
async def probe(ctx: Context) -> int:
    return await act(ctx, 0, 0)


@app.task(queue="flows", name="member")
async def member(ctx: Context, seconds: float, fails: int = 0) -> int:
    return await act(ctx, seconds, fails)


@app.task(queue="flows", name="joined")
async def joined(ctx: Context, leases: list[int]) -> int:
    return await act(ctx, 0, 0)


@app.schedule(every=1, name="tick", catch_up="all", catch_up_limit=1000)
@app.task(queue="flows", name="tick")
async def tick(ctx: Context) -> int:
    return await act(ctx, 0, 0)


def set_up() -> None:
    """The queues' settings, before anybody begins."""
    app.queues.set("limited", per_partition=1, max_concurrent=MAX_CONCURRENT)
    app.queues.set("paced", rate=RATE, burst=BURST)
    app.queues.set("ordered", policy="strict")
    for queue in ("work", "flows", "probe"):
        app.queues.set(queue, policy="aging")
