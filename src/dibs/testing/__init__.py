"""Help for tests: of applications that use Dibs, and of engines that keep tasks.

Nobody in `dibs` imports this room; it may import all of them. Invariants:

- Time is a value that the test turns; nothing here sleeps.
- What the suites demand of an engine is written in `docs/design/engine-seam.md`; they know no engine by name.

`dibs.testing.conformance` checks an engine verb by verb, `dibs.testing.model` by random programs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dibs.testing.clock import ManualClock
    from dibs.testing.kit import Kit

__all__ = ["Kit", "ManualClock"]


def __getattr__(name: str) -> Any:
    """Import on first use: pytest loads the plugin, and with it this room, at every start."""
    if name == "Kit":
        from dibs.testing.kit import Kit

        return Kit
    if name == "ManualClock":
        from dibs.testing.clock import ManualClock

        return ManualClock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
