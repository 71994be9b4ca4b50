"""Retries: how long to wait, what is worth another attempt, and what losses cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dibs.core.ids import uuid7
from dibs.core.retry import (
    TRANSIENT,
    RetryDecision,
    after_failure,
    after_loss,
    asked_delay,
    jitter,
    retry_delay,
    should_retry,
    timeout_for,
)
from dibs.core.settings import FALLBACK
from dibs.core.states import Reason
from dibs.core.task import MAX_LOSSES
from dibs.core.times import DAY, HOUR, SECOND
from dibs.errors import InvalidOption, Permanent, Retry


def test_delays_double_up_to_the_cap() -> None:
    delays = [retry_delay(FALLBACK, attempt, 0) // SECOND for attempt in range(1, 12)]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@given(attempt=st.integers(1, 10**6), shake=st.floats(-1, 1))
def test_jitter_is_a_tenth(attempt: int, shake: float) -> None:
    plain = retry_delay(FALLBACK, attempt, 0)
    assert 0.9 * plain <= retry_delay(FALLBACK, attempt, shake) <= 1.1 * plain


def test_no_base_means_at_once() -> None:
    assert retry_delay(structs.replace(FALLBACK, retry_base=0), 5, 1.0) == 0


@given(number=st.integers(0, 10**9), lease=st.integers(1, 10**6))
def test_jitter_is_a_fixed_number_in_range(number: int, lease: int) -> None:
    task_id = uuid7(number, 0, number)
    assert -1 <= jitter(task_id, lease) <= 1
    assert jitter(task_id, lease) == jitter(task_id, lease)


def test_jitter_spreads() -> None:
    values = [jitter(uuid7(0, 0, number), 1) for number in range(1_000)]
    assert abs(sum(values) / len(values)) < 0.1
    assert min(values) < -0.95
    assert max(values) > 0.95


def test_first_loss_costs_nothing_and_the_last_one_all() -> None:
    verdicts = [after_loss(FALLBACK, losses, 0) for losses in range(1, MAX_LOSSES + 1)]
    again = [RetryDecision(delay * SECOND) for delay in (0, 1, 2, 4, 8)]
    assert verdicts == [*again, RetryDecision(reason=Reason.LOST)]


def test_failures_are_counted_and_the_last_one_is_death() -> None:
    verdicts = [after_failure(FALLBACK, attempts, 0) for attempts in range(1, FALLBACK.retries + 2)]
    again = [RetryDecision(retry_delay(FALLBACK, attempts, 0)) for attempts in range(1, FALLBACK.retries + 1)]
    assert verdicts == [*again, RetryDecision(reason=Reason.EXHAUSTED)]


def test_a_run_may_ask_for_its_delay_but_not_for_another_attempt() -> None:
    assert after_failure(FALLBACK, 1, 0, asked=7 * SECOND) == RetryDecision(7 * SECOND)
    assert after_failure(FALLBACK, FALLBACK.retries + 1, 0, asked=7 * SECOND) == RetryDecision(reason=Reason.EXHAUSTED)
    assert after_failure(FALLBACK, 1, 0, permanent=True, asked=7 * SECOND) == RetryDecision(reason=Reason.PERMANENT)


@given(losses=st.integers(2, MAX_LOSSES - 1), shake=st.floats(-1, 1))
def test_losses_part_widely(losses: int, shake: float) -> None:
    plain, shaken = after_loss(FALLBACK, losses, 0), after_loss(FALLBACK, losses, shake)
    assert 0 <= shaken.delay <= 2 * plain.delay


def test_losses_part_even_without_a_retry_delay() -> None:
    eager = structs.replace(FALLBACK, retry_base=0, retry_cap=0)
    assert after_loss(eager, 2, 0.5) == RetryDecision(round(1.5 * SECOND))


class Odd(ValueError):
    pass


@pytest.mark.parametrize(
    ("error", "retry_on", "no_retry", "expected"),
    [
        (ValueError(), (Exception,), (), True),
        (Permanent("never"), (Exception,), (), False),
        (Permanent("never"), (Permanent,), (), False),
        (Retry(), (KeyError,), (Retry,), True),
        (ValueError(), (KeyError,), (), False),
        (Odd(), (ValueError,), (), True),
        (Odd(), (Exception,), (ValueError,), False),
        (Odd(), (ValueError,), (Odd,), False),
        (ConnectionResetError(), TRANSIENT, (), True),
        (ValueError(), TRANSIENT, (), False),
        (SystemExit(1), (Exception,), (), True),
        (KeyboardInterrupt(), (Exception,), (), True),
        (SystemExit(1), (Exception,), (SystemExit,), False),
    ],
)
def test_what_is_worth_another_attempt(
    error: BaseException,
    retry_on: tuple[type[BaseException], ...],
    no_retry: tuple[type[BaseException], ...],
    expected: bool,
) -> None:
    assert should_retry(error, retry_on, no_retry) is expected


def test_a_task_may_say_when() -> None:
    assert asked_delay(Retry(after=2.5)) == 2_500_000
    assert asked_delay(Retry(after=0)) == 0
    assert asked_delay(Retry()) is None
    assert asked_delay(ValueError()) is None


def test_a_negative_wish_is_refused() -> None:
    with pytest.raises(InvalidOption, match="Retry"):
        asked_delay(Retry(after=-1))


def test_timeouts_grow_if_asked_and_are_capped() -> None:
    fixed = structs.replace(FALLBACK, timeout=10 * SECOND)
    growing = structs.replace(fixed, timeout_growth=1.5)
    assert timeout_for(FALLBACK, 3) is None
    assert [timeout_for(fixed, attempts) for attempts in (0, 5)] == [10 * SECOND] * 2
    assert [timeout_for(growing, attempts) for attempts in (0, 1, 2)] == [10 * SECOND, 15 * SECOND, 22.5 * SECOND]
    assert timeout_for(growing, 10**6) == DAY
    assert DAY == 24 * HOUR
