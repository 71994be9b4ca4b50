"""What application code uses: `Dibs`, tasks, handles, and the admin faces.

Imports `attempt` and below, and `worker` only inside `Dibs.worker()`; `cli`, `testing` and users import it.
Invariants: arguments are checked before anything is sent; every blocking method is the async one, driven
(`blocking.blocking`); nothing here knows which engine it talks to.
"""
