"""`shard=queue`: a cluster spreads queues over its servers, and nothing spans two of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from msgspec import structs
from redis_help import NOW, claim, new, new_url, settle, somehow, until
from test_redis_acl import COMMANDS

from dibs import Dibs
from dibs.core.graph import Edge
from dibs.core.recurrence import Recurrence
from dibs.core.schedules import ScheduleState
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import Lease, Outcome, Settlement, WorkerState, with_spec
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.events import EventRequest
from dibs.engines.figures import Minute
from dibs.engines.redis import RedisEngine, ShardedEngine, from_url
from dibs.engines.redis.sharding.shards import Memory
from dibs.engines.redis.url import address_of
from dibs.engines.topics import ended_topic, work_topic, worker_topic
from dibs.engines.values import (
    Beat,
    Cancel,
    CancelWorkflow,
    Changed,
    ClaimRequest,
    EnqueueOutcome,
    ExtendOutcome,
    Extension,
    Feature,
    Floor,
    NewWorkflow,
    PartlyAnswered,
    Purge,
    Query,
    Replay,
    SettleOutcome,
)
from dibs.errors import StoreMismatch, StoreMissing, StoreUnavailable, UsageError
from dibs.testing import conformance
from dibs.testing.tasks import changed
from servers.redis import Cluster, Server, cluster, server
from worker.worker_support import eventually

sequences = count(1)

QUEUES = ("mail", "images", "reports")
OF_ONE_QUEUE = ("act_on", "advance", "steps", "events")
OF_SEVERAL = (
    "act_on-counts_by_queue_name_and_state_are_exact",
    "advance-each_act",
    "events-limited_and_fair_queues_alike",
    "events-only_what_is_wanted_is_written",
    "events-tasks_that_wait",
    "events-workers_and_queues",
)
CASES = [case for case in conformance.cases() if case.verb in OF_ONE_QUEUE and str(case) not in OF_SEVERAL]


@pytest.fixture(params=["cluster", "server"])
def place(request: pytest.FixtureRequest) -> Cluster | Server:
    return cluster() if request.param == "cluster" else server()


@pytest.fixture
def clustered() -> Iterator[Cluster]:
    yield (found := cluster())
    found.heal()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[ShardedEngine]:
    engine = from_url(url)
    assert isinstance(engine, ShardedEngine)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


def sharded(place: Cluster | Server, test: Callable[[ShardedEngine], Any]) -> None:
    async def main() -> None:
        async with opened(new_url(place.url, shard="queue")) as engine:
            await test(engine)

    asyncio.run(main())


def apart(cluster: Cluster, engine: ShardedEngine | None = None, prefix: str = "") -> list[str]:
    """Three queues, each on a server of its own."""
    prefix = prefix or engine.address.prefix  # type: ignore[union-attr]
    found: dict[int, str] = {}
    for number in count():
        name = f"q{number}"
        found.setdefault(cluster.primary_of(f"{{{prefix}:{name}}}:store").port, name)
        if len(found) == 3:
            return [*found.values()]
    raise AssertionError


def request(queues: tuple[str, ...], limit: int, **facts: Any) -> ClaimRequest:
    return ClaimRequest(**{"worker": "w", "sequence": next(sequences), "queues": queues, "limit": limit, **facts})


def new_id() -> str:
    return new().id


# Where queues are.


def test_queues_land_on_different_servers(clustered: Cluster) -> None:
    async def test(engine: ShardedEngine) -> None:
        queues = apart(clustered, engine)
        prefix = engine.address.prefix
        tasks = [new(queue=queue) for queue in queues * 4]
        answers = await engine.enqueue(tasks)
        assert [answer.id for answer in answers] == [task.id for task in tasks]
        for queue in queues:
            key = f"{{{prefix}:{queue}}}:tasks"
            own = clustered.primary_of(key)
            assert own.command("CLUSTER", "KEYSLOT", key) == clustered.slot_of(key)
            assert own.command("HLEN", key) == 4
            others = [queue for queue in queues if f"{{{prefix}:{queue}}}:tasks" in own.command("KEYS", "*")]
            assert others == [queue], "each server has one of them"
        assert sorted(clustered.primary_of(f"{{{prefix}}}:shards").command("HKEYS", f"{{{prefix}}}:shards")) == sorted(
            queues
        )
        claimed = await engine.claim(request(tuple(queues), 12))
        assert {task.id for task in claimed.tasks} == {task.id for task in tasks}
        assert {answer.outcome for answer in await settle(engine, claimed.tasks)} == {SettleOutcome.DONE}

    sharded(clustered, test)


def test_it_declares_that_nothing_spans_queues(place: Cluster | Server) -> None:
    plain = from_url(new_url(server().url))
    assert isinstance(plain, RedisEngine)
    assert plain.features - from_url(new_url(place.url, shard="queue")).features == {Feature.CROSS_QUEUE}


def test_looking_creates_nothing(place: Cluster | Server) -> None:
    url = new_url(place.url, shard="queue")
    nodes = place.nodes[:3] if isinstance(place, Cluster) else [place]

    def keys() -> list[str]:
        found = [key for node in nodes for key in node.command("KEYS", "*")]
        return sorted(key for key in found if key.startswith((f"{{{prefix}}}", f"{{{prefix}:")))

    prefix = from_url(url).address.prefix

    async def main() -> None:
        engine = from_url(url)
        assert await engine.migrations() == ["0001 initial"]
        with pytest.raises(StoreMissing):
            await engine.open(create=False)
        assert keys() == []
        async with opened(url):
            assert await engine.migrations() == []
        before = keys()
        await engine.open(create=False)
        missing = new_id()
        assert await engine.get([missing]) == [None]
        assert (await engine.peek("typo", 5)).tasks == []
        assert (await engine.standing("typo", [missing], tenants=5)).limits == [[]]
        assert await engine.queues() == []
        assert (await engine.search(Query(queues=("typo",)))).tasks == []
        assert await engine.set_queue_state("typo", "paused") is Changed.UNKNOWN  # type: ignore[arg-type]
        assert await engine.delete_queue("typo") is Changed.UNKNOWN
        assert await engine.stats("typo", 0, 10) == []
        assert await engine.history(missing) == []
        assert await engine.advance(missing) is None
        assert keys() == before
        await engine.close()

    asyncio.run(main())


def test_a_store_is_opened_as_it_was_made(place: Cluster | Server) -> None:
    url = new_url(place.url)
    apart_url = new_url(place.url, shard="queue")

    async def main() -> None:
        plain = from_url(url)
        await plain.open()
        await plain.close()
        with pytest.raises(StoreMismatch, match="leave shard=queue out"):
            await from_url(f"{url}&shard=queue").open()
        async with opened(apart_url) as engine:
            await engine.enqueue([new(queue="mail")])
        with pytest.raises(StoreMismatch, match="add shard=queue"):
            await from_url(apart_url.replace("&shard=queue", "")).open()
        part = apart_url.replace("&shard=queue", "%3Amail")
        with pytest.raises(StoreMismatch, match="one queue of another store"):
            await from_url(part).open()

    asyncio.run(main())


# What is done by queue.


def test_answers_are_in_the_order_asked(place: Cluster | Server) -> None:
    async def test(engine: ShardedEngine) -> None:
        tasks = [new(queue=queue) for queue in (*QUEUES, *QUEUES)]
        await engine.enqueue(tasks[:3])
        answers = await engine.enqueue(tasks)
        assert [answer.outcome for answer in answers] == [EnqueueOutcome.EXISTS] * 3 + [EnqueueOutcome.ENQUEUED] * 3
        claimed = (await engine.claim(request(QUEUES, 6))).tasks
        assert len(claimed) == 6
        held = await engine.extend([Extension(Lease(task.id, task.lease), HOUR) for task in claimed])
        assert {answer.outcome for answer in held} == {ExtendOutcome.HELD}
        wrong = [Lease(claimed[0].id, claimed[0].lease - 1), Lease(new_id(), 1)]
        reports = [Settlement(lease=lease, outcome=Outcome.COMPLETED) for lease in wrong]
        reports += [Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED) for task in claimed]
        settled = [answer.outcome for answer in await engine.settle(reports)]
        assert settled == [SettleOutcome.REFUSED] * 2 + [SettleOutcome.DONE] * 6
        found = await engine.get([task.id for task in reversed(tasks)])
        assert [record.id for record in found] == [task.id for task in reversed(tasks)]  # type: ignore[union-attr]

    sharded(place, test)


def test_another_process_finds_tasks_without_having_seen_them(place: Cluster | Server) -> None:
    async def test(engine: ShardedEngine) -> None:
        tasks = [new(queue=queue) for queue in QUEUES]
        await engine.enqueue(tasks)
        claimed = (await engine.claim(request(QUEUES, 3))).tasks
        other = ShardedEngine(engine.address, Memory())
        await other.open(create=False)
        try:
            assert [record.queue for record in await other.get([task.id for task in tasks])] == [*QUEUES]  # type: ignore[union-attr]
            held = await other.extend([Extension(Lease(task.id, task.lease), HOUR) for task in claimed])
            assert {answer.outcome for answer in held} == {ExtendOutcome.HELD}
            assert [len(await other.history(task.id)) for task in tasks] == [
                len(await engine.history(task.id)) for task in tasks
            ]
            assert {answer.outcome for answer in await settle(other, claimed)} == {SettleOutcome.DONE}
        finally:
            await other.close()

    sharded(place, test)


@pytest.mark.parametrize(("limit", "prefetch", "given"), [(1, 0, 1), (4, 0, 4), (10, 5, 15), (40, 0, 21), (0, 0, 0)])
def test_a_claim_gives_what_there_is(limit: int, prefetch: int, given: int) -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue="reports") for _ in range(20)] + [new(queue="mail")])
        claimed = await engine.claim(request((*QUEUES, "empty"), limit, prefetch=prefetch))
        assert len({task.id for task in claimed.tasks}) == given

    sharded(server(), test)


def test_a_queue_with_limits_gives_its_part_without_prefetch() -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.set_queue("mail", QueueSettings(max_concurrent=8), expected=0)
        await engine.enqueue([new(queue="mail") for _ in range(20)])
        assert len((await engine.claim(request(QUEUES, 5, prefetch=6))).tasks) == 5
        assert len((await engine.claim(request(QUEUES, 5, prefetch=6))).tasks) == 3

    sharded(server(), test)


def test_each_queue_gets_its_turn_of_a_single_slot() -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue=queue) for queue in QUEUES for _ in range(3)])
        found = [(await engine.claim(request(QUEUES, 1))).tasks[0].queue for _ in range(3)]
        assert sorted(found) == sorted(QUEUES)

    sharded(server(), test)


def test_queues_in_order() -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue=queue, priority=90 if queue == "reports" else 10) for queue in QUEUES * 2])
        found = (await engine.claim(request(QUEUES, 5, in_order=True))).tasks
        assert [task.queue for task in found] == ["mail", "mail", "images", "images", "reports"]

    sharded(server(), test)


def test_the_next_due_task_of_any_queue() -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue="mail", delay=HOUR), new(queue="images", delay=MINUTE)], now=NOW)
        assert (await engine.claim(request(QUEUES, 5), now=NOW)).next_due_in == MINUTE

    sharded(server(), test)


def test_a_claim_is_repeated() -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue=queue) for queue in QUEUES for _ in range(5)])
        asked = request(QUEUES, 9)
        first = (await engine.claim(asked)).tasks
        again = (await engine.claim(changed_request(asked, repeat=True))).tasks
        assert {(task.id, task.lease) for task in again} == {(task.id, task.lease) for task in first}
        fresh = (await engine.claim(request(QUEUES, 9, repeat=True))).tasks
        assert len(fresh) == 6

    sharded(server(), test)


def changed_request(asked: ClaimRequest, **facts: Any) -> ClaimRequest:
    return structs.replace(asked, **facts)


def test_one_listener_hears_of_all_queues(place: Cluster | Server) -> None:
    async def main() -> None:
        url = new_url(place.url, shard="queue")
        async with opened(url) as listening, opened(url) as telling:
            heard = listening.subscribe([work_topic("mail"), ended_topic("reports"), worker_topic("w")])
            while await heard.wait(1.0):  # the server has confirmed them all
                pass
            assert (await listening.claim(request(("mail", "reports"), 1))).tasks == []
            await telling.enqueue([new(queue="mail")])
            assert await heard.wait(5.0)
            (task,) = (await telling.claim(request(("mail",), 1))).tasks
            other = new(queue="reports")
            await telling.enqueue([other])
            claimed = await claim(telling, 1, queues=("reports",))
            while await heard.wait(0.2):
                pass
            await settle(telling, claimed)
            assert await heard.wait(5.0)
            while await heard.wait(0.2):
                pass
            assert await telling.act([Cancel(task.id)]) == [Changed.REQUESTED]
            assert await heard.wait(5.0), "the worker is told that its task is to stop"
            heard.close()

    asyncio.run(main())


# What is merged.


def test_what_all_queues_have_is_put_together(place: Cluster | Server) -> None:
    async def test(engine: ShardedEngine) -> None:
        tasks = [new(queue=queue) for _ in range(7) for queue in QUEUES]
        await engine.enqueue(tasks)
        assert [record.name for record in await engine.queues()] == sorted(QUEUES)
        assert {
            queue: states[State.PENDING] for queue, states in (await engine.counts()).tasks.items()
        } == dict.fromkeys(QUEUES, 7)
        assert [(each.queue, each.pending) for each in await engine.backlog()] == [
            (queue, 7) for queue in sorted(QUEUES)
        ]
        found, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            page = await engine.search(Query(limit=4, cursor=cursor))
            found += [task.id for task in page.tasks]
            cursor, pages = page.cursor, pages + 1
        assert found == sorted((task.id for task in tasks), reverse=True)
        one = await engine.search(Query(queues=("mail",), limit=50))
        assert {task.queue for task in one.tasks} == {"mail"}
        assert len(one.tasks) == 7
        assert [finding.level for finding in await engine.check(full=True) if finding.level == "error"] == []
        about = await engine.about()
        assert about.identity == (await engine.about()).identity
        assert "rerank" in {each.name for each in about.chores}

    sharded(place, test)


def test_workers_are_known_in_the_queues_that_they_serve(place: Cluster | Server) -> None:
    async def test(engine: ShardedEngine) -> None:
        minutes = [Minute(minute=5, worker="w", queue=queue, tier="medium", completed=1) for queue in QUEUES]
        beat = Beat(id="w", host="h", pid=1, version="1", queues=QUEUES, names=None, minutes=minutes)
        assert await engine.beat(beat) is WorkerState.ACTIVE
        (worker,) = await engine.workers()
        assert (worker.id, worker.queues) == ("w", QUEUES)
        assert [minute.queue for minute in await engine.stats(None, 0, 10)] == sorted(QUEUES)
        assert len(await engine.stats("mail", 0, 10)) == 1
        assert await engine.set_worker_state("w", WorkerState.PAUSED, actor="ada") is Changed.DONE
        assert await engine.set_worker_state("w", WorkerState.PAUSED) is Changed.UNCHANGED
        assert await engine.set_worker_state("nobody", WorkerState.PAUSED) is Changed.UNKNOWN
        assert await engine.beat(beat) is WorkerState.PAUSED
        assert [(entry.act, entry.actor) for entry in await engine.audit()] == [("set worker paused", "ada")]
        await engine.leave("w")
        assert await engine.workers() == []

    sharded(place, test)


def test_tasks_are_rescued_in_all_queues() -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue=queue) for queue in QUEUES], now=NOW)
        claimed = (await engine.claim(request(QUEUES, 3, lease=SECOND), now=NOW)).tasks
        rescued = await engine.rescue(now=NOW + HOUR)
        assert {task.queue for task in rescued.lost} == set(QUEUES)
        assert sorted(rescued.ids) == sorted(task.id for task in claimed)
        assert rescued.at == NOW + HOUR

    sharded(server(), test)


def test_one_worker_leads_and_does_the_chores_of_all(place: Cluster | Server) -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue=queue) for queue in QUEUES], now=NOW)
        await settle(engine, (await engine.claim(request(QUEUES, 3), now=NOW)).tasks, now=NOW)
        later = NOW + 1000 * 24 * HOUR
        term = await engine.lead("w", now=later)
        assert term is not None
        other = engine.sibling()
        await other.open()
        assert await other.lead("x", now=later) is None
        record = await engine.chore("prune_finished", term, now=later)
        assert (record.done, record.more, record.refused) == (3, False, False)
        assert (await engine.counts()).tasks["mail"][State.COMPLETED] == 0
        await engine.resign(term)
        second = await other.lead("x", now=later)
        assert second is not None
        assert second.number > term.number
        assert (await engine.chore("prune_finished", term, now=later)).refused
        assert not (await other.chore("prune_finished", second, now=later)).refused
        await other.close()

    sharded(place, test)


def test_the_term_of_a_dead_leader_ends() -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.beat(Beat(id="w", host="h", pid=1, version="1", queues=("mail",), names=None), now=NOW)
        assert await engine.lead("w", now=NOW + 29 * SECOND) is not None
        assert (await engine.rescue(now=NOW + 31 * SECOND)).workers == ["w"]
        assert await engine.lead("x", now=NOW + 31 * SECOND) is not None

    sharded(server(), test)


def test_schedules_are_in_the_part_of_their_queue(place: Cluster | Server) -> None:
    async def test(engine: ShardedEngine) -> None:
        hourly = Recurrence(every=HOUR)

        async def put(name: str, queue: str) -> Changed:
            task = changed(new(queue=queue), id="")
            return await engine.set_schedule(name, hourly, task, declared=False, now=NOW)

        assert [await put("b", "mail"), await put("a", "images"), await put("b", "mail")] == [
            Changed.DONE,
            Changed.DONE,
            Changed.UNCHANGED,
        ]
        assert [(each.name, each.task.queue) for each in await engine.schedules()] == [("a", "images"), ("b", "mail")]
        assert await put("b", "reports") is Changed.DONE
        assert [(each.name, each.task.queue) for each in await engine.schedules()] == [
            ("a", "images"),
            ("b", "reports"),
        ]
        fired = await engine.fire(now=NOW + HOUR)
        assert len(fired.tasks) == 2
        assert fired.next_due_in == HOUR
        assert {record.queue for record in await engine.get(fired.tasks)} == {"images", "reports"}  # type: ignore[union-attr]
        assert await engine.set_schedule_state("a", ScheduleState.DELETED) is Changed.DONE
        assert await engine.set_schedule_state("a", ScheduleState.DELETED) is Changed.UNKNOWN

    sharded(place, test)


def test_workflows_and_steps_of_one_queue(place: Cluster | Server) -> None:
    async def test(engine: ShardedEngine) -> None:
        begun = []
        for queue in QUEUES:
            workflow = NewWorkflow(new_id(), queue)
            first = with_spec(new(queue=queue), workflow=workflow.id)
            second = with_spec(new(queue=queue, after=(Edge(first.id),)), workflow=workflow.id)
            await engine.enqueue([first, second], atomic=True, workflow=workflow)
            later = with_spec(new(queue=queue, after=(Edge(second.id),)), workflow=workflow.id)
            await engine.enqueue([later])
            assert [need.id for need in (await engine.edges([later.id]))[0].needs] == [second.id]
            begun.append(workflow.id)
        assert [each.id for each in await engine.workflows(limit=2)] == [begun[2], begun[1]]
        assert [each.total for each in await engine.workflows(begun)] == [3, 3, 3]
        fresh = ShardedEngine(engine.address)
        await fresh.open()
        assert await fresh.act([CancelWorkflow(begun[0]), CancelWorkflow(new_id())]) == [Changed.DONE, Changed.UNKNOWN]
        await fresh.close()
        assert (await engine.workflows([begun[0]]))[0].counts[State.CANCELLED] == 3
        record = await engine.act_on(step := new_id(), Query(queues=("images",)), Cancel(""))
        while record is not None and record.ended_at is None:
            record = await engine.advance(step)
        assert (await engine.workflows([begun[1]]))[0].counts[State.CANCELLED] == 3
        assert [each.id for each in await engine.steps([step])] == [step]

    sharded(place, test)


def test_events_of_one_queue() -> None:
    async def test(engine: ShardedEngine) -> None:
        asked = EventRequest(subscriber="s", queues=("mail",))
        begun = await engine.events(asked)
        task = new(queue="mail")
        await engine.enqueue([task, new(queue="images")])
        page = await engine.events(changed_request(asked, cursor=begun.cursor))  # type: ignore[arg-type,type-var]
        assert [(event.type, event.task) for event in page.events] == [("task.submitted", task.id)]

    sharded(server(), test)


def test_the_name_of_a_queue_goes_when_nothing_is_left_of_it() -> None:
    async def test(engine: ShardedEngine) -> None:
        (answer,) = await engine.enqueue([new(queue="mail")], now=NOW)
        await engine.claim(request(("nowhere",), 1), now=NOW)
        key = f"{{{engine.address.prefix}}}:shards"

        async def names(now: int) -> list[str]:
            term = await engine.lead("w", now=now)
            assert term is not None
            await engine.chore("prune_audit", term, now=now)
            return sorted(server().command("HKEYS", key))

        assert await names(NOW) == ["mail"]
        await engine.act([Cancel(answer.id), Purge(answer.id)], now=NOW)
        assert await engine.delete_queue("mail", now=NOW) is Changed.DONE
        assert await engine.queues() == []
        assert await names(NOW) == ["mail"], "the log still says who did that"
        assert await names(NOW + 1000 * 24 * HOUR) == []
        await engine.enqueue([new(queue="mail")])
        assert [record.name for record in await engine.queues()] == ["mail"]

    sharded(server(), test)


# What is refused.


def refused(test: Callable[[ShardedEngine], Any], match: str) -> None:
    async def check(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue="mail")])
        before = (await engine.counts()).tasks
        with pytest.raises(UsageError, match=match) as caught:
            await test(engine)
        assert "shard=queue" in str(caught.value)
        assert "or leave shard=queue out" in str(caught.value)
        assert (await engine.counts()).tasks == before, "nothing was written"

    sharded(server(), check)


def test_refuses_an_atomic_batch_over_queues() -> None:
    refused(
        lambda engine: engine.enqueue([new(queue="a"), new(queue="b")], atomic=True), "all or nothing can't span queues"
    )


def test_refuses_a_workflow_over_queues() -> None:
    workflow = NewWorkflow(new_id())
    tasks = [with_spec(new(queue=queue), workflow=workflow.id) for queue in "ab"]
    refused(
        lambda engine: engine.enqueue(tasks, atomic=True, workflow=workflow), r"workflow can't span queues \(a, b\)"
    )


def test_refuses_to_wait_for_a_task_of_another_queue() -> None:
    first = new(queue="a")
    refused(
        lambda engine: engine.enqueue([first, new(queue="b", after=(Edge(first.id),))]), "wait for one of another queue"
    )

    async def stored(engine: ShardedEngine) -> None:
        needed = new(queue="a")
        await engine.enqueue([needed])
        with pytest.raises(UsageError, match="wait for one of another queue"):
            await engine.enqueue([new(queue="b", after=(Edge(needed.id),))])
        (answer,) = await engine.enqueue([new(queue="b", after=(Edge(new_id()),))])
        assert answer.outcome is EnqueueOutcome.UNKNOWN

    sharded(server(), stored)


def test_refuses_to_join_a_workflow_of_another_queue() -> None:
    async def test(engine: ShardedEngine) -> None:
        workflow = NewWorkflow(new_id())
        await engine.enqueue([with_spec(new(queue="a"), workflow=workflow.id)], atomic=True, workflow=workflow)
        with pytest.raises(UsageError, match="join a workflow of another queue"):
            await engine.enqueue([with_spec(new(queue="b"), workflow=workflow.id)])

    sharded(server(), test)


def test_refuses_reserved_slots_over_queues() -> None:
    refused(lambda engine: engine.claim(request(QUEUES, 5, floors=(Floor(80, 1),))), "slots can be reserved only")


def test_refuses_a_replay_in_another_queue() -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue="a")])
        (task,) = await claim(engine, 1, queues=("a",))
        await settle(engine, [task], Outcome.PERMANENT)
        with pytest.raises(UsageError, match="replayed in another queue"):
            await engine.act([Replay(task.id, queue="b")])
        with pytest.raises(UsageError, match="replayed in another queue"):
            await engine.act_on(new_id(), Query(queues=("a",)), Replay("", queue="b"))
        assert await engine.act([Replay(task.id, queue="a")]) == [Changed.DONE]

    sharded(server(), test)


@pytest.mark.parametrize("queues", [(), ("a", "b")])
def test_refuses_to_act_on_several_queues(queues: tuple[str, ...]) -> None:
    refused(lambda engine: engine.act_on(new_id(), Query(queues=queues), Cancel("")), "name one queue")


@pytest.mark.parametrize("queues", [(), ("a", "b")])
def test_refuses_events_of_several_queues(queues: tuple[str, ...]) -> None:
    refused(lambda engine: engine.events(EventRequest(subscriber="s", queues=queues)), "name one queue")


def test_refuses_pages_of_the_audit_log() -> None:
    refused(lambda engine: engine.audit(before=5), "page by page")


def test_refuses_what_plain_redis_does() -> None:
    async def test(engine: ShardedEngine) -> None:
        with pytest.raises(UsageError, match="no transactions to join"):
            engine.join(object())
        with pytest.raises(UsageError, match="backed up with its server"):
            await engine.backup(None)  # type: ignore[arg-type]

    sharded(server(), test)


# With one queue named, these verbs do what they do elsewhere.


class OfOneQueue(ShardedEngine):
    """Names the only queue of a test where the test names none."""

    async def act_on(self, step: str, query: Query, act: Any, **given: Any) -> Any:
        return await super().act_on(step, structs.replace(query, queues=query.queues or ("default",)), act, **given)

    async def events(self, request: EventRequest, **given: Any) -> Any:
        return await super().events(structs.replace(request, queues=request.queues or ("default",)), **given)

    def sibling(self) -> Any:
        return OfOneQueue(self.address, self._memory)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conforms_where_a_queue_is_named(case: conformance.Case) -> None:
    asyncio.run(case.drive(OfOneQueue(address_of(new_url(server().url, shard="queue")))))


# Workers, and servers that go away.


def test_a_worker_serves_queues_of_different_servers(clustered: Cluster) -> None:
    url = new_url(clustered.url, shard="queue")
    one, two, _ = apart(clustered, prefix=from_url(url).address.prefix)
    with Dibs(url) as app:

        @app.task(queue=one)
        def double(n: int) -> int:
            return 2 * n

        @app.task(queue=two)
        def triple(n: int) -> int:
            return 3 * n

        with app.worker(queues=[one, two], concurrency=4):
            handles = [(double if n % 2 else triple).enqueue(n) for n in range(40)]
            assert [handle.result(timeout=20) for handle in handles] == [n * (2 if n % 2 else 3) for n in range(40)]
            (worker,) = app.workers.list()
            assert set(worker.queues) == {one, two}
        with pytest.raises(UsageError, match="can't span queues"):
            app.enqueue_many([double.call(1), triple.call(2)])
        counts = {queue.name: queue.counts[State.COMPLETED] for queue in app.queues.list()}
        assert counts == {one: 20, two: 20}


def test_other_queues_go_on_while_a_server_is_gone(clustered: Cluster) -> None:
    url = new_url(clustered.url, shard="queue")
    prefix = from_url(url).address.prefix
    queues = apart(clustered, prefix=prefix)
    root = clustered.primary_of(f"{{{prefix}}}:store").port
    gone, *others = sorted(queues, key=lambda queue: clustered.primary_of(f"{{{prefix}:{queue}}}:store").port == root)
    other = others[0]

    async def main() -> None:
        async with opened(url) as engine:
            await engine.enqueue([new(queue=queue) for queue in (gone, other) for _ in range(3)])
            held = (await engine.claim(request((gone, other), 2))).tasks
            assert {task.queue for task in held} == {gone, other}
            key = f"{{{prefix}:{gone}}}:store"
            with clustered.no_failover():
                old = clustered.kill_primary(key)
                with pytest.raises(PartlyAnswered) as caught:
                    await engine.extend([Extension(Lease(task.id, task.lease), HOUR) for task in held])
                assert [answer is None for answer in caught.value.answers] == [task.queue == gone for task in held]
                with pytest.raises(PartlyAnswered):
                    await settle(engine, held)
                claimed = (await engine.claim(request((gone, other), 2))).tasks
                assert {task.queue for task in claimed} == {other}
                assert {answer.outcome for answer in await settle(engine, claimed)} == {SettleOutcome.DONE}
                await engine.enqueue([new(queue=other)])
                assert (await engine.rescue()).lost == []
                with pytest.raises(StoreUnavailable):
                    await engine.enqueue([new(queue=gone)])
            clustered.until_failover(key, old)
            await somehow(lambda: engine.enqueue([new(queue=gone)]))
            assert {answer.outcome for answer in await somehow(lambda: settle(engine, held))} <= {
                SettleOutcome.DONE,
                SettleOutcome.ALREADY,
            }

            async def comes_back() -> bool:
                return any(task.queue == gone for task in (await engine.claim(request((gone, other), 2))).tasks)

            await until(comes_back)

    asyncio.run(main())


def test_a_worker_goes_on_with_the_other_queue(clustered: Cluster) -> None:
    url = new_url(clustered.url, shard="queue")
    prefix = from_url(url).address.prefix
    queues = apart(clustered, prefix=prefix)
    root = clustered.primary_of(f"{{{prefix}}}:store").port
    gone, *others = sorted(queues, key=lambda queue: clustered.primary_of(f"{{{prefix}:{queue}}}:store").port == root)
    with Dibs(url) as app:
        ran: list[str] = []

        @app.task(queue=gone)
        def here(n: int) -> None:
            ran.append(f"here {n}")

        @app.task(queue=others[0])
        def there(n: int) -> int:
            ran.append(f"there {n}")
            return n

        with app.worker(queues=[gone, others[0]], concurrency=4):
            here.enqueue(0).result(timeout=20)
            there.enqueue(0).result(timeout=20)
            key = f"{{{prefix}:{gone}}}:store"
            old = clustered.kill_primary(key)
            for n in range(1, 20):
                assert there.enqueue(n).result(timeout=20) == n
            assert clustered.nodes  # whether the replica has taken over by now does not matter
            clustered.until_failover(key, old)

            def enqueued() -> bool:
                try:
                    here.enqueue(1)
                except StoreUnavailable:
                    return False
                return True

            eventually(enqueued)
            eventually(lambda: "here 1" in ran)


def test_a_killed_worker_is_noticed_in_its_queue(clustered: Cluster) -> None:
    async def test(engine: ShardedEngine) -> None:
        (queue, *_) = apart(clustered, engine)
        await engine.enqueue([new(queue=queue)])
        child = os.fork()
        if child == 0:  # pragma: no cover
            try:
                asyncio.run(die_with_a_task(engine.address, queue))
            finally:
                os._exit(0)

        async def runs() -> bool:
            return (await engine.counts()).tasks[queue][State.RUNNING] == 1

        await until(runs)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

        async def rescued() -> list[str]:
            await asyncio.sleep(0.5)
            return (await engine.rescue(ended_by=0)).ids

        assert len(await until(rescued)) == 1
        assert (await engine.workers())[0].state is WorkerState.DEAD

    sharded(clustered, test)


async def die_with_a_task(address: Any, queue: str) -> None:
    engine = ShardedEngine(address)
    await engine.open()
    await engine.beat(Beat(id="child", host="h", pid=os.getpid(), version="1", queues=(queue,), names=None))
    await engine.claim(request((queue,), 1, worker="child", lease=HOUR))
    await asyncio.sleep(600)


def test_a_forked_child_leaves_the_parents_connections_alone() -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue="mail")])
        engine.forget()
        await engine.open()
        await engine.enqueue([new(queue="mail")])
        assert (await engine.counts()).tasks["mail"][State.PENDING] == 2

    sharded(server(), test)


def test_closed_means_closed() -> None:
    async def test(engine: ShardedEngine) -> None:
        await engine.enqueue([new(queue="mail")])
        await engine.close()
        await engine.close()
        await engine.open()
        assert [record.name for record in await engine.queues()] == ["mail"]

    sharded(server(), test)


def test_rights_to_both_kinds_of_keys_are_enough() -> None:
    own = Server()
    rights = "resetkeys resetchannels ~{acl}:* ~{acl:*}:* &{acl}:* &{acl:*}:* -@all"
    own.command("ACL", "SETUSER", "least", "on", ">secret", *rights.split(), *COMMANDS.split())

    async def main() -> None:
        async with opened(f"redis://least:secret@127.0.0.1:{own.port}/0?prefix=acl&shard=queue") as engine:
            heard = engine.subscribe([work_topic("mail")])
            assert await heard.wait(10)
            await engine.enqueue([new(queue=queue) for queue in QUEUES])
            claimed = (await engine.claim(request(QUEUES, 3))).tasks
            assert {answer.outcome for answer in await settle(engine, claimed)} == {SettleOutcome.DONE}
            heard.close()

    try:
        asyncio.run(main())
    finally:
        own.remove()
