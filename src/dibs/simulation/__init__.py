"""The simulator: the rules of `dibs.core` and the claims of engines in virtual time, to plan workers and settings.

`arrivals` are the tasks (recorded from a real queue, or made up by `synthetic`), `run` lets slots run them and records
when each started, `measure` and `overtaking` read that record, `targets` checks it. Inside `run`, `pending` is the
queue. Its claims choose with `engines.decisions.choosing`, from `heaps` of tasks, the `turns` of shares, and `limits`.
`cases` are the runs to compare and their outcomes; `tables` shows these on a terminal, `chart` draws them. May be
imported by the command line and by tests. Invariants:

- Order, limits and shares are decided by the code of the engines; a run starts the same tasks at the same microsecond
  as the memory engine with workers that claim without delay.
- The same arguments give the same result: randomness comes from the seed, time from the arrivals.
- A start costs a few heap operations, however many tasks wait or are held back by limits.
"""

from dibs.simulation.arrivals import Arrivals
from dibs.simulation.measure import Report, measure
from dibs.simulation.run import Run, simulate

__all__ = ["Arrivals", "Report", "Run", "measure", "simulate"]
