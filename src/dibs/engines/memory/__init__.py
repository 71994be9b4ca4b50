"""The memory engine: plain Python, O(log n), and the executable specification of every verb.

`store` holds the tasks and their indexes, `verbs` and `admin` are what can be done to them, `engine` is the async face.
For tests and for work that may be lost with the process.
"""

from dibs.engines.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
