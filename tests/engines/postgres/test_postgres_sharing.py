"""Several engines on one PostgreSQL store at the same time: what each does is whole, and nobody is in another's way."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally

from postgres_help import NOW, claim, connection, engines, new, run, set_queue, settle, sound

from dibs.client.app import Dibs
from dibs.core.graph import Edge
from dibs.core.states import State
from dibs.core.task import Lease, NewTask, Outcome, Settlement
from dibs.core.times import DAY, SECOND
from dibs.engines.base import Subscription
from dibs.engines.postgres import PostgresEngine
from dibs.engines.postgres.statements import statement
from dibs.engines.topics import room_topic, work_topic
from dibs.engines.values import Changed, ClaimRequest, EnqueueOutcome, ExtendOutcome, Extension, SettleOutcome
from servers.postgres import new_url

PATIENCE = 10.0


def test_every_task_is_given_to_one() -> None:
    async def test() -> None:
        async with engines(4) as workers:
            tasks = [new(name=f"kind{i % 3}", priority=(50, 70, 20)[i % 3]) for i in range(600)]
            await workers[0].enqueue(tasks)

            async def work(engine: PostgresEngine, worker: str) -> list[str]:
                given: list[str] = []
                while found := await claim(engine, 7, worker):
                    given += [task.id for task in found]
                    await settle(engine, found)
                return given

            given = await asyncio.gather(*(work(engine, f"w{i}") for i, engine in enumerate(workers)))
            assert Tally(task_id for each in given for task_id in each) == Tally(task.id for task in tasks)
            assert (await workers[0].counts()).tasks["default"][State.COMPLETED] == len(tasks)
            await sound(workers[0])

    run(test)


def test_one_key_is_one_task() -> None:
    async def test() -> None:
        async with engines(4) as workers:
            keys = [f"k{i}" for i in range(40)]

            async def produce(engine: PostgresEngine, order: int) -> list[EnqueueOutcome]:
                batch = [new(key=key) for key in (keys if order % 2 else reversed(keys))]
                answers = await engine.enqueue(batch)
                return [answer.outcome for answer in answers]

            outcomes = await asyncio.gather(*(produce(engine, i) for i, engine in enumerate(workers)))
            counted = Tally(outcome for each in outcomes for outcome in each)
            assert counted == {EnqueueOutcome.ENQUEUED: len(keys), EnqueueOutcome.DUPLICATE: 3 * len(keys)}
            await sound(workers[0])

    run(test)


def test_one_id_is_one_task() -> None:
    async def test() -> None:
        async with engines(4) as workers:
            for batch in ([new() for _ in range(20)], [new(deadline=2**50) for _ in range(20)]):
                answers = await asyncio.gather(*(engine.enqueue(batch) for engine in workers))
                counted = Tally(answer.outcome for each in answers for answer in each)
                assert counted == {EnqueueOutcome.ENQUEUED: 20, EnqueueOutcome.EXISTS: 60}
            assert (await workers[0].counts()).tasks["default"][State.PENDING] == 40

    run(test)


def test_a_repeat_of_what_has_ended_meanwhile_is_known() -> None:
    async def test() -> None:
        async with engines(2) as (producer, worker):
            for _ in range(30):
                task = new()
                await producer.enqueue([task])
                found = await claim(worker, 1)
                _, answers = await asyncio.gather(settle(worker, found), producer.enqueue([task]))
                assert answers[0].outcome is EnqueueOutcome.EXISTS
            assert await claim(worker, 1) == []
            await sound(producer)

    run(test)


def test_prerequisites_that_end_together_unblock() -> None:
    async def test() -> None:
        async with engines(3) as workers:
            for _ in range(15):
                needs = [new() for _ in range(3)]
                dependent = new(after=tuple(Edge(need.id) for need in needs))
                await workers[0].enqueue([*needs, dependent])
                found = await claim(workers[0], 3)
                assert len(found) == 3
                await asyncio.gather(*(settle(engine, [task]) for engine, task in zip(workers, found, strict=True)))
                (task,) = await claim(workers[0], 3)
                assert task.id == dependent.id
                await settle(workers[0], [task])
            await sound(workers[0])

    run(test)


def test_waiting_for_what_ends_just_now() -> None:
    async def test() -> None:
        async with engines(2) as (producer, worker):
            for _ in range(30):
                need = new()
                await producer.enqueue([need])
                found = await claim(worker, 1)
                dependent = new(after=(Edge(need.id),))
                await asyncio.gather(settle(worker, found), producer.enqueue([dependent]))
                (task,) = await claim(worker, 5)
                assert task.id == dependent.id
                await settle(worker, [task])
            await sound(producer)

    run(test)


def test_a_limit_holds_whoever_claims() -> None:
    async def test() -> None:
        async with engines(4) as workers:
            await set_queue(workers[0], max_concurrent=3)
            await workers[0].enqueue([new() for _ in range(60)])
            running: Tally[str] = Tally()
            most = 0
            done = 0

            async def work(engine: PostgresEngine, worker: str) -> None:
                nonlocal most, done
                while done < 60:
                    found = await claim(engine, 2, worker)
                    running[worker] = len(found)
                    most = max(most, running.total())
                    running[worker] = 0
                    await settle(engine, found)
                    done += len(found)

            await asyncio.gather(*(work(engine, f"w{i}") for i, engine in enumerate(workers)))
            assert most <= 3
            await sound(workers[0])

    run(test)


def test_one_at_a_time_by_partition() -> None:
    async def test() -> None:
        async with engines(4) as workers:
            await set_queue(workers[0], per_partition=1)
            tasks = [new(partition=f"p{i % 5}") for i in range(50)]
            await workers[0].enqueue(tasks)
            holders: dict[str, str] = {}
            done = 0

            async def work(engine: PostgresEngine, worker: str) -> None:
                nonlocal done
                while done < len(tasks):
                    for task in await claim(engine, 3, worker):
                        assert holders.setdefault(task.spec.partition or "", task.id) == task.id
                        del holders[task.spec.partition or ""]
                        await settle(engine, [task])
                        done += 1

            await asyncio.gather(*(work(engine, f"w{i}") for i, engine in enumerate(workers)))
            assert done == len(tasks)
            await sound(workers[0])

    run(test)


def test_a_zombie_and_an_heir() -> None:
    async def test() -> None:
        async with engines(2) as (zombie, heir):
            await zombie.enqueue([new()], now=0)
            (old,) = await claim(zombie, 1, now=0)
            await heir.rescue(now=2**40)
            (task,) = await claim(heir, 1, now=2**40)
            late = [Settlement(lease=Lease(old.id, old.lease), outcome=Outcome.COMPLETED)]
            refused, _ = await asyncio.gather(zombie.settle(late), settle(heir, [task]))
            assert [answer.outcome for answer in refused] == [SettleOutcome.REFUSED]
            (record,) = await heir.get([task.id])
            assert record is not None
            assert (record.state, record.settled_lease) == (State.COMPLETED, task.lease)

    run(test)


def test_a_batch_is_extended_or_taken_back() -> None:
    """The one that comes first has the whole batch; never do both believe that they have a task."""

    async def test() -> None:
        async with engines(2) as (late, rescuer):
            for number in range(30):
                at = number * 10**9
                await late.enqueue([new() for _ in range(20)], now=at)
                tasks = await claim(late, 20, now=at)
                asked = [Extension(Lease(task.id, task.lease), 30 * SECOND) for task in tasks]
                await late.extend(asked, now=at)
                at += 60 * SECOND
                part = asked[: (20, 20, 10, 3)[number % 4]]
                answers, rescued = await asyncio.gather(late.extend(part, now=at), rescuer.rescue(now=at))
                lost = rescued.ids + (await rescuer.rescue(now=at)).ids  # what was being extended was left
                held = [
                    asked.lease.id
                    for asked, answer in zip(part, answers, strict=True)
                    if answer.outcome is ExtendOutcome.HELD
                ]
                for each in await late.get([task.id for task in tasks]):
                    assert each is not None
                    is_held = each.id in held
                    assert (each.state is State.RUNNING, each.id in lost) == (is_held, not is_held)
                    assert each.lease_expires_at == (at + 30 * SECOND if is_held else None)
                left = [Lease(task.id, task.lease) for task in tasks if task.id in held]
                await late.settle([Settlement(lease=lease, outcome=Outcome.COMPLETED) for lease in left], now=at)
                await settle(late, await claim(late, 20, now=at + DAY), now=at + DAY)
            assert not (await rescuer.rescue(now=NOW)).ids
            async with connection() as own:
                assert await own.fetchval(f"SELECT count(*) FROM {late.address.schema}.batches") == 0
            await sound(late)

    run(test)


def test_a_heartbeat_does_not_wait_for_a_task_that_a_transaction_has_locked() -> None:
    """It counts as alive with the rest of its batch; what it reports is left out."""

    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            await engine.enqueue([new() for _ in range(10)], now=NOW)
            tasks = await claim(engine, 10, now=NOW)
            asked = [Extension(Lease(task.id, task.lease), 30 * SECOND, progress=0.5) for task in tasks]
            await engine.extend([Extension(each.lease, each.by) for each in asked], now=NOW)
            await own.execute("BEGIN")
            await own.execute(f"SELECT FROM {engine.address.schema}.tasks WHERE id = $1 FOR UPDATE", tasks[0].id)
            async with asyncio.timeout(PATIENCE):
                for some in (asked, asked[1:], asked[:2]):
                    answers = await engine.extend(some, now=NOW + SECOND)
                    assert {answer.outcome for answer in answers} == {ExtendOutcome.HELD}
            await own.execute("ROLLBACK")
            records = await engine.get([task.id for task in tasks])
            assert [record.progress for record in records if record is not None] == [None] + [0.5] * 9
            await sound(engine)

    run(test)


def test_a_queue_that_is_deleted_leaves_nothing_behind() -> None:
    async def test() -> None:
        async with engines(3) as workers:
            for _ in range(5):
                await workers[0].enqueue([new() for _ in range(20)])
                batches: list[list[NewTask]] = [[new() for _ in range(3)] for _ in range(20)]
                deleted, *_ = await asyncio.gather(
                    workers[0].delete_queue("default", force=True),
                    *(workers[1 + i % 2].enqueue(batch) for i, batch in enumerate(batches)),
                )
                assert deleted is Changed.DONE
                names = {record.name for record in await workers[0].queues()}
                counts = (await workers[0].counts()).tasks.get("default", {})
                waiting = sum(counts.get(state, 0) for state in (State.PENDING, State.SCHEDULED))
                assert waiting == 0 or "default" in names, "what waits must be in a queue that exists"
                await workers[0].delete_queue("default", force=True)
            await sound(workers[0])

    run(test)


def test_rings_are_heard_elsewhere() -> None:
    async def test() -> None:
        async with engines(2) as (producer, worker):
            await producer.enqueue([new()])
            subscription = worker.subscribe([work_topic("default")])
            await subscription.wait(
                PATIENCE
            )  # it notifies when it begins to listen, as something may have happened before
            for _ in range(3):
                waiting = asyncio.create_task(subscription.wait(PATIENCE))
                await producer.enqueue([new()])
                assert await waiting
            subscription.close()

    run(test)


def test_room_is_heard_of_elsewhere() -> None:
    """A plain claim is one statement; it notifies only if a queue that it took from may be full."""

    async def test() -> None:
        async with engines(2) as (producer, worker):
            await set_queue(producer, max_depth=5)
            await producer.enqueue([new() for _ in range(4)])
            await producer.enqueue([new(queue="boundless")])
            await worker.claim(ClaimRequest(worker="w", sequence=10**6, queues=("boundless",), limit=1))
            assert worker._store is not None
            assert room_topic("boundless") not in worker._store.notifier.rate.due
            subscription = producer.subscribe([room_topic("default")])
            for _ in range(2):  # it listens now, and has looked again
                assert await subscription.wait(PATIENCE)
            for _ in range(3):
                assert len(await claim(worker, 1)) == 1
                assert await subscription.wait(PATIENCE)
            subscription.close()

    run(test)


def test_a_promoted_task_is_still_ranked_by_the_settings_it_was_ranked_by() -> None:
    """Also in a queue whose tasks concern each other: only the rerank chore ranks again, and it must find the task."""

    async def test() -> None:
        async with engines() as (engine,):
            await set_queue(engine, fair=True)
            task = new(delay=SECOND, priority=100)
            await engine.enqueue([task], now=NOW)
            await set_queue(engine, policy="strict")
            later = NOW + 2 * SECOND
            request = ClaimRequest(worker="w", sequence=1, queues=("nowhere",), limit=1)
            await engine.claim(request, now=later)
            (record,) = await engine.get([task.id])
            assert record is not None
            assert record.state is State.PENDING
            assert [queue.stale for queue in await engine.queues()] == [1]
            term = await engine.lead("leader", now=later)
            assert term is not None
            await engine.chore("rerank", term, now=later)
            (ranked,) = await engine.get([task.id])
            assert ranked is not None
            assert ranked.rank_offset < record.rank_offset
            assert [queue.stale for queue in await engine.queues()] == [0]

    run(test)


def test_a_known_task_makes_no_queue() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            task = new()
            await engine.enqueue([task])
            await engine.delete_queue("default", force=True)
            (answer,) = await engine.enqueue([task])
            assert answer.outcome is EnqueueOutcome.EXISTS
            assert await engine.queues() == []

    run(test)


def test_a_long_transaction_of_a_user_keeps_nobody_from_working_while_settings_wait_for_it() -> None:
    async def test() -> None:
        async with engines(2) as (one, other), connection() as own:
            await one.enqueue([new()])
            transaction = own.transaction()
            await transaction.start()
            lock = f"SELECT pg_advisory_xact_lock_shared(hashtextextended('\"{one.address.schema}\".queues', 0))"
            await own.execute(lock)  # as every write does
            changing = asyncio.create_task(set_queue(one, max_depth=5))
            for _ in range(20):  # each of these would wait for ever behind it
                await other.enqueue([new()])
            assert not changing.done()
            await transaction.rollback()
            await changing
            assert (await one.queues())[0].settings.max_depth == 5

    run(test)


def test_a_day_on_which_something_has_ended_already_gets_no_partition_and_costs_nothing() -> None:
    """A leader who looked just before it ended comes too late, and is no worse off for it."""

    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            await engine.enqueue([new()], now=NOW)
            await settle(engine, await claim(engine, 1, now=NOW), now=NOW)
            day = NOW // DAY
            make = statement("make_day", engine.address.schema)
            assert [await own.fetchval(make, each) for each in (day, day + 1, day + 1)] == [False, True, False]
            assert ((await engine.counts()).tasks)["default"][State.COMPLETED] == 1

    run(test)


def test_metadata_that_is_only_equal_stays_apart() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            tasks = [new(metadata={"flag": flag}) for flag in (True, 1, 1.0)]
            await engine.enqueue([new()])
            await engine.enqueue(tasks)
            found = [record.spec.metadata["flag"] for record in await engine.get([task.id for task in tasks]) if record]
            assert [type(flag) for flag in found] == [bool, int, float]

    run(test)


def test_a_single_blocking_call_is_heard() -> None:
    """Nobody drives the loop of a blocking caller after it, so whatever is to be sent must have been sent by then."""
    url = new_url()
    with Dibs(url) as listening, Dibs(url) as calling:
        task = calling.task(name="work")(lambda: None)
        task.enqueue()  # makes the queue
        listening.hub.runner.serve()
        subscription = listening.hub.runner.run(listen(listening))
        task.enqueue()
        assert listening.hub.runner.run(subscription.wait(PATIENCE))


async def listen(app: Dibs) -> Subscription:
    subscription = app.hub.engine.subscribe([work_topic("default")])
    for _ in range(2):  # it listens now, and has looked again
        assert await subscription.wait(PATIENCE)
    return subscription


def test_days_wait_for_whoever_reads_and_nobody_waits_for_the_days() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema, term = engine.address.schema, await engine.lead("w")
            assert term is not None
            async with own.transaction():
                await own.execute(f"SELECT 1 FROM {schema}.finished LIMIT 1")  # somebody's report
                assert (await engine.chore("make_days", term)).done == 0
                await engine.enqueue([new()])
            assert (await engine.chore("make_days", term)).done == 1

    run(test)


def test_who_has_a_queue_to_himself_does_not_wait_long_for_a_row() -> None:
    """A user's transaction holds a key; an enqueue with the same key waits without blocking claims."""

    async def test() -> None:
        async with engines(2) as (one, other), connection() as own:
            await set_queue(one, per_partition=1)
            task = new(key="k", fingerprint="f")
            await one.enqueue([task, new()])
            async with own.transaction():
                await own.execute(f"SELECT 1 FROM {one.address.schema}.keys FOR UPDATE")
                waiting = asyncio.create_task(one.enqueue([new(key="k", fingerprint="f")]))
                for _ in range(3):
                    await claim(other, 1)
                assert not waiting.done()
            assert (await waiting)[0].outcome is EnqueueOutcome.DUPLICATE

    run(test)
