"""What do ASGI frameworks and servers cost a submit? Requests/s, latency, CPU and idle memory of each pair.

Needs wrk (Debian: `apt-get install wrk`), and in the environment that runs it Dibs and these packages:

    pip install uvicorn httptools uvloop granian hypercorn starlette litestar blacksheep psutil
    python bench/http_frameworks.py     # every pair, two rounds, about eight minutes (--only starlette: fewer)

Two loads: `hello` is GET / with five bytes back; `submit` is POST /tasks, which decodes and validates a body with
msgspec, enqueues one task on SQLite with an fsync before the answer, and answers 201 (`queue_position` is a constant).
`--no-store` leaves the enqueue out. Every server gets one worker process and a new database. Pairs alternate, medians
count. The data are in the temporary directory: if that is in memory, set TMPDIR to a place on a disk.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dibs import Dibs

BODY = '{"task_type":"mail.send","priority":50,"parameters":{"to":"x@example.com","n":17},"timeout_seconds":30}'
LUA = """
if os.getenv("BENCH_LOAD") == "submit" then
  wrk.method, wrk.path, wrk.body = "POST", "/tasks", os.getenv("BENCH_BODY")
  wrk.headers["Content-Type"] = "application/json"
end
function done(s, latency)
  local e = s.errors
  io.write(string.format('JSON{"requests":%d,"us":%d,"p50":%.3f,"p95":%.3f,"errors":%d}\\n', s.requests, s.duration,
    latency:percentile(50) / 1000, latency:percentile(95) / 1000, e.connect + e.read + e.write + e.status + e.timeout))
end
"""
SERVERS = {
    "uvicorn": "uvicorn --loop uvloop --http httptools --log-level warning --no-access-log --port {port}",
    "granian": "granian --interface asgi --loop uvloop --log-level warning --port {port}",
    "granian-asyncio": "granian --interface asgi --loop asyncio --log-level warning --port {port}",
    "hypercorn": "hypercorn --worker-class uvloop --log-level warning --bind 127.0.0.1:{port}",
}
FRAMEWORKS = ("raw", "starlette", "litestar", "blacksheep")
PAIRS = [(one, server) for server in SERVERS for one in FRAMEWORKS[: 4 if server in ("uvicorn", "granian") else 2]]


class Submit(msgspec.Struct):
    task_type: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    parameters: dict[str, Any]
    priority: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None


class Submitted(msgspec.Struct):
    task_id: str
    status: str = "pending"
    queue_position: int = 0


decode, encode = msgspec.json.Decoder(Submit).decode, msgspec.json.Encoder().encode


def submitter(url: str) -> Any:
    queue = Dibs(url or "memory://")

    @queue.task(name="mail.send")
    def send(to: str, n: int) -> None: ...

    async def submit(new: Submit) -> Submitted:
        if not url:
            return Submitted("00000000-0000-7000-8000-000000000000")
        task = {"mail.send": send}[new.task_type].using(priority=new.priority, timeout=new.timeout_seconds)
        return Submitted(str((await task.aenqueue(**new.parameters)).id))

    return submit


def raw(submit: Any) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        status, kind, body = 200, b"text/plain", b"hello"
        if scope["path"] == "/tasks":
            body, more = b"", True
            while more:
                message = await receive()
                body, more = body + message.get("body", b""), message.get("more_body", False)
            status, kind, body = 201, b"application/json", encode(await submit(decode(body)))
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def starlette(submit: Any) -> Any:
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def hello(request: Any) -> Any:
        return Response(b"hello", media_type="text/plain")

    async def tasks(request: Any) -> Any:
        return Response(encode(await submit(decode(await request.body()))), 201, media_type="application/json")

    return Starlette(routes=[Route("/", hello), Route("/tasks", tasks, methods=["POST"])])


def litestar(submit: Any) -> Any:
    from litestar import Litestar, MediaType, get, post

    async def hello() -> bytes:
        return b"hello"

    async def tasks(data: Submit) -> Submitted:
        return await submit(data)

    return Litestar([get("/", media_type=MediaType.TEXT)(hello), post("/tasks")(tasks)])


def blacksheep(submit: Any) -> Any:
    from blacksheep import Application, Content, Request, Response

    async def hello(request: Request) -> Response:
        return Response(200, content=Content(b"text/plain", b"hello"))

    async def tasks(request: Request) -> Response:
        return Response(201, content=Content(b"application/json", encode(await submit(decode(await request.read())))))

    app = Application()
    app.router.add_get("/", hello)
    app.router.add_post("/tasks", tasks)
    return app


def measure(framework: str, server: str, seconds: int, place: Path, store: bool) -> dict[str, float]:
    from psutil import Process

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"sqlite:///{place}/{port}.db" if store else ""
    environment = {**os.environ, "BENCH_APP": framework, "BENCH_BODY": BODY, "BENCH_URL": url}
    command = [sys.executable, "-m", *SERVERS[server].format(port=port).split(), "http_frameworks:app"]
    found: dict[str, float] = {}
    with subprocess.Popen(command, env=environment, cwd=Path(__file__).parent) as process:
        try:
            time.sleep(4)  # some listen before they can answer
            family = [Process(process.pid), *Process(process.pid).children(recursive=True)]
            found["memory"] = sum(one.memory_info().rss for one in family) / 2**20
            for load in ("hello", "submit"):
                shoot(port, load, 1, place, environment)
                before = sum(sum(one.cpu_times()[:2]) for one in family)
                result = shoot(port, load, seconds, place, environment)
                cpu = sum(sum(one.cpu_times()[:2]) for one in family) - before
                result |= {"rate": result["requests"] / result["us"] * 1e6, "cpu": cpu / result["requests"] * 1e6}
                found |= {f"{load}_{name}": result[name] for name in ("rate", "p50", "p95", "cpu", "errors")}
        finally:
            process.terminate()
    return found


def shoot(port: int, load: str, seconds: int, place: Path, environment: dict[str, str]) -> dict[str, float]:
    (script := place / "load.lua").write_text(LUA)
    command = ["wrk", "-t2", "-c64", f"-d{seconds}s", "--timeout", "10s", "-s", script, f"http://127.0.0.1:{port}/"]
    done = subprocess.run(command, env={**environment, "BENCH_LOAD": load}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.split("JSON")[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--only", default="", help="one framework or server")
    parser.add_argument("--no-store", action="store_true")
    options = parser.parse_args()
    pairs = [pair for pair in PAIRS if not options.only or options.only in pair]
    found: dict[tuple[str, str], list[dict[str, float]]] = {pair: [] for pair in pairs}
    with tempfile.TemporaryDirectory(prefix="dibs-http-") as place:
        for number in range(options.rounds):
            for pair in pairs[:: -1 if number % 2 else 1]:
                found[pair].append(measure(*pair, options.seconds, Path(place), not options.no_store))
    for pair, runs in found.items():
        medians = (f"{name} {statistics.median(run[name] for run in runs):.1f} " for name in runs[0])
        print(f"{' on '.join(pair):28}", *medians)


if "BENCH_APP" in os.environ:
    app = globals()[os.environ["BENCH_APP"]](submitter(os.environ["BENCH_URL"]))

if __name__ == "__main__":
    main()
