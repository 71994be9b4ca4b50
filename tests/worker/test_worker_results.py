"""Results handed on to tasks in executor processes."""

from __future__ import annotations

import process_app
from process_app import app
from worker_support import PATIENCE

from dibs import chain, group, take


def test_a_process_gets_results() -> None:
    first, second = process_app.add.call(1, 2), process_app.add.call(3, 4)
    total = process_app.add.call(take(first), b=take(second))
    workflow = app.enqueue_workflow(chain(group(first, second), total))
    with app.worker(concurrency=2):
        assert workflow[total].result(PATIENCE) == 10
