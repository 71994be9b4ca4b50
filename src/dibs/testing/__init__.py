"""Help for tests: of applications that use Dibs, and of engines that keep tasks.

`sandbox`       an app on a store in memory, with a clock that the test moves; `inline` are the parts it replaces
`clock`         that clock
`plugin`        the pytest fixtures
`conformance`   checks an engine verb by verb
`faults`        what goes wrong between a caller and a store: by plan, and as a suite that an engine must pass
`model`         checks an engine by random programs, made of `programs`, against the oracle: the specification as code
`tasks`         new tasks from flat facts

Nothing else in `dibs` imports this package; it may import everything. Invariants: time is a value that the test moves,
and nothing here sleeps; the suites demand what `docs/design/engine-seam.md` says, and know no engine by name.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dibs.testing.clock import ManualClock
    from dibs.testing.sandbox import Sandbox

__all__ = ["ManualClock", "Sandbox"]


def __getattr__(name: str) -> Any:
    """Import on first use: pytest loads the plugin, and with it this package, at every start."""
    if name == "Sandbox":
        from dibs.testing.sandbox import Sandbox

        return Sandbox
    if name == "ManualClock":
        from dibs.testing.clock import ManualClock

        return ManualClock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
