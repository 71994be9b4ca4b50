"""The simulator: the rules of `dibs.core` in virtual time, to answer "what if" before the workers are bought.

`arrivals` are the tasks that come (recorded from a real queue, or made up by `synthetic`), `run` lets so many slots
work them off and notes who started when, `measure` and `overtaking` read that log, `targets` judges it. Inside `run`,
`waiting` is the queue: `sections` by limited name, in which shares take `turns`, each with its `lanes` by rank; `gates`
and `partitions` are the limits. `cases` are the runs to compare and what they came to; `tables` shows that on a
terminal, `chart` draws it.
May be imported by the command line and by tests. Invariants:

- Order, limits and shares are computed by `dibs.core`; a run starts the same tasks at the same microsecond as the
  memory engine does with workers that never pause for thought.
- The same arguments give the same result: randomness comes from the seed, time from the arrivals.
- A start costs about as much as a heap operation, however much waits or is held back by limits.
"""

from dibs.simulation.arrivals import Arrivals
from dibs.simulation.measure import Report, measure
from dibs.simulation.run import Run, simulate

__all__ = ["Arrivals", "Report", "Run", "measure", "simulate"]
