"""The token bucket and free slots."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dibs.core.limits import TOKEN, Bucket, free_slots, refill, spend, tokens, until_token
from dibs.core.settings import QueueSettings
from dibs.core.times import DAY, SECOND, Duration, Instant

START: Instant = 1_760_000_000 * SECOND
rates = st.floats(0.001, 10_000)
bursts = st.none() | st.integers(1, 1_000)


def test_a_new_bucket_is_full() -> None:
    assert tokens(refill(None, QueueSettings(rate=5.0), START)) == 5
    assert tokens(refill(None, QueueSettings(rate=0.2), START)) == 1
    assert tokens(refill(None, QueueSettings(rate=5.0, burst=2), START)) == 2


def test_tokens_come_at_the_rate() -> None:
    queue = QueueSettings(rate=2.0, burst=3)
    empty = spend(refill(None, queue, START), 3)
    assert [tokens(refill(empty, queue, START + n * SECOND // 4)) for n in range(7)] == [0, 0, 1, 1, 2, 2, 3]
    assert tokens(refill(empty, queue, START + DAY)) == 3


@given(rate=rates, burst=bursts, waits=st.lists(st.integers(0, 10 * SECOND), max_size=20))
def test_never_more_than_burst_and_rate_allow(rate: float, burst: int | None, waits: list[Duration]) -> None:
    queue = QueueSettings(rate=rate, burst=burst)
    bucket, now, spent = refill(None, queue, START), START, 0
    first = tokens(bucket)
    for wait in waits:
        now += wait
        bucket = refill(bucket, queue, now)
        spent += tokens(bucket)
        bucket = spend(bucket, tokens(bucket))
        assert 0 <= bucket.level < TOKEN
    assert spent <= first + rate * (now - START) / SECOND + 1e-6


@given(rate=rates, level=st.integers(0, TOKEN - 1))
def test_the_next_token_comes_when_it_was_said(rate: float, level: int) -> None:
    queue = QueueSettings(rate=rate)
    bucket = Bucket(level, START)
    wait = until_token(bucket, queue)
    assert tokens(refill(bucket, queue, START + wait + 2)) == 1, "a microsecond or two may be lost to rounding"
    assert tokens(refill(bucket, queue, START + int(wait * 0.99) - 2)) == 0


def test_a_clock_that_goes_back_takes_nothing() -> None:
    queue = QueueSettings(rate=1.0, burst=5)
    bucket = Bucket(2 * TOKEN, START)
    assert refill(bucket, queue, START - DAY) == bucket


def test_free_slots() -> None:
    assert free_slots(QueueSettings(), 99) is None
    assert free_slots(QueueSettings(max_concurrent=3), 1) == 2
    assert free_slots(QueueSettings(max_concurrent=3), 7) == 0
