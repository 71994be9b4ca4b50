"""The memory engine: plain Python, O(log n), for tests and for work that may be lost with the process.

`engine` has the async verbs. They work on `store`, which holds the tasks and their indexes: `pending_index`, `edges`
and `headroom`. The verbs are in `enqueueing`, `claiming`, `reporting` (settle, extend, rescue), `admin`, `schedules`,
`workflows` and `follow_ups`. Like every engine it is compared with the oracle
(`dibs.testing.model`), which is the specification.
"""

from dibs.engines.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
