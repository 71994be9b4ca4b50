"""The demo: real workers, some tasks that go wrong on purpose, and a summary that is checked against the store.

`app` has the tasks, `plan` says which are enqueued and what must become of each, `run` enqueues them, cancels some and
kills a worker, `report` reads every task back and checks it (`promises` checks the special ones), `view` shows it.
May be imported by the command line and by tests. Invariants:

- Nothing is random: the same number of tasks gives the same plan.
- The report is read from the store, not remembered by the run.
"""
