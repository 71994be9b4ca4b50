"""What does `dibs serve` take? Submits/s and latency on each store, against a bare answer and the engine's own rates.

Needs wrk (Debian: `apt-get install wrk`) and an environment with `pip install -e '.[server,http,postgres,redis,dev]'`:

    PYTHONPATH=tests python bench/http_server.py            # SQLite, PostgreSQL, Redis; about three minutes
    PYTHONPATH=tests python bench/http_server.py --only sqlite --seconds 3

Loads: `hello` is GET /health; `submit` is POST /api/v1/tasks, one durable task a request; `bulk` is POST
/api/v1/tasks/batch with 1,000 tasks a request; `engine bulk` is the same without HTTP. `remote` is a worker of this
library over HTTP that drains no-op tasks. All on one machine, load generator included: compare within a run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from dibs import Dibs
from dibs.core.task import NewTask
from dibs.runtime.ids import IdMaker
from servers import postgres, redis

TASK = '{"task_type":"mail.send","priority":50,"parameters":{"to":"x@example.com","n":17},"timeout_seconds":30}'
LUA = """
wrk.method, wrk.path = os.getenv("METHOD"), os.getenv("ROUTE")
if wrk.method == "POST" then
  wrk.headers["Content-Type"] = "application/json"
  wrk.body = os.getenv("BODY")
  local many = tonumber(os.getenv("MANY"))
  if many > 1 then
    local parts = {}
    for i = 1, many do parts[i] = wrk.body end
    wrk.body = '{"tasks":[' .. table.concat(parts, ",") .. ']}'
  end
end
function done(s, latency)
  local e = s.errors
  io.write(string.format('JSON{"rate":%.1f,"p50":%.2f,"p95":%.2f,"p99":%.2f,"errors":%d}\\n',
    s.requests / s.duration * 1e6, latency:percentile(50) / 1000, latency:percentile(95) / 1000,
    latency:percentile(99) / 1000, e.connect + e.read + e.write + e.status + e.timeout))
end
"""
BULK = 1000


def stores(folder: Path) -> dict[str, str]:
    return {
        "sqlite": f"sqlite:///{folder}/tasks.db",
        "postgres": postgres.new_url(),
        "redis": f"{redis.server().url}?prefix=bench{os.getpid()}",
    }


@contextmanager
def served(url: str) -> Iterator[str]:
    """A server process on a store, and its address."""
    command = [sys.executable, "-m", "dibs", "serve", "--url", url, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"at (http://\S+)", line):
                break
        else:
            raise SystemExit("The server did not start.")
        yield found[1]
    finally:
        process.terminate()
        process.wait(30)


def wrk(
    address: str, seconds: float, script: Path, method: str, route: str, many: int = 1, connections: int = 64
) -> dict:
    given = {**os.environ, "METHOD": method, "ROUTE": route, "BODY": TASK, "MANY": str(many)}
    command = ["wrk", "-t2", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(script), address]
    found = subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout
    return json.loads(found.rpartition("JSON")[2])


def engine_bulk(url: str, seconds: float) -> float:
    """Tasks/s of the engine alone, 1,000 a call, through the same client code."""
    new_id = IdMaker()

    async def run() -> float:
        app = Dibs(url)
        await app.hub.engine.open()
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            tasks = [
                NewTask(id=new_id(), queue="default", name="mail.send", args=b'{"to":"x@example.com","n":17}')
                for _ in range(BULK)
            ]
            await app.hub.engine.enqueue(tasks, atomic=True)
            done += BULK
        await app.hub.engine.close()
        return done / (time.perf_counter() - began)

    return asyncio.run(run())


def remote_drain(address: str, number: int) -> float:
    """Tasks/s of one remote worker."""
    with Dibs(address) as app:

        @app.task(name="bench.nothing", queue="drain")
        async def nothing() -> None: ...

        for _ in range(0, number, BULK):
            app.enqueue_many([nothing.call() for _ in range(BULK)])
        began = time.perf_counter()
        with app.worker(queues=["drain"], concurrency=100, until_idle=True) as worker:
            worker.wait()
        return number / (time.perf_counter() - began)


def lone_calls(address: str, number: int) -> float:
    """Enqueues/s of one remote caller, one at a time."""
    with Dibs(address) as app:

        @app.task(name="bench.nothing", queue="lone")
        async def nothing() -> None: ...

        nothing.enqueue()
        began = time.perf_counter()
        for _ in range(number):
            nothing.enqueue()
        return number / (time.perf_counter() - began)


def measure(url: str, seconds: float, rounds: int, script: Path) -> None:
    hello, submit, bulk, alone = [], [], [], []
    with served(url) as address:
        urllib.request.urlopen(f"{address}/ready").read()
        wrk(address, 1, script, "POST", "/api/v1/tasks")
        for _ in range(rounds):
            hello.append(wrk(address, seconds, script, "GET", "/health"))
            submit.append(wrk(address, seconds, script, "POST", "/api/v1/tasks"))
            bulk.append(wrk(address, seconds, script, "POST", "/api/v1/tasks/batch", BULK, 4))
            alone.append(engine_bulk(url, seconds))
        lone, drain = lone_calls(address, 500), remote_drain(address, 10_000)
    one = median(each["rate"] for each in submit)
    many, own = median(each["rate"] for each in bulk) * BULK, median(alone)
    bare = median(each["rate"] for each in hello)
    p50, p95, p99 = (median(each[name] for each in submit) for name in ("p50", "p95", "p99"))
    errors = sum(each["errors"] for each in (*hello, *submit, *bulk))
    print(f"  hello        {bare:>9,.0f}/s")
    spread = f"P50 {p50:.1f}, P95 {p95:.1f}, P99 {p99:.1f} ms"
    print(f"  submit       {one:>9,.0f}/s   {spread}; {bare / one:.2f} × hello's cost")
    print(f"  bulk         {many:>9,.0f}/s   {many / own:.2f} × the engine's own {own:,.0f}/s")
    print(f"  remote       {lone:>9,.0f}/s one by one; a worker drains {drain:,.0f}/s")
    print(f"  errors       {errors:>9,}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("sqlite", "postgres", "redis"))
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "load.lua"
        script.write_text(LUA)
        for store, url in stores(folder).items():
            if given.only in (None, store):
                print(store)
                measure(url, given.seconds, given.rounds, script)


if __name__ == "__main__":
    main()
