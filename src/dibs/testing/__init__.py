"""Help for tests: of applications that use Dibs, and of engines that keep tasks.

Nobody in `dibs` imports this room; it may import all of them. Invariants:

- Time is a value that the test turns; nothing here sleeps.
- What the suites demand of an engine is written in `docs/design/engine-seam.md`; they know no engine by name.

`dibs.testing.conformance` checks an engine verb by verb, `dibs.testing.model` by random programs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dibs.testing.clock import ManualClock
    from dibs.testing.sandbox import Sandbox

__all__ = ["ManualClock", "Sandbox"]


def __getattr__(name: str) -> Any:
    """Import on first use: pytest loads the plugin, and with it this room, at every start."""
    if name == "Sandbox":
        from dibs.testing.sandbox import Sandbox

        return Sandbox
    if name == "ManualClock":
        from dibs.testing.clock import ManualClock

        return ManualClock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
