"""enqueue_rate: what one client may hand over to a queue, and in how long there is room again."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Outcome, QueueState
from dibs.core.times import HOUR, SECOND
from dibs.engines.figures import Counter
from dibs.engines.values import Changed, EnqueueOutcome, Replay
from dibs.testing.conformance.harness import QUEUE, Harness

ENQUEUED, LIMITED = EnqueueOutcome.ENQUEUED, EnqueueOutcome.LIMITED
EXISTS, DUPLICATE, CONFLICT = EnqueueOutcome.EXISTS, EnqueueOutcome.DUPLICATE, EnqueueOutcome.CONFLICT


async def test_too_fast_is_refused_and_told_when(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=2, enqueue_burst=3)
    batch = [harness.new(client="a") for _ in range(5)]
    answers = await harness.engine.enqueue(batch, now=harness.now)
    assert [answer.outcome for answer in answers] == [ENQUEUED] * 3 + [LIMITED] * 2
    assert [answer.retry_in for answer in answers] == [None] * 3 + [SECOND // 2] * 2
    assert answers[4].id == batch[4].id
    assert await harness.engine.get([batch[3].id]) == [None]
    assert (await harness.counter(Counter.LIMITED), await harness.counter(Counter.ENQUEUED)) == (2, 3)
    harness.later(SECOND // 2)
    assert await harness.outcomes(batch[3], batch[4]) == [ENQUEUED, LIMITED]


async def test_each_client_for_itself(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=1, enqueue_burst=1)
    batch = [harness.new(client=client) for client in ("a", "b", "a", "", "b", "")]
    assert await harness.outcomes(*batch) == [ENQUEUED, ENQUEUED, LIMITED, ENQUEUED, LIMITED, LIMITED]


async def test_each_queue_for_itself(harness: Harness) -> None:
    await harness.set_queue("one", enqueue_rate=1, enqueue_burst=1)
    await harness.set_queue("two", enqueue_rate=1, enqueue_burst=1)
    queues = ("one", "two", "free", "one", "free")
    batch = [harness.new(client="a", queue=queue) for queue in queues]
    assert await harness.outcomes(*batch) == [ENQUEUED, ENQUEUED, ENQUEUED, LIMITED, ENQUEUED]


async def test_later_tasks_and_those_that_wait_cost_too(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=1, enqueue_burst=2)
    need = await harness.add(queue="elsewhere")
    await harness.add(client="a", delay=HOUR)
    await harness.follow(need, client="a")
    assert await harness.outcomes(harness.new(client="a", delay=HOUR)) == [LIMITED]


async def test_what_is_already_there_costs_nothing(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=1, enqueue_burst=2)
    task = harness.new(client="a", key="k", fingerprint="f")
    await harness.enqueue(task)
    for _ in range(3):
        again = harness.new(client="a", key="k", fingerprint="f")
        other = harness.new(client="a", key="k", fingerprint="g")
        assert await harness.outcomes(task, again, other) == [EXISTS, DUPLICATE, CONFLICT]
    replaced = harness.new(client="a", key="k", replace=True)
    assert await harness.outcomes(replaced, replaced) == [EnqueueOutcome.REPLACED] * 2
    assert await harness.outcomes(harness.new(client="a"), harness.new(client="a")) == [ENQUEUED, LIMITED]
    assert await harness.outcomes(task) == [EXISTS], "too fast or not"


async def test_what_is_refused_costs_nothing(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=1, enqueue_burst=1, max_depth=1)
    await harness.add(client="b")
    assert await harness.outcomes(harness.new(client="a"), harness.new(client="a")) == [EnqueueOutcome.FULL] * 2
    await harness.claim()
    assert await harness.outcomes(harness.new(client="a")) == [ENQUEUED]


async def test_draining_is_said_first_and_full_last(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=1, enqueue_burst=1, max_depth=1)
    await harness.add(client="a")
    assert await harness.outcomes(harness.new(client="a"), harness.new(client="b")) == [LIMITED, EnqueueOutcome.FULL]
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    assert await harness.outcomes(harness.new(client="a")) == [EnqueueOutcome.DRAINING]


async def test_an_atomic_batch_pays_for_all_or_for_nothing(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=1, enqueue_burst=3)
    batch = [harness.new(client="a") for _ in range(4)]
    assert await harness.outcomes(*batch, atomic=True) == [EnqueueOutcome.ABANDONED] * 3 + [LIMITED]
    assert await harness.counts() == {}
    assert await harness.outcomes(*batch[:3], atomic=True) == [ENQUEUED] * 3
    assert await harness.outcomes(batch[3]) == [LIMITED]


async def test_a_new_rate_holds_at_once(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=0.001, enqueue_burst=1)
    await harness.add(client="a")
    (answer,) = await harness.engine.enqueue([harness.new(client="a")], now=harness.now)
    assert (answer.outcome, answer.retry_in) == (LIMITED, 1_000 * SECOND)
    await harness.set_queue(enqueue_rate=None, enqueue_burst=None)
    assert await harness.outcomes(*(harness.new(client="a") for _ in range(5))) == [ENQUEUED] * 5


async def test_what_comes_back_costs_nothing(harness: Harness) -> None:
    await harness.set_queue(enqueue_rate=0.001, enqueue_burst=1)
    task = await harness.start(client="a")
    await harness.settle(task, Outcome.RELEASED)
    await harness.finish(task.id, Outcome.PERMANENT)
    assert await harness.engine.act([Replay(task.id)], now=harness.now) == [Changed.DONE]
    assert await harness.counts() == {State.PENDING: 1}
