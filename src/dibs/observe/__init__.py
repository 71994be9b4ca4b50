"""What Dibs tells of itself: `meters` counts calls, `events` is the catalogue of what can happen, `metrics` that of
figures for monitoring systems (in `distribution`s), `logs` sets up and formats logs, `tracing` is the seam for traces.
Importable from above `core`.

What is recorded of tasks is elsewhere: `HistoryEvent` in `core.task`, `Counter` and `Minute` in `engines.figures`.
"""
