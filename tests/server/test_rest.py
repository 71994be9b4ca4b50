"""The REST API, route by route, on a server in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from dibs import Dibs
from dibs.testing.clock import ManualClock
from servers.asgi import Api, server_here

UNKNOWN = "01900000-0000-7000-8000-000000000000"


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Api, Dibs]]:
    app = Dibs("memory://", **options)

    @app.task(name="add", queue="sums")
    def add(a: int, b: int = 2) -> int:
        return a + b

    await app.hub.engine.open()
    try:
        yield Api(server_here(app)), app
    finally:
        await app.hub.engine.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_a_task_is_submitted_claimed_reported_and_read() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            made = await api.post("/api/v1/tasks", {"task_type": "mail", "parameters": {"to": "ada"}, "priority": 70})
            assert made.status == 201, made
            assert made.body["status"] == "pending"
            assert made.body["queue_position"] in (0, 1)  # the figures may have it already
            task_id = made.body["task_id"]
            worker = (await api.post("/api/v1/workers/register", {"capacity": 3})).body["worker_id"]
            claimed = (await api.post(f"/api/v1/workers/{worker}/claim", {"limit": 5})).body
            (task,) = claimed["tasks"]
            assert (task["task_id"], task["task_type"], task["parameters"]) == (task_id, "mail", {"to": "ada"})
            beat = await api.post(
                f"/api/v1/workers/{worker}/heartbeat",
                {"tasks": [{"task_id": task_id, "lease": task["lease"], "progress": 0.5, "message": "half"}]},
            )
            assert beat.body["tasks"][0]["outcome"] == "held"
            running = (await api.get(f"/api/v1/tasks/{task_id}")).body
            assert (running["status"], running["progress"], running["assigned_worker_id"]) == ("running", 0.5, worker)
            report = {"task_id": task_id, "lease": task["lease"], "status": "completed", "result": {"sent": True}}
            done = await api.post(f"/api/v1/workers/{worker}/results", {"results": [report]})
            assert done.body["results"][0]["outcome"] == "done"
            again = await api.post(f"/api/v1/workers/{worker}/results", {"results": [report]})
            assert again.body["results"][0]["outcome"] == "already"
            result = await api.get(f"/api/v1/tasks/{task_id}/result")
            assert (result.status, result.body["result"]) == (200, {"sent": True})
            assert (await api("DELETE", f"/api/v1/workers/{worker}")).status == 204

    run(body)


def test_every_read_answers() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            task_id = (await api.post("/api/v1/tasks", {"task_type": "mail"})).body["task_id"]
            for path in (
                "tasks",
                "tasks/count",
                f"tasks/{task_id}",
                f"tasks/{task_id}/history",
                f"tasks/{task_id}/dependents",
                f"tasks/{task_id}/needs",
                f"tasks/{task_id}/why",
                f"tasks/{task_id}/position",
                "queues",
                "queues/default",
                "queues/default/bound",
                "queues/default/peek",
                "queues/default/tenants",
                "queues/default/limits",
                "queues/default/stats",
                "queues/default/series",
                "dead",
                "dead/groups",
                "workflows",
                "schedules",
                "workers",
                "stats",
                "series",
                "queue/stats",
                "audit",
                "chores",
                "about",
                "check",
                "steps",
            ):
                found = await api.get(f"/api/v1/{path}")
                assert found.status == 200, (path, found)
            for path in ("/health", "/ready", "/openapi.json", "/docs"):
                assert (await api.get(path)).status == 200, path

    run(body)


def test_tasks_that_the_app_knows_are_checked() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            made = await api.post("/api/v1/tasks", {"task_type": "add", "parameters": {"a": 1}})
            assert (made.status, made.body["queue"]) == (201, "sums")
            wrong = await api.post("/api/v1/tasks", {"task_type": "add", "parameters": {"a": "one"}})
            assert wrong.status == 422
            assert "add" in wrong.body["detail"]

    run(body)


def test_a_key_makes_a_submit_safe_to_repeat() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            given = {"task_type": "mail", "parameters": {"to": "ada"}}
            first = await api.post("/api/v1/tasks", given, headers={"Idempotency-Key": "one"})
            again = await api.post("/api/v1/tasks", given, headers={"Idempotency-Key": "one"})
            assert (first.status, again.status) == (201, 200)
            assert (again.body["task_id"], again.body["duplicate"]) == (first.body["task_id"], True)
            other = await api.post("/api/v1/tasks", {"task_type": "mail"}, headers={"Idempotency-Key": "one"})
            assert other.status == 409
            assert other.body["task_id"] == first.body["task_id"]
            both = await api.post(
                "/api/v1/tasks", {"task_type": "mail", "idempotency_key": "two"}, headers={"Idempotency-Key": "one"}
            )
            assert both.status == 422

    run(body)


def test_a_batch_is_stored_as_a_whole_or_not_at_all() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            first = "01900000-0000-7000-8000-000000000001"
            tasks = [{"task_type": "two", "after": [first]}, {"task_type": "one", "task_id": first}]
            made = await api.post("/api/v1/tasks/batch", {"tasks": tasks})
            assert made.status == 201, made
            assert [each["status"] for each in made.body["tasks"]] == ["blocked", "pending"]
            needs = await api.get(f"/api/v1/tasks/{made.body['tasks'][0]['task_id']}/needs")
            assert needs.body[0]["id"] == first
            wrong = await api.post(
                "/api/v1/tasks/batch", {"tasks": [{"task_type": "a"}, {"task_type": "b", "after": [UNKNOWN]}]}
            )
            assert wrong.status == 404
            assert (await api.get("/api/v1/tasks/count")).body["count"] == 2

    run(body)


def test_waiting_for_the_end() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            task_id = (await api.post("/api/v1/tasks", {"task_type": "mail"})).body["task_id"]
            assert (await api.get(f"/api/v1/tasks/{task_id}/wait", "timeout=0.01")).status == 202
            waiting = asyncio.ensure_future(api.get(f"/api/v1/tasks/{task_id}/wait", "timeout=20"))
            worker = (await api.post("/api/v1/workers/register")).body["worker_id"]
            (task,) = (await api.post(f"/api/v1/workers/{worker}/claim")).body["tasks"]
            report = {"task_id": task_id, "lease": task["lease"], "status": "permanent", "error": "no such address"}
            await api.post(f"/api/v1/workers/{worker}/results", {"results": [report]})
            ended = await waiting
            assert (ended.status, ended.body["status"]) == (200, "dead")
            result = await api.get(f"/api/v1/tasks/{task_id}/result")
            assert (result.status, result.body["type"]) == (409, "about:blank#task-failed")
            groups = (await api.get("/api/v1/dead/groups")).body["groups"]
            assert (groups[0]["count"], groups[0]["message"]) == (1, "no such address")
            dry = await api.post("/api/v1/dead/replay", {})
            assert (dry.status, dry.body["matched"], dry.body["dry_run"]) == (200, 1, True)
            begun = await api.post("/api/v1/dead/replay", {"dry_run": False})
            assert begun.status == 202
            assert (await api.get(f"/api/v1/steps/{begun.body['step']}")).status == 200

    run(body)


def test_a_long_poll_wakes_when_work_comes() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            worker = (await api.post("/api/v1/workers/register")).body["worker_id"]
            polling = asyncio.ensure_future(api.post(f"/api/v1/workers/{worker}/claim", {"wait": 20}))
            await asyncio.sleep(0.05)
            await api.post("/api/v1/tasks", {"task_type": "mail"})
            async with asyncio.timeout(5):
                assert len((await polling).body["tasks"]) == 1

    run(body)


def test_a_lost_lease_is_refused_with_409() -> None:
    async def body() -> None:
        clock = ManualClock()
        async with serving(clock=clock) as (api, app):
            await api.post("/api/v1/tasks", {"task_type": "mail"})
            workers = [(await api.post("/api/v1/workers/register")).body["worker_id"] for _ in range(2)]
            (task,) = (await api.post(f"/api/v1/workers/{workers[0]}/claim")).body["tasks"]
            report = {"task_id": task["task_id"], "lease": task["lease"], "status": "completed"}
            foreign = await api.post(f"/api/v1/workers/{workers[1]}/results", {"results": [report]})
            assert (foreign.status, foreign.body["type"]) == (409, "about:blank#lease-lost")
            clock.advance(100)
            await app.hub.engine.rescue(now=clock.store_now())
            (again,) = (await api.post(f"/api/v1/workers/{workers[1]}/claim")).body["tasks"]
            assert again["lease"] > task["lease"]
            late = await api.post(f"/api/v1/workers/{workers[0]}/results", {"results": [report]})
            assert late.status == 409
            beat = await api.post(
                f"/api/v1/workers/{workers[0]}/heartbeat",
                {"tasks": [{"task_id": task["task_id"], "lease": task["lease"]}]},
            )
            assert beat.body["tasks"][0]["outcome"] == "lost"

    run(body)


def test_older_workers_need_no_lease_number() -> None:
    async def body() -> None:
        clock = ManualClock()
        async with serving(clock=clock) as (api, app):
            made = await api.post("/api/v1/tasks", {"task_type": "mail", "required_capabilities": ["smtp"]})
            registered = (await api.post("/internal/workers/register", {"capabilities": ["smtp"], "capacity": 2})).body
            worker = registered["worker_id"]
            assert registered["poll_interval_ms"] == 1000
            polled = await api.post(f"/internal/workers/{worker}/poll", {"available_capacity": 2})
            (task,) = polled.body["tasks"]
            assert {"task_id", "task_type", "parameters", "timeout_seconds", "trace_id"} <= task.keys()
            for _ in range(5):  # a beat extends its leases
                clock.advance(20)
                beat = await api.post(f"/internal/workers/{worker}/heartbeat", {"current_load": 1, "status": "active"})
                assert beat.body["acknowledged"] is True
                assert not (await app.hub.engine.rescue(now=clock.store_now())).ids
            done = await api.post(
                f"/internal/workers/{worker}/result",
                {"task_id": made.body["task_id"], "status": "completed", "result": 1},
            )
            assert (done.status, done.body["status"]) == (200, "completed")
            stranger = (await api.post("/internal/workers/register", {})).body["worker_id"]
            late = await api.post(
                f"/internal/workers/{stranger}/result", {"task_id": made.body["task_id"], "status": "completed"}
            )
            assert late.status == 409

    run(body)


def test_queues_are_created_configured_and_deleted() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            made = await api.post("/api/v1/queues", {"name": "mail", "settings": {"max_depth": 1, "aging": 60}})
            assert (made.status, made.body["settings"]["max_depth"]) == (201, 1)
            assert (await api.post("/api/v1/queues", {"name": "mail"})).status == 409
            assert (await api.post("/api/v1/tasks", {"task_type": "a", "queue": "mail"})).status == 201
            full = await api.post("/api/v1/tasks", {"task_type": "a", "queue": "mail"})
            assert full.status == 429
            assert int(full.headers["retry-after"]) >= 1
            changed = await api("PATCH", "/api/v1/queues/mail", {"settings": {"max_depth": None}})
            assert changed.body["settings"].get("max_depth") is None
            wrong = await api("PATCH", "/api/v1/queues/mail", {"settings": {"max_deth": 3}})
            assert wrong.status == 422
            assert "max_depth" in wrong.body["detail"]
            assert (await api.post("/api/v1/queues/mail/pause")).body == {"changed": True}
            assert (await api.get("/api/v1/queues/mail")).body["state"] == "paused"
            assert (await api.post("/api/v1/queues/mail/resume")).body == {"changed": True}
            assert (await api("DELETE", "/api/v1/queues/mail")).status == 409
            assert (await api("DELETE", "/api/v1/queues/mail", query="force=true")).status == 204
            assert (await api.get("/api/v1/queues/nowhere")).status == 404

    run(body)


def test_tasks_are_cancelled_edited_and_purged() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            task_id = (await api.post("/api/v1/tasks", {"task_type": "mail"})).body["task_id"]
            assert (await api("PATCH", f"/api/v1/tasks/{task_id}", {"priority": "high"})).body == {"changed": True}
            assert (await api.get(f"/api/v1/tasks/{task_id}")).body["priority"] == 70
            cancelled = await api("DELETE", f"/api/v1/tasks/{task_id}")
            assert (cancelled.status, cancelled.body["status"]) == (200, "cancelled")
            assert (await api("DELETE", f"/api/v1/tasks/{task_id}")).status == 409
            with_history = await api.get(f"/api/v1/tasks/{task_id}", "include=history,needs&include=dependents")
            assert [line["event"] for line in with_history.body["history"]] == ["edited", "cancelled"]
            assert (await api.post(f"/api/v1/tasks/{task_id}/purge")).body == {"changed": True}
            assert (await api.get(f"/api/v1/tasks/{task_id}")).status == 404
            audit = (await api.get("/api/v1/audit")).body
            assert [line["act"] for line in audit] == ["purge", "cancel", "edit"]

    run(body)


def test_search_goes_page_by_page() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            for number in range(5):
                await api.post("/api/v1/tasks", {"task_type": "mail", "metadata": {"n": number % 2}})
            seen, cursor = [], ""
            while True:
                page = (await api.get("/api/v1/tasks", f"limit=2{cursor}")).body
                seen += [task["task_id"] for task in page["tasks"]]
                if page["cursor"] is None:
                    break
                cursor = f"&cursor={page['cursor']}"
            assert len(seen) == len(set(seen)) == 5
            odd = await api.get("/api/v1/tasks", "metadata=n%3D1&status=pending&status=running")
            assert len(odd.body["tasks"]) == 2
            assert (await api.get("/api/v1/tasks", "status=pendin")).status == 422
            assert (await api.get("/api/v1/tasks", "limt=3")).status == 422
            assert (await api.get("/api/v1/tasks", "limit=3&limit=4")).status == 422

    run(body)


def test_workflows_and_schedules() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            flow = {
                "name": "order",
                "tasks": [
                    {"ref": "ship", "task_type": "ship", "after": ["pay"]},
                    {"ref": "pay", "task_type": "pay"},
                    {"ref": "sorry", "task_type": "mail", "after": [{"task_id": "pay", "rule": "if failed"}]},
                ],
            }
            begun = await api.post("/api/v1/workflows", flow)
            assert begun.status == 201, begun
            found = (await api.get(f"/api/v1/workflows/{begun.body['workflow']}")).body
            assert (found["total"], found["counts"]["blocked"]) == (3, 2)
            assert (await api.get(f"/api/v1/workflows/{begun.body['workflow']}/graph")).status == 200
            cycle = {
                "tasks": [
                    {"ref": "a", "task_type": "a", "after": ["b"]},
                    {"ref": "b", "task_type": "b", "after": ["a"]},
                ]
            }
            assert (await api.post("/api/v1/workflows", cycle)).status == 422
            made = await api("PUT", "/api/v1/schedules/nightly", {"cron": "0 3 * * *", "task": {"task_type": "report"}})
            assert made.status == 200, made
            assert (await api.get("/api/v1/schedules/nightly/upcoming", "count=2")).status == 200
            assert (await api.post("/api/v1/schedules/nightly/pause")).body == {"changed": True}
            assert (await api.post("/api/v1/schedules/nightly/run")).status == 201
            assert (await api("DELETE", "/api/v1/schedules/nightly")).status == 204
            assert (await api.get("/api/v1/schedules/nightly")).status == 404

    run(body)


def test_a_claim_whose_client_is_gone_is_released() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            task_id = (await api.post("/api/v1/tasks", {"task_type": "mail"})).body["task_id"]
            worker = (await api.post("/api/v1/workers/register")).body["worker_id"]
            await Api(api.server, is_gone=True).post(f"/api/v1/workers/{worker}/claim", {"wait": 1})
            info = (await api.get(f"/api/v1/tasks/{task_id}", "include=history")).body
            assert info["status"] == "pending", info
            assert (await api.post(f"/api/v1/workers/{worker}/claim")).body["tasks"][0]["task_id"] == task_id

    run(body)


def test_of_many_pollers_one_at_a_time_asks() -> None:
    async def body() -> None:
        async with serving() as (api, app):
            workers = [(await api.post("/api/v1/workers/register")).body["worker_id"] for _ in range(20)]
            claims = 0
            ask = app.hub.engine.claim

            async def counted(*given: Any, **more: Any) -> Any:
                nonlocal claims
                claims += 1
                return await ask(*given, **more)

            app.hub.engine.claim = counted  # type: ignore[method-assign]
            polls = [asyncio.ensure_future(api.post(f"/api/v1/workers/{each}/claim", {"wait": 20})) for each in workers]
            while claims < 20:
                await asyncio.sleep(0.01)
            for _ in range(10):
                await api.post("/api/v1/tasks", {"task_type": "mail"})
            async with asyncio.timeout(10):
                while sum(poll.done() for poll in polls) < 10:
                    await asyncio.sleep(0.01)
            got = [task for poll in polls if poll.done() for task in poll.result().body["tasks"]]
            assert len({task["task_id"] for task in got}) == 10
            assert claims < 80  # not 20 for each task
            api.server.stopping.set()
            ends = await asyncio.gather(*polls)
            assert sorted({each.status for each in ends}) == [200, 503]

    run(body)


def test_a_heartbeat_that_waits_learns_of_a_cancellation_at_once() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            task_id = (await api.post("/api/v1/tasks", {"task_type": "mail"})).body["task_id"]
            worker = (await api.post("/api/v1/workers/register")).body["worker_id"]
            (task,) = (await api.post(f"/api/v1/workers/{worker}/claim")).body["tasks"]
            beat = {"tasks": [{"task_id": task_id, "lease": task["lease"]}], "wait": 20}
            beating = asyncio.ensure_future(api.post(f"/api/v1/workers/{worker}/heartbeat", beat))
            await asyncio.sleep(0.05)
            assert (await api("DELETE", f"/api/v1/tasks/{task_id}")).status == 202
            async with asyncio.timeout(5):
                assert (await beating).body["tasks"][0]["outcome"] == "cancel"

    run(body)


def test_a_paused_worker_gets_nothing_until_it_is_resumed() -> None:
    async def body() -> None:
        async with serving() as (api, _):
            worker = (await api.post("/api/v1/workers/register")).body["worker_id"]
            await api.post(f"/api/v1/workers/{worker}/pause")
            await api.post("/api/v1/tasks", {"task_type": "mail"})
            polling = asyncio.ensure_future(api.post(f"/api/v1/workers/{worker}/claim", {"wait": 20}))
            await asyncio.sleep(0.05)
            assert not polling.done()
            await api.post(f"/api/v1/workers/{worker}/resume")
            async with asyncio.timeout(5):
                assert len((await polling).body["tasks"]) == 1

    run(body)
