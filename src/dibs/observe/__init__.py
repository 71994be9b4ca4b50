"""What Dibs counts about itself: `meters`. No I/O; importable from anywhere above `core`.

What is recorded of tasks is elsewhere: `HistoryEvent` in `core.task`, `Counter` and `Minute` in `engines.values`.
"""
