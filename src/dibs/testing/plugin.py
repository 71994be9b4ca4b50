"""The pytest plugin: fixtures for tests of apps that use Dibs. It costs nothing until a test asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dibs.client.app import Dibs
    from dibs.testing.clock import ManualClock
    from dibs.testing.sandbox import Sandbox

__all__: list[str] = []


@pytest.fixture
def dibs_clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    from dibs.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def dibs_sandbox(dibs_clock: ManualClock) -> Iterator[Callable[..., Sandbox]]:
    """``sandbox = dibs_sandbox(app)``: the app on a store in memory until the test ends, on `dibs_clock`.

    Takes the options of `dibs.testing.Sandbox`, such as ``eager=True``.
    """
    from dibs.testing.sandbox import Sandbox

    with ExitStack() as stack:

        def make(app: Dibs, **options: Any) -> Sandbox:
            return stack.enter_context(Sandbox(app, **{"clock": dibs_clock, **options}))

        yield make
