"""Requests that are wrong as HTTP, as JSON or as MessagePack: each gets a clear 4xx, and the server goes on."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from dibs import Dibs
from dibs.engines.http.protocol import PREFIX, VERBS
from dibs.server import http
from dibs.server.fields import Submission
from dibs.server.http import HttpError, decode_json
from servers.asgi import Api, request, server_here

DEEP = b'{"task_type":"a","parameters":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}"


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Api]:
    app = Dibs("memory://")
    await app.hub.engine.open()
    try:
        yield Api(server_here(app, **settings))
    finally:
        await app.hub.engine.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"[]", 422),
        (b"null", 422),
        (b'"task"', 422),
        (b"{'task_type': 'a'}", 400),
        (b'{"task_type": "a"} trailing', 400),
        (b'{"task_type": "\xff\xfe"}', 400),
        (b'{"task_type": "\xed\xa0\x80"}', 400),
        (b'{"task_type": "\\ud800"}', 400),
        (b"\xef\xbb\xbf{}", 400),
        (DEEP, 400),
        (b'{"task_type": "a", "task_type": "b"}', 400),
        (b'{"task_type": "a", "parameters": {"x": 1, "x": 2}}', 400),
        (b'{"task_type": "a", "task_\\u0074ype": "b"}', 400),
        (b'{"tasks": [], "task_type": "a", "parameters": {"x": [{"y": 1, "y": 2}]}}', 400),
        (b'{"task_type": "a", "parameters": {"x": 1e999}}', 422),
        (b'{"task_type": "a", "parameters": {"x": NaN}}', 400),
        (b'{"task_type": "a", "priority": 1e999}', 422),
        (b'{"task_type": "a", "priority": 101}', 422),
        (b'{"task_type": "a", "priority": 99999999999999999999999999}', 422),
        (b'{"task_type": "a", "retries": -1}', 422),
        (b'{"task_type": "a", "retries": 1e3}', 422),
        (b'{"task_type": "a", "delay_seconds": 1e18}', 422),
        (b'{"task_type": "a", "delay_seconds": -1}', 422),
        (b'{"task_type": "a", "scheduled_at": "tomorrow"}', 422),
        (b'{"task_type": "a", "scheduled_at": "2030-01-01T00:00:00"}', 422),
        (b'{"task_type": "a", "scheduled_at": "9999-01-01T00:00:00Z"}', 422),
        (b'{"task_type": "a", "task_id": "../../etc/passwd"}', 422),
        (b'{"task_type": "a", "queue": "../x"}', 422),
        (b'{"task_type": "a", "queue": "a\\u0000b"}', 422),
        (b'{"task_type": "", "parameters": {}}', 422),
        (b'{"task_type": "a", "parameters": []}', 422),
        (b'{"task_type": "a", "unknown_field": 1}', 422),
        (b'{"task_type": "a", "after": ["x"]}', 422),
        (b'{"task_type": "a", "metadata": {"a": "' + b"x" * 20_000 + b'"}}', 422),
        (b'{"task_type": "a", "parameters": {"x": "' + b"x" * 300_000 + b'"}}', 413),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, bytes) else str(value),
)
def test_a_wrong_body(body: bytes, status: int) -> None:
    async def test() -> None:
        async with serving() as api:
            answer = await api.post("/api/v1/tasks", body)
            assert answer.status == status, answer
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.body["detail"], answer
            assert "Traceback" not in answer.body["detail"]
            assert (await api.get("/api/v1/tasks/count")).body["count"] == 0

    asyncio.run(test())


def test_numbers_that_json_allows_arrive_as_they_were_sent() -> None:
    async def test() -> None:
        async with serving() as api:
            sent = {"big": 2**63, "small": -(2**63), "huge": 10**25, "float": 1.5e300, "text": "ünï \u2028 🎉"}
            made = await api.post("/api/v1/tasks", {"task_type": "a", "parameters": {**sent, "huge": "x"}})
            assert made.status == 201
            found = (await api.get(f"/api/v1/tasks/{made.body['task_id']}")).body["parameters"]
            assert found == {**sent, "huge": "x"}

    asyncio.run(test())


@pytest.mark.parametrize(
    "task_id",
    ["..", "%2e%2e%2fadmin", "..%2f..%2fetc%2fpasswd", "a%00b", "' OR 1=1 --", "x" * 3000, "ünï", "%ff", "{task_id}"],
)
def test_ids_that_are_none(task_id: str) -> None:
    async def test() -> None:
        async with serving() as api:
            for part in ("", "/history", "/why", "/result", "/needs", "/dependents", "/position"):
                answer = await api.get(f"/api/v1/tasks/{task_id}{part}")
                assert answer.status in (404, 422), answer
            for method, part in (("DELETE", ""), ("PATCH", ""), ("POST", "/replay"), ("POST", "/purge")):
                answer = await api(method, f"/api/v1/tasks/{task_id}{part}", {})
                assert answer.status in (404, 422), answer
            for path in (f"queues/{task_id}", f"schedules/{task_id}", f"workflows/{task_id}", f"steps/{task_id}"):
                assert (await api.get(f"/api/v1/{path}")).status in (404, 422), path
            for part in ("claim", "heartbeat"):
                assert (await api.post(f"/api/v1/workers/{task_id}/{part}", {})).status in (404, 422)

    asyncio.run(test())


def test_paths_and_methods_that_are_none() -> None:
    async def test() -> None:
        async with serving() as api:
            assert (await api.get("/api/v1/nothing")).status == 404
            assert (await api.get("/api/v1/tasks/")).status == 404
            assert (await api.get("//api/v1/tasks")).status == 404
            wrong = await api("PUT", "/api/v1/tasks")
            assert wrong.status == 405
            assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
            head = await api("HEAD", "/api/v1/tasks")
            assert (head.status, head.body) == (200, b"")

    asyncio.run(test())


def test_bodies_that_are_too_large_or_packed_wrongly() -> None:
    async def test() -> None:
        async with serving(most_body=100_000) as api:
            large = b'{"task_type":"a","parameters":{"x":"' + b"x" * 200_000 + b'"}}'
            assert (await api.post("/api/v1/tasks", large)).status == 413
            packed = {"Content-Encoding": "gzip"}
            bomb = gzip.compress(b" " * 50_000_000)
            assert len(bomb) < 100_000
            assert (await api.post("/api/v1/tasks", bomb, headers=packed)).status == 413
            assert (await api.post("/api/v1/tasks", b"not gzip", headers=packed)).status == 400
            assert (await api.post("/api/v1/tasks", gzip.compress(b"{}")[:-4], headers=packed)).status == 400
            assert (await api.post("/api/v1/tasks", b"{}", headers={"Content-Encoding": "br"})).status == 415
            fine = await api.post("/api/v1/tasks", gzip.compress(b'{"task_type":"a"}'), headers=packed)
            assert fine.status == 201
            lied = await api.post("/api/v1/tasks", large, headers={"Content-Length": "5"})
            assert lied.status == 413

    asyncio.run(test())


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_engine_calls_with_nonsense(verb: str) -> None:
    nonsense: list[Any] = [b"", b"\xc1", b"\x81", b"\xff" * 100, 7, [], {"x": 1}, {"tasks": 1}, {"ids": [1]}]
    if VERBS[verb].arguments.__struct_fields__:
        nonsense.append({VERBS[verb].arguments.__struct_fields__[0]: "\0"})

    async def test() -> None:
        async with serving() as api:
            for body in nonsense:
                sent = body if isinstance(body, bytes) else msgspec.msgpack.encode(body)
                answer = await api.post(f"{PREFIX}{verb}", sent)
                assert answer.status in (400, 404, 409, 422), (body, answer)
            assert (await api.post(f"{PREFIX}nonsense", b"")).status == 404

    asyncio.run(test())


def huge(value: int) -> dict[str, Any]:
    task = {"id": "01900000-0000-7000-8000-000000000000", "queue": "q", "name": "n"}
    return {"tasks": [{**task, "delay": value}]}


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("enqueue", huge(2**62)),
        ("enqueue", huge(-1)),
        ("enqueue", {"tasks": [{"id": "x", "queue": "q", "name": "n"}]}),
        ("enqueue", {"tasks": [{**huge(0)["tasks"][0], "args": b"\xff"}]}),
        ("enqueue", {"tasks": [{**huge(0)["tasks"][0], "args": b"[]"}]}),
        ("enqueue", {"tasks": [{**huge(0)["tasks"][0], "queue": "a b\n"}]}),
        ("enqueue", {"tasks": [{**huge(0)["tasks"][0], "spec": {"priority": 101}}]}),
        ("enqueue", {"tasks": [{**huge(0)["tasks"][0], "options": {"retries": 2**62 + 1}}]}),
        ("claim", {"request": {"worker": "w", "sequence": 1, "queues": ["q"], "limit": -1}}),
        ("claim", {"request": {"worker": "w", "sequence": 2**63, "queues": ["q"], "limit": 1}}),
        ("claim", {"request": {"worker": "", "sequence": 1, "queues": ["q"], "limit": 1}}),
        ("search", {"query": {"limit": 10**9}}),
        ("search", {"query": {"cursor": "x"}}),
        ("stats", {"queue": None, "since": -(2**63), "until": 2**63}),
        ("settle", {"settlements": [{"lease": {"id": "x", "number": -1}, "outcome": "completed"}]}),
        ("settle", {"settlements": [{"lease": {"id": "x", "number": 1}, "outcome": "completed", "result": b"{"}]}),
        ("extend", {"extensions": [{"lease": {"id": "x", "number": 1}, "by": -5}]}),
        ("workflows", {"before": "x"}),
    ],
)
def test_engine_calls_with_wrong_values(verb: str, arguments: dict[str, Any]) -> None:
    async def test() -> None:
        async with serving() as api:
            answer = await api.post(f"{PREFIX}{verb}", msgspec.msgpack.encode(arguments))
            assert answer.status in (413, 422, 400), answer

    asyncio.run(test())


def test_no_body_takes_long_to_check() -> None:
    """Each of these took seconds, or minutes, when keys were looked for in quadratic time."""
    quotes = b'\\"' * 200_000
    bodies = {
        "quotes in a text": b'{"task_type": "a", "parameters": {"x": "' + quotes + b'"}}',
        "an open text": b'{"task_type": "a", "parameters": {"x": "' + quotes,
        "many keys, one twice": b"{" + b",".join(b'"%d": 1' % n for n in (*range(200_000), 7)) + b"}",
        "spaces": b'{"task_type": ' + b" " * 1_000_000 + b'"a", "task_type": "b"}',
        "keys in a text": json.dumps({"task_type": "a", "parameters": {"x": json.dumps({"a": 1}) * 20_000}}).encode(),
    }
    for what, body in bodies.items():
        began = time.process_time()
        with suppress(HttpError):
            decode_json(body, Submission)
        assert time.process_time() - began < 5, what


def test_a_body_that_does_not_come_and_too_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving() as api:
            monkeypatch.setattr(http, "BODY_SECONDS", 0.05)
            slow = await request(api.server, "POST", "/api/v1/tasks", b'{"task_', is_whole=False)
            assert slow[0] == 408
            api.server.budget = http.Budget(100)
            answer = await api.post("/api/v1/tasks", {"task_type": "a", "parameters": {"x": "x" * 200}})
            assert (answer.status, answer.body["type"]) == (503, "about:blank#too-many-bodies")
            assert (await api.post("/api/v1/tasks", {"task_type": "a"})).status == 201

    asyncio.run(test())
