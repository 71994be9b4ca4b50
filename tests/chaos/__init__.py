"""A run against everything that may go wrong, from outside: `make chaos`.

Producers and workers are real processes that use the public API. A nemesis, drawn from a seed, does to them and to
their store what production does. Every process writes what it saw to a journal of its own; when the storm is over, a
checker that knows nothing of Dibs's inside compares the journals with what the store says became of each task.

| module | |
|---|---|
| `app` | the tasks, and the queues they stand in |
| `producer` | a process that enqueues and writes down what was acknowledged |
| `journal` | append-only logs, one per process, on a clock that nobody moves |
| `clocks` | a wall clock that can be moved under all processes at once |
| `plan` | which faults come when: pure, from a seed |
| `processes` | the processes: started, killed, stopped, replaced |
| `stage` | a store to do this to, and the faults that it knows |
| `nemesis` | carries the plan out |
| `evidence` | what the journals and the store say, as values |
| `checker` | what must hold: pure, from evidence to findings |
| `figures` | throughput, recovery, latency |
| `page` | the figures as a page |
| `planted` | bugs to be found |
"""
