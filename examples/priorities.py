"""Priorities: urgent first, but waiting counts too, so nothing waits for ever.

Run it with `python priorities.py`. A clock that we move makes hours pass in no time.
"""

from datetime import timedelta

from dibs import Dibs
from dibs.testing import ManualClock

clock = ManualClock()
app = Dibs("memory://", clock=clock)


@app.task
def job(label: str) -> None: ...


def order() -> str:
    """What would be claimed, in this order."""
    return ", ".join(task.args["label"] for task in app.peek())


def main() -> None:
    job.using(priority="low").enqueue("report")
    job.enqueue("thumbnail")  # normal
    job.using(priority="critical").enqueue("alarm")
    print("urgent first:", order())

    # Ten minutes of waiting are worth one point of priority (the queue's setting `aging`), and from low to high
    # it is 40 points: a high task that comes within 6 h 40 min goes first, a later one does not.
    clock.advance(timedelta(hours=6))
    job.using(priority="high").enqueue("high after 6 h")
    clock.advance(timedelta(hours=1))
    job.using(priority="high").enqueue("high after 7 h")
    print("with ageing:", order())

    print("bound:", app.bound())
    print("low can be overtaken by high for:", app.bound().between(30, 70))

    app.queues.set("urgent-only", policy="strict")
    print("bound of a strict queue:", app.bound("urgent-only"))


if __name__ == "__main__":
    with app:
        main()
