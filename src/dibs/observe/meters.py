"""Calls, errors and durations by verb, kept once for all engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dibs.core.histogram import Histogram, add
from dibs.core.times import Duration


class Meter(Struct):
    """What is known of one verb."""

    calls: int = 0
    items: int = 0
    errors: int = 0
    took: Histogram = {}


Listener = Callable[[str, tuple[Any, ...], Any, int, BaseException | None], None]
"""Told of every call: its verb, arguments, answer, nanoseconds and error. It must be quick and never raise."""


class Meters:
    """The meters of one app."""

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self.forget()

    def forget(self) -> None:
        """Reset, in a forked child."""
        self._lock = threading.Lock()
        self._meters: dict[str, Meter] = {}

    def record(self, verb: str, items: int, took: Duration, failed: bool) -> None:
        with self._lock:
            meter = self._meters.get(verb)
            if meter is None:
                meter = self._meters[verb] = Meter(took={})
            meter.calls += 1
            meter.items += items
            meter.errors += failed
            add(meter.took, took)

    def read(self) -> dict[str, Meter]:
        """A copy."""
        with self._lock:
            return {
                verb: Meter(meter.calls, meter.items, meter.errors, dict(meter.took))
                for verb, meter in sorted(self._meters.items())
            }
