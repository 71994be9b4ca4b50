"""Values of every wrong kind, and a watch over calls that are made with them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from types import FrameType
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from dibs.attempt.outcome import Snoozed
from dibs.core.options import shown
from dibs.errors import DibsError

LONGEST_MESSAGE = 500
LONGEST_CALL = 5
"""Seconds after which a call hangs."""
MOST_MEMORY = 50 * 1024 * 1024
LONG_WAIT = 1.0
"""Seconds that a call may be asked to wait here: longer ones are right, and so would be tested for hours."""

EXPECTED = (DibsError, TypeError, ValueError, TimeoutError, Snoozed)
"""What a call may raise. TimeoutError is the answer of calls that wait, Snoozed that of `snooze`."""


class Silent:
    """Something whose `repr` raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def cycle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def a_function(number: int = 1) -> int:
    return number


ODD: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "zero": 0,
    "minus one": -1,
    "a fraction": 0.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "minus inf": float("-inf"),
    "a large int": 2**63,
    "a huge int": -(10**5000),
    "complex": 1j,
    "Decimal": Decimal("NaN"),
    "no text": "",
    "a word": "odd",
    "a list of words": ["odd", "even"],
    "a lone surrogate": "a\ud800b",
    "NUL": "a\0b",
    "a long text": "x" * 100_000,
    "bytes": b"odd",
    "long bytes": bytearray(100_000),
    "an empty list": [],
    "a list of None": [None],
    "a list of surrogates": ["\udfff"],
    "a tuple of numbers": (1, 2.5),
    "a set": {1, "a"},
    "an empty mapping": {},
    "a mapping": {"odd": [1, {"a": None}]},
    "a mapping of surrogates": {"\ud800": "\ud800"},
    "a mapping by number": {1: 2, "a": object()},
    "a mapping of nan": {"a": float("nan"), "b": 10**400},
    "a long mapping": {f"name {number}": "x" * 50 for number in range(500)},
    "a deep list": nested(3000),
    "a cycle": cycle(),
    "object": object(),
    "no repr": Silent(),
    "a class": ValueError,
    "an exception": ValueError("x" * 10_000 + "\ud800"),
    "a function": a_function,
    "a naive datetime": datetime(2026, 1, 1),  # noqa: DTZ001
    "the first datetime": datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    "the last datetime": datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    "a far datetime": datetime(2119, 12, 31, tzinfo=UTC),
    "the longest timedelta": timedelta.max,
    "a negative timedelta": timedelta(days=-3),
    "a UUID": UUID(int=7),
}
"""By name, so that a failure says which."""


class Drawn:
    """A value that can be shown, whatever it is."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return shown(self.value)


anything = st.one_of(
    st.sampled_from([Drawn(value) for value in ODD.values()]),
    st.text(max_size=30).map(Drawn),
    st.integers().map(Drawn),
    st.floats().map(Drawn),
    st.binary(max_size=10).map(Drawn),
    st.datetimes(timezones=st.just(UTC)).map(Drawn),
    st.timedeltas().map(Drawn),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ).map(Drawn),
)
"""Drawn values: the odd ones above, and others of every kind."""


def would_wait(value: Any) -> bool:
    """Whether a value is right where seconds to wait are wanted, and many."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return value is None or (isinstance(value, int | float) and LONG_WAIT < value < 100 * 366 * 86_400 + 1)


class Hang(BaseException):
    """A call took too long. No Exception: nobody must take it for one of the call's own."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Interrupts whatever takes longer than a call may."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Hang(f"not done after {LONGEST_CALL} s")

    earlier = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_CALL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


class Growth:
    """By how much this process's memory grew at most. Where its peak can't be reset, only what exceeds earlier ones."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self.before = getrusage(RUSAGE_SELF).ru_maxrss

    def is_small(self) -> bool:
        """Whether it was, since the last look."""
        grown = (getrusage(RUSAGE_SELF).ru_maxrss - self.before) * (1 if sys.platform == "darwin" else 1024)
        self.begin()
        return grown < MOST_MEMORY


def judge(call: Callable[[], object]) -> None:
    """Call it: it works, or says in a sentence why not."""
    with no_hang():
        try:
            call()
        except EXPECTED as error:
            if len(str(error)) >= LONGEST_MESSAGE:
                raise AssertionError(f"a message of {len(str(error)):,} characters: {str(error)[:800]}") from error
