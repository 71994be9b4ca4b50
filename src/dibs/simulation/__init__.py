"""The simulator: the rules of `dibs.core` in virtual time, to plan workers and settings.

`arrivals` are the tasks (recorded from a real queue, or made up by `synthetic`), `run` lets slots run them and records
when each started, `measure` and `overtaking` read that record, `targets` checks it. Inside `run`, `pending` is the
queue: `sections` by limited name, in which shares take `turns`, each with its `lanes` by rank; `gates` and `partitions`
are the limits. `cases` are the runs to compare and their outcomes; `tables` shows these on a terminal, `chart` draws
them. May be imported by the command line and by tests. Invariants:

- `dibs.core` computes order, limits and shares; a run starts the same tasks at the same microsecond as the memory
  engine with workers that claim without delay.
- The same arguments give the same result: randomness comes from the seed, time from the arrivals.
- A start costs about as much as a heap operation, however many tasks wait or are held back by limits.
"""

from dibs.simulation.arrivals import Arrivals
from dibs.simulation.measure import Report, measure
from dibs.simulation.run import Run, simulate

__all__ = ["Arrivals", "Report", "Run", "measure", "simulate"]
