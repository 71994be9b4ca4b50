"""Views of the catalogue in `observe.metrics` for monitoring systems. Above `client` and `worker`, below `integrations`
and `server`.

`store_figures` reads the whole store, `process_figures` this process, `worker_figures` one worker; `names` bounds
labels; `prometheus` writes them as Prometheus reads them; `endpoint` serves them and the health of a worker on a port.

A scrape costs the store a few reads whose size depends on queues, task names and workers, never on how many tasks wait.
"""
