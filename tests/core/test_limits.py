"""Limits: the token bucket, free slots, and which limits a task stands under."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dibs.core.limits import (
    TOKEN,
    Bucket,
    Scope,
    client_limit,
    free_slots,
    limit_of,
    limit_state,
    limits_for,
    refill,
    spend,
    tokens,
    until_token,
)
from dibs.core.settings import Limit, QueueSettings
from dibs.core.times import DAY, SECOND, Duration, Instant

START: Instant = 1_760_000_000 * SECOND
rates = st.floats(0.001, 10_000)
bursts = st.none() | st.integers(1, 1_000)
LIMITED = QueueSettings(
    max_concurrent=9,
    rate=5.0,
    per_task={"send": Limit(max_concurrent=2), "fetch": Limit(rate=1.0, burst=3)},
    per_partition=Limit(max_concurrent=1),
    enqueue_rate=10.0,
    enqueue_burst=20,
)


def test_a_new_bucket_is_full() -> None:
    assert tokens(refill(None, Limit(rate=5.0), START)) == 5
    assert tokens(refill(None, Limit(rate=0.2), START)) == 1
    assert tokens(refill(None, Limit(rate=5.0, burst=2), START)) == 2


def test_tokens_come_at_the_rate() -> None:
    limit = Limit(rate=2.0, burst=3)
    empty = spend(refill(None, limit, START), 3)
    assert [tokens(refill(empty, limit, START + n * SECOND // 4)) for n in range(7)] == [0, 0, 1, 1, 2, 2, 3]
    assert tokens(refill(empty, limit, START + DAY)) == 3


@given(rate=rates, burst=bursts, waits=st.lists(st.integers(0, 10 * SECOND), max_size=20))
def test_never_more_than_burst_and_rate_allow(rate: float, burst: int | None, waits: list[Duration]) -> None:
    limit = Limit(rate=rate, burst=burst)
    bucket, now, spent = refill(None, limit, START), START, 0
    first = tokens(bucket)
    for wait in waits:
        now += wait
        bucket = refill(bucket, limit, now)
        spent += tokens(bucket)
        bucket = spend(bucket, tokens(bucket))
        assert 0 <= bucket.level < TOKEN
    assert spent <= first + rate * (now - START) / SECOND + 1e-6


@given(rate=rates, level=st.integers(0, TOKEN - 1))
def test_the_next_token_comes_when_it_was_said(rate: float, level: int) -> None:
    limit = Limit(rate=rate)
    bucket = Bucket(level, START)
    wait = until_token(bucket, limit)
    assert tokens(refill(bucket, limit, START + wait + 2)) == 1, "a microsecond or two may be lost to rounding"
    assert tokens(refill(bucket, limit, START + int(wait * 0.99) - 2)) == 0


def test_a_clock_that_goes_back_takes_nothing() -> None:
    bucket = Bucket(2 * TOKEN, START)
    assert refill(bucket, Limit(rate=1.0, burst=5), START - DAY) == bucket


def test_a_smaller_burst_holds_at_once() -> None:
    assert tokens(refill(Bucket(5 * TOKEN, START), Limit(rate=1.0, burst=2), START)) == 2


def test_free_slots() -> None:
    assert free_slots(Limit(rate=1.0), 99) is None
    assert free_slots(Limit(max_concurrent=3), 1) == 2
    assert free_slots(Limit(max_concurrent=3), 7) == 0


def test_a_task_stands_under_its_queue_its_name_and_its_partition() -> None:
    found = list(limits_for(LIMITED, "send", "acme"))
    assert found == [
        (Scope.QUEUE, "", Limit(9, 5.0)),
        (Scope.TASK, "send", Limit(max_concurrent=2)),
        (Scope.PARTITION, "acme", Limit(max_concurrent=1)),
    ]


def test_what_is_not_limited_is_not_named() -> None:
    assert [scope for scope, _, _ in limits_for(LIMITED, "other", None)] == [Scope.QUEUE]
    assert list(limits_for(QueueSettings(), "send", "acme")) == []
    assert list(limits_for(QueueSettings(enqueue_rate=1.0), "send", "acme")) == [], "clients are no limit on starts"


def test_the_limit_of_a_scope() -> None:
    assert limit_of(LIMITED, Scope.TASK, "fetch") == Limit(rate=1.0, burst=3)
    assert limit_of(LIMITED, Scope.TASK, "other") is None
    assert limit_of(LIMITED, Scope.PARTITION, "whoever") == Limit(max_concurrent=1)
    assert limit_of(LIMITED, Scope.CLIENT, "whoever") == client_limit(LIMITED) == Limit(rate=10.0, burst=20)
    assert client_limit(QueueSettings()) is None


def test_a_limit_as_people_are_told_of_it() -> None:
    slots = limit_state(Scope.PARTITION, "acme", Limit(max_concurrent=2), 1, None, START)
    assert (slots.running, slots.max_concurrent, slots.tokens, slots.opens_in) == (1, 2, None, None)
    assert not slots.is_full
    assert limit_state(Scope.PARTITION, "acme", Limit(max_concurrent=2), 2, None, START).is_full
    limit = Limit(rate=2.0, burst=1)
    unused = limit_state(Scope.TASK, "send", limit, 0, None, START)
    assert (unused.tokens, unused.opens_in, unused.is_full) == (1, None, False)
    used = limit_state(Scope.TASK, "send", limit, 0, Bucket(0, START), START + SECOND // 4)
    assert (used.tokens, used.opens_in, used.is_full) == (0, SECOND // 4, True)
