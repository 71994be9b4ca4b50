"""What application code uses: `Dibs`, tasks, handles, and administration.

`app` has the object that gives access to all the rest.

- Defining and enqueueing: `define` reads a function, `task` is what a decorator returns, `options` are the options of a
  call, `by_name` makes a task without its code, `producer` hands it over, `backpressure` says when a full queue has
  room, `take` puts one task's result into another's arguments, `schedule_template` makes the task of a schedule.
  `elsewhere` knows what other task queues call all that.
- Workflows: `dependencies` says what a task waits for, `flow` has chains and groups, `workflow_batch` makes one batch
  of them, `workflows` follows them, `graph` reads and `drawing` draws them.
- Following: `handle` is one task, `result_waiter` waits for all handles of an app, `info` has the public snapshots.
- Asking and changing: `tasks` (with `error_groups`), `steps` (what goes on in the background), `queues`, `schedules`,
  `workers`, `audit`, `stats` and `series`; `events` gives what happens; `why` says why a task does not run, with
  `blockers` for what it waits for and `humanize` for the words. `consumer` is for users with a loop of their own.

Imports `attempt` and below, and `worker` only inside `Dibs.worker()`; `cli`, `testing` and users import it.
Invariants: arguments are checked before anything is sent; every blocking method is the async one, driven
by `blocking`; nothing here knows which engine it talks to.
"""
