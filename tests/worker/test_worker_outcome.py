"""Decisions about a run, and the minutes that are kept of it: pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from dibs.attempt import outcome
from dibs.core.codec import Codec, Signature
from dibs.core.settings import FALLBACK
from dibs.core.states import State
from dibs.core.task import LeasedTask, Outcome, TaskSpec
from dibs.core.times import MINUTE, SECOND
from dibs.errors import Permanent, Retry
from dibs.runtime.definition import ExecutorKind, TaskDefinition
from dibs.worker.minute_stats import MinuteStats


def work() -> None: ...


DEFINITION = TaskDefinition(
    name="work",
    function=work,
    signature=Signature(work, "work", False),
    takes_context=False,
    executor=ExecutorKind.THREAD,
    no_retry=(KeyError,),
)
UNDECLARED = structs.replace(DEFINITION, signature=Signature(lambda: None, "work", False))
TASK = LeasedTask(
    id="01900000-0000-7000-8000-000000000000",
    lease=7,
    lease_expires_at=30 * SECOND,
    claimed_at=5 * SECOND,
    ready_at=3 * SECOND,
    queue="default",
    name="work",
    args=b"{}",
    spec=TaskSpec(),
    rank=-50,
    scale=1,
    options=FALLBACK,
)


def test_a_failed_attempt_is_reported_as_that_and_the_store_decides() -> None:
    for attempts in range(4):
        settlement = outcome.failed(structs.replace(TASK, attempts=attempts), DEFINITION, OSError("x"))
        assert (settlement.outcome, settlement.delay) == (Outcome.FAILED, None)
        assert (settlement.lease.id, settlement.lease.number) == (TASK.id, 7)


@pytest.mark.parametrize("error", [Permanent("no"), KeyError("k")])
def test_what_must_not_be_retried_is_reported_as_permanent(error: Exception) -> None:
    assert outcome.failed(TASK, DEFINITION, error).outcome is Outcome.PERMANENT


@pytest.mark.parametrize(("after", "delay"), [(90, 90 * SECOND), (0, 0), (-1, None), ("soon", None)])
def test_retry_after_wins_if_it_makes_sense(after: Any, delay: int | None) -> None:
    settlement = outcome.failed(TASK, DEFINITION, Retry(after=after))
    assert (settlement.outcome, settlement.delay) == (Outcome.FAILED, delay)


def test_a_timeout_says_how_long_it_was() -> None:
    settlement = outcome.timed_out(TASK, 90 * SECOND)
    assert settlement.timed_out
    assert settlement.failure is not None
    assert "90 s" in settlement.failure.message


def test_results_are_encoded_and_none_is_nothing() -> None:
    assert outcome.returned(TASK, UNDECLARED, None, Codec()).result is None
    assert outcome.returned(TASK, UNDECLARED, {"a": timedelta(seconds=1)}, Codec()).result == b'{"a":"PT1S"}'
    assert outcome.returned(TASK, UNDECLARED, object(), Codec()).outcome is Outcome.PERMANENT


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_failures_are_text_of_bounded_size() -> None:
    failure = outcome.describe(raised(ValueError("x" * 100_000)))
    assert len(failure.message) < 5_000
    assert len(failure.traceback) < 17_000
    assert "left out" in failure.traceback
    assert "can't be shown" in outcome.describe(raised(Rude())).message
    outcome.describe(raised(ValueError("\ud800"))).message.encode()  # a lone surrogate must not break the store


def test_minutes_are_whole_and_handed_over_when_they_have_changed() -> None:
    recorder = MinuteStats("me")
    now = 100 * MINUTE
    for kind in (Outcome.COMPLETED, Outcome.FAILED, Outcome.PERMANENT, Outcome.CANCELLED, Outcome.RELEASED):
        recorder.record(TASK, kind, State.DEAD if kind is Outcome.PERMANENT else None, SECOND, now)
    (minute,) = recorder.take()
    assert (minute.minute, minute.worker, minute.queue, minute.tier) == (100, "me", "default", "medium")
    assert (minute.completed, minute.failed, minute.dead, minute.cancelled) == (1, 2, 1, 1)
    assert sum(minute.wait.values()) == sum(minute.run.values()) == 4
    assert recorder.take() == []
    recorder.record(TASK, Outcome.COMPLETED, State.COMPLETED, SECOND, now)
    (again,) = recorder.take()
    assert again.completed == 2
    recorder.put_back([again])
    recorder.record(TASK, Outcome.COMPLETED, State.COMPLETED, SECOND, now + MINUTE)
    assert [(each.minute, each.completed) for each in recorder.take()] == [(100, 2), (101, 1)]
