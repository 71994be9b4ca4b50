"""The pytest plugin: fixtures for tests of apps that use Dibs. It costs nothing until a test asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dibs.client.app import Dibs
    from dibs.testing.clock import ManualClock
    from dibs.testing.kit import Kit

__all__ = ["dibs_clock", "dibs_kit"]


@pytest.fixture
def dibs_clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    from dibs.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def dibs_kit(dibs_clock: ManualClock) -> Iterator[Callable[..., Kit]]:
    """``kit = dibs_kit(app)``: the app on a store in memory until the test ends, with `dibs_clock` as its clock.

    Takes the options of `dibs.testing.Kit`, such as ``eager=True``.
    """
    from dibs.testing.kit import Kit

    with ExitStack() as stack:

        def make(app: Dibs, **options: Any) -> Kit:
            return stack.enter_context(Kit(app, **{"clock": dibs_clock, **options}))

        yield make
