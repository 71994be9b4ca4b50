"""Who may do what: every route and every verb, for every scope; queues, payloads, origins, hosts and limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dibs import Dibs
from dibs.engines.http.protocol import PREFIX, VERBS, Scope
from dibs.server.guard import BEFORE, RUN, UNGUARDED
from dibs.server.http import Route
from dibs.server.server import OPEN, ROUTES
from dibs.server.tokens import TokenFile, new_token
from dibs.server.visibility import AFTER
from servers.asgi import Api, server_here

UNKNOWN = "01900000-0000-7000-8000-000000000000"
PLACES = {
    "task_id": UNKNOWN,
    "queue": "default",
    "worker": "nobody",
    "schedule": "none",
    "workflow": UNKNOWN,
    "step": UNKNOWN,
    "verb": "counts",
}
BODIES: dict[str, Any] = {
    "submit_task": {"task_type": "mail"},
    "submit_tasks": {"tasks": [{"task_type": "mail"}]},
    "submit_workflow": {"tasks": [{"task_type": "mail"}]},
    "act_on_matching": {"action": "cancel", "filter": {}},
    "create_queue": {"name": "other"},
    "configure_queue": {"settings": {"aging": 60}},
    "put_schedule": {"cron": "0 3 * * *", "task": {"task_type": "mail"}},
    "report_results": {"results": [{"task_id": UNKNOWN, "lease": 1, "status": "completed"}]},
    "report_older": {"task_id": UNKNOWN, "status": "completed"},
}


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


@asynccontextmanager
async def guarded(folder: Path, **settings: Any) -> AsyncIterator[tuple[Any, Callable[..., Api]]]:
    """A server that needs tokens, and a way to make one."""
    path = folder / "tokens.json"
    app = Dibs("memory://")
    await app.hub.engine.open()
    server = server_here(app, tokens=path, **settings)

    def api(*scopes: str, name: str = "", **more: Any) -> Api:
        secret, token = new_token(name or f"t{len(TokenFile(path).read())}", scopes, **more)
        TokenFile(path).add(token)
        assert server.tokens is not None
        server.tokens._looked = float("-inf")  # as if a second had passed
        return Api(server, secret)

    try:
        yield server, api
    finally:
        await app.hub.engine.close()


def path_of(route: Route) -> str:
    path = route.path
    for name, value in PLACES.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def has(scope: Scope, wanted: Scope) -> bool:
    return scope in (wanted, Scope.ADMIN) or (scope is Scope.OPERATE and wanted is Scope.READ)


def test_every_route_for_every_scope(tmp_path: Path) -> None:
    """A token with one scope gets past the door of its own routes, and is refused at all others."""

    async def body() -> None:
        async with guarded(tmp_path) as (_, api):
            by_scope = {scope: api(scope) for scope in Scope}
            for route in ROUTES:
                if route.scope is None:
                    continue
                for scope, call in by_scope.items():
                    answer = await call(route.method, path_of(route), BODIES.get(route.operation, {}))
                    allowed = has(scope, route.scope)
                    assert (answer.status != 403) is allowed, (route.method, route.path, scope, answer)
                    assert answer.status < 500, (route.path, answer)

    run(body)


def test_every_verb_for_every_scope(tmp_path: Path) -> None:
    async def body() -> None:
        async with guarded(tmp_path) as (_, api):
            by_scope = {scope: api(scope) for scope in Scope}
            for verb in VERBS.values():
                for scope, call in by_scope.items():
                    answer = await call("POST", verb.path, msgspec.msgpack.encode({}))
                    allowed = verb.scope is None or has(scope, verb.scope)
                    assert (answer.status != 403) is allowed, (verb.name, scope, answer)

    run(body)


def test_no_verb_is_forgotten() -> None:
    assert set(VERBS) == {*BEFORE, *AFTER, *RUN, *UNGUARDED}


def test_nothing_but_health_without_a_token(tmp_path: Path) -> None:
    async def body() -> None:
        async with guarded(tmp_path) as (server, api):
            api("read")
            for route in ROUTES:
                for call in (Api(server), Api(server, "dibs_wrong"), Api(server, "x" * 10_000)):
                    answer = await call(route.method, path_of(route), {})
                    assert answer.status in (401, 429), (route.path, answer)
                    assert answer.body["status"] == answer.status
            server.buckets._by_client.clear()
            answer = await Api(server)("GET", "/api/v1/tasks")
            assert answer.headers["www-authenticate"].startswith("Bearer")
            for route in OPEN:
                assert (await Api(server)(route.method, route.path)).status == 200

    run(body)


def test_a_revoked_token_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with guarded(tmp_path) as (server, api):
            call = api("read", name="reader")
            assert (await call.get("/api/v1/tasks")).status == 200
            TokenFile(tmp_path / "tokens.json").revoke("reader")
            server.tokens._looked = float("-inf")
            assert (await call.get("/api/v1/tasks")).status == 401

    run(body)


def test_a_token_of_one_queue_sees_and_does_nothing_elsewhere(tmp_path: Path) -> None:
    async def body() -> None:
        async with guarded(tmp_path) as (_, api):
            root = api(*Scope)
            mine = api("produce", "consume", "read", "operate", "payloads", queues=["mail"])
            other = (await root.post("/api/v1/tasks", {"task_type": "a", "queue": "bills"})).body["task_id"]
            own = (await mine.post("/api/v1/tasks", {"task_type": "a", "queue": "mail"})).body["task_id"]
            assert (await mine.post("/api/v1/tasks", {"task_type": "a", "queue": "bills"})).status == 403
            assert (await mine.post("/api/v1/tasks", {"task_type": "a"})).status == 403
            assert (await mine.get(f"/api/v1/tasks/{own}")).status == 200
            for path in ("", "/history", "/why", "/needs", "/dependents", "/result"):
                assert (await mine.get(f"/api/v1/tasks/{other}{path}")).status == 404, path
            for method, path in (("DELETE", ""), ("POST", "/replay"), ("POST", "/purge"), ("PATCH", "")):
                assert (await mine(method, f"/api/v1/tasks/{other}{path}", {})).status == 404, path
            assert [each["task_id"] for each in (await mine.get("/api/v1/tasks")).body["tasks"]] == [own]
            assert (await mine.get("/api/v1/tasks", "queue=bills")).status == 403
            assert [each["name"] for each in (await mine.get("/api/v1/queues")).body] == ["mail"]
            assert (await mine.get("/api/v1/queues/bills")).status == 404
            assert (await mine.post("/api/v1/queues/bills/pause")).status == 403
            assert (await mine("DELETE", "/api/v1/queues/bills")).status == 403
            assert (await mine.post("/api/v1/queues", {"name": "new"})).status == 403
            assert (await mine.get("/api/v1/stats")).body["counts"]["pending"] == 1
            assert (await mine.get("/api/v1/audit")).status == 403
            assert (await mine.get("/api/v1/workflows")).status == 403
            assert (await mine.post("/api/v1/workers/register", {"queues": ["bills"]})).status == 403
            worker = (await mine.post("/api/v1/workers/register", {"queues": ["mail"]})).body["worker_id"]
            assert (await mine.post(f"/api/v1/workers/{worker}/claim", {"queues": ["bills"]})).status == 403
            bulk = {"action": "cancel", "filter": {}, "dry_run": False}
            begun = await mine.post("/api/v1/tasks/bulk", bulk)
            assert begun.body["matched"] == 1
            polled = (await root.post("/internal/workers/register", {})).body["worker_id"]
            assert (await mine.post(f"/internal/workers/{polled}/poll", {})).status == 404
            wrong = await mine(
                "PUT", "/api/v1/schedules/s", {"every": 60, "task": {"task_type": "a", "queue": "bills"}}
            )
            assert wrong.status == 403
            moved = await mine.post(f"/api/v1/tasks/{own}/replay", {"queue": "bills"})
            assert moved.status == 403
            await root("PUT", "/api/v1/schedules/s", {"every": 60, "task": {"task_type": "a", "queue": "bills"}})
            assert (await mine.post("/api/v1/schedules/s/pause")).status == 404
            waits = {"task_type": "a", "queue": "mail", "after": [other]}
            assert (await mine.post("/api/v1/tasks", waits)).status == 404
            assert (await mine.post("/api/v1/tasks/batch", {"tasks": [waits]})).status == 404
            assert (await mine.post("/api/v1/workflows", {"tasks": [waits]})).status == 404
            flow = (await root.post("/api/v1/workflows", {"tasks": [{"task_type": "a"}]})).body["workflow"]
            task = {"id": UNKNOWN, "queue": "mail", "name": "a", "spec": {"workflow": flow}}
            joined = await mine("POST", f"{PREFIX}enqueue", msgspec.msgpack.encode({"tasks": [task]}))
            assert joined.status == 403
            await root.post("/api/v1/workers/register", {"worker_id": "both", "queues": ["mail", "bills"]})
            assert {queue for each in (await mine.get("/api/v1/workers")).body for queue in each["queues"]} == {"mail"}

    run(body)


def test_payloads_are_redacted_without_the_right_to_see_them(tmp_path: Path) -> None:
    async def body() -> None:
        async with guarded(tmp_path) as (_, api):
            root, reader = api(*Scope), api("read")
            secret = "a-secret-word"
            made = await root.post("/api/v1/tasks", {"task_type": "a", "parameters": {"password": secret}})
            second = await root.post("/api/v1/tasks", {"task_type": "b", "parameters": {"password": secret}})
            worker = (await root.post("/api/v1/workers/register")).body["worker_id"]
            claimed = (await root.post(f"/api/v1/workers/{worker}/claim", {"limit": 2})).body["tasks"]
            reports = [
                {
                    "task_id": claimed[0]["task_id"],
                    "lease": claimed[0]["lease"],
                    "status": "completed",
                    "result": secret,
                },
                {
                    "task_id": claimed[1]["task_id"],
                    "lease": claimed[1]["lease"],
                    "status": "permanent",
                    "error": secret,
                },
            ]
            await root.post(f"/api/v1/workers/{worker}/results", {"results": reports})
            await root(
                "PUT", "/api/v1/schedules/s", {"every": 60, "task": {"task_type": "a", "parameters": {"p": secret}}}
            )
            ids = [made.body["task_id"], second.body["task_id"]]
            bulk = {"action": "cancel", "filter": {"text": secret}, "reason": secret, "dry_run": False}
            await root.post("/api/v1/tasks/bulk", bulk)
            paths = ["tasks", "dead", "dead/groups", "schedules", "schedules/s", "audit"]
            paths += [f"tasks/{each}{part}" for each in ids for part in ("", "/history", "/result", "/wait")]
            for path in paths:
                answer = await reader.get(f"/api/v1/{path}", "timeout=0" if path.endswith(("wait", "result")) else "")
                assert answer.status in (200, 403, 409), (path, answer)
                assert secret not in repr(answer.body), (path, answer.body)
                assert secret in repr((await root.get(f"/api/v1/{path}")).body) or path.endswith("history")
            assert (await reader.get("/api/v1/tasks", f"text={secret}")).status == 403
            verbs = [("get", {"ids": ids}), ("search", {"query": {}}), ("schedules", {}), ("steps", {}), ("audit", {})]
            for verb, arguments in verbs:
                answer = await reader("POST", PREFIX + verb, msgspec.msgpack.encode(arguments))
                assert answer.status == 200
                assert secret.encode() not in answer.body

    run(body)


def test_leases_belong_to_their_token(tmp_path: Path) -> None:
    async def body() -> None:
        async with guarded(tmp_path) as (server, api):
            one, two = api("produce", "consume", name="one"), api("consume", name="two")
            await one.post("/api/v1/tasks", {"task_type": "a"})
            worker = (await one.post("/api/v1/workers/register", {"worker_id": "w"})).body["worker_id"]
            (task,) = (await one.post(f"/api/v1/workers/{worker}/claim")).body["tasks"]
            report = {"results": [{"task_id": task["task_id"], "lease": task["lease"], "status": "completed"}]}
            await two.post("/api/v1/workers/register", {"worker_id": "w"})
            for forget in (False, True):
                if forget:  # as another server
                    server.owners._by_lease.clear()
                assert (await two.post("/api/v1/workers/w/results", report)).status == 409
                lease = {"id": task["task_id"], "number": task["lease"]}
                settle = msgspec.msgpack.encode({"settlements": [{"lease": lease, "outcome": "completed"}]})
                answer = await two("POST", f"{PREFIX}settle", settle)
                assert msgspec.msgpack.decode(answer.body)[0]["outcome"] == "refused"
                extend = msgspec.msgpack.encode({"extensions": [{"lease": lease, "by": 1_000_000}]})
                answer = await two("POST", f"{PREFIX}extend", extend)
                assert msgspec.msgpack.decode(answer.body)[0]["outcome"] == "lost"
            assert (await one.post("/api/v1/workers/w/results", report)).status == 200

    run(body)


def test_acts_are_audited_with_the_token(tmp_path: Path) -> None:
    async def body() -> None:
        async with guarded(tmp_path) as (_, api):
            root = api(*Scope, name="ops")
            task = (await root.post("/api/v1/tasks", {"task_type": "a"})).body["task_id"]
            await root("DELETE", f"/api/v1/tasks/{task}")
            await root.post("/api/v1/queues/default/pause")
            act = {"acts": [{"type": "purge", "id": task}], "actor": "somebody else"}
            await root("POST", f"{PREFIX}act", msgspec.msgpack.encode(act))
            assert {line["actor"] for line in (await root.get("/api/v1/audit")).body} == {"token ops"}

    run(body)


def test_a_token_is_the_client_that_a_queue_limits(tmp_path: Path) -> None:
    async def body() -> None:
        async with guarded(tmp_path) as (_, api):
            root, fast, slow = api(*Scope), api("produce", name="fast"), api("produce", name="slow")
            await root.post("/api/v1/queues", {"name": "mail", "settings": {"enqueue_rate": 0.01, "enqueue_burst": 1}})
            given = {"task_type": "a", "queue": "mail"}
            assert [(await fast.post("/api/v1/tasks", given)).status for _ in range(2)] == [201, 429]
            assert (await slow.post("/api/v1/tasks", given)).status == 201

    run(body)


def test_clients_are_limited(tmp_path: Path) -> None:
    async def body() -> None:
        async with guarded(tmp_path) as (_, api):
            call, other = api("read", rate=2), api("read")
            answers = [await call.get("/api/v1/queues") for _ in range(6)]
            assert [each.status for each in answers][:4] == [200] * 4
            assert answers[-1].status == 429
            assert int(answers[-1].headers["retry-after"]) >= 1
            assert answers[0].headers["x-ratelimit-limit"] == "4"
            assert answers[0].headers["x-ratelimit-remaining"] == "3"
            assert (await other.get("/api/v1/queues")).status == 200

    run(body)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://127.0.0.1:8642"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "https://ok.example"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost:8642"}, 200),
        ({"Host": "[::1]:8642"}, 200),
        ({"Host": "queue.example"}, 200),
        ({"Host": "evil.example@127.0.0.1"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "["}, 403),
        ({"Host": "[localhost]"}, 403),
    ],
)
def test_hosts_and_origins(headers: dict[str, str], status: int) -> None:
    async def body() -> None:
        app = Dibs("memory://")
        await app.hub.engine.open()
        api = Api(server_here(app, hosts=("queue.example",), origins=("https://ok.example",)))
        answer = await api.get("/api/v1/queues", headers=headers)
        assert answer.status == status, answer
        if headers.get("Origin") == "https://ok.example":
            assert answer.headers["access-control-allow-origin"] == "https://ok.example"
            asked = {**headers, "Access-Control-Request-Method": "POST"}
            assert (await api("OPTIONS", "/api/v1/tasks", headers=asked)).status == 204
        else:
            assert "access-control-allow-origin" not in answer.headers
        await app.hub.engine.close()

    run(body)


def test_without_tokens_only_this_machine_is_served() -> None:
    """Also if it is mounted in an application that listens everywhere."""

    async def body() -> None:
        app = Dibs("memory://")
        await app.hub.engine.open()
        for hosts, status in (((), 403), (("*",), 200)):
            api = Api(server_here(app, hosts=hosts), client="192.0.2.7")
            assert (await api.get("/api/v1/queues")).status == status
            assert (await api.get("/health")).status == 200
        await app.hub.engine.close()

    run(body)
