"""Help for tests: of applications that use Dibs, and of engines that keep tasks.

Nobody in `dibs` imports this room; it may import all of them. Invariants:

- Time is a value that the test turns; nothing here sleeps.
- What the suites demand of an engine is written in `docs/design/engine-seam.md`; they know no engine by name.

`dibs.testing.conformance` checks an engine verb by verb, `dibs.testing.model` by random programs.
"""
