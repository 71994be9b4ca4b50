"""Tests of an app that uses Dibs: no store, no worker, no waiting; a clock that the test moves.

Run it with `pytest testing_in_a_sandbox.py`. The fixtures `dibs_sandbox` and `dibs_clock` come with Dibs.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from dibs import Context, Dibs, Permanent, State
from dibs.testing import ManualClock, Sandbox

app = Dibs("sqlite:///shop.db")  # the real app; a sandbox neither creates nor opens this file


@app.task(retries=2)
def ship(order: int) -> str:
    if order < 0:
        raise ConnectionError("the warehouse does not answer")
    remind.using(delay=timedelta(days=3), key=f"remind-{order}").enqueue(order)
    return f"shipped {order}"


@app.task(queue="mail", priority="low")
async def remind(ctx: Context, order: int) -> None:
    raise Permanent("nobody wants reminders")


@pytest.fixture
def sandbox(dibs_sandbox: Callable[..., Sandbox]) -> Sandbox:
    return dibs_sandbox(app)


def test_shipping_schedules_a_reminder(sandbox: Sandbox, dibs_clock: ManualClock) -> None:
    handle = ship.enqueue(7)
    sandbox.run_due()
    assert handle.result() == "shipped 7"
    sandbox.assert_enqueued(remind, {"order": 7}, queue="mail", priority="low", key="remind-7", count=1)
    assert sandbox.enqueued(remind)[0].state is State.SCHEDULED
    dibs_clock.advance(timedelta(days=3))
    [reminder] = sandbox.run_due()
    assert (reminder.state, reminder.reason) == (State.DEAD, "permanent")


def test_a_silent_warehouse_is_asked_three_times(sandbox: Sandbox) -> None:
    ship.enqueue(-1)
    ended = sandbox.run_until_idle()  # moves the clock through the delays between attempts
    assert [task.state for task in ended] == [State.RETRYING, State.RETRYING, State.DEAD]
    sandbox.assert_not_enqueued(remind)
