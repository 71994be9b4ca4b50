"""Where tasks are kept: one folder per engine, all speaking the verbs of `base` in terms of `values`.

`open.open_engine(url)` chooses one. Engines import `dibs.core` and what is here, never each other; what several of them
decide alike is in `deciding`. Invariants:

- An engine declares what it can't do (`features`); it never does it differently.
- A write about a running task compares its lease number in the statement that writes.
- Every verb is bounded, whatever the store holds.
"""
