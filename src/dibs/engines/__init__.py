"""Where tasks are kept: one folder per engine. All of them have the verbs of `base`, in terms of `values`.

`open.open_engine(url)` chooses one. Engines import `dibs.core` and the modules here, never each other; decisions that
several of them share are in `decisions`. Invariants:

- An engine declares what it can't do (`features`); it never does it differently.
- A write about a running task compares its lease number in the statement that writes.
- Every verb is bounded, whatever the store holds.
"""
