"""What application code uses: `Dibs`, tasks, handles, and the admin faces.

Imports `worker` (an app can run one in-process) and everything below it; `cli`, `testing` and users import it.
Invariants: arguments are checked before anything is sent; every blocking method is the async one, driven
(`blocking.blocking`); nothing here knows which engine it talks to.
"""
