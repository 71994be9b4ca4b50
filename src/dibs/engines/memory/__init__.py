"""The memory engine: plain Python, O(log n), for tests and for work that may be lost with the process.

`store` holds the tasks and their indexes, `pending_index` and `edges` are two of these. `enqueueing`, `claiming` (with
`headroom`), `reporting`, `follow_ups`, `workflows`, `schedules` and `admin` are what can be done to them; `engine` is
the async face. Like every engine it is compared with the oracle (`dibs.testing.model`), which is the specification.
"""

from dibs.engines.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
