"""What Dibs tells about itself: `meters` counts calls, `events` is the catalogue of what can happen. No I/O; importable
from anywhere above `core`.

What is recorded of tasks is elsewhere: `HistoryEvent` in `core.task`, `Counter` and `Minute` in `engines.values`.
"""
