"""`dibs why` and `dibs peek`: why a task waits, and what goes next."""

from __future__ import annotations

import click

from dibs.cli.kinds import QUEUE, TASK_OR_SCHEDULE
from dibs.cli.options import json_option, with_store
from dibs.cli.task_views import peek_table
from dibs.client.app import Dibs
from dibs.core.options import nearest, shown
from dibs.errors import UnknownQueue
from dibs.terminal import emit, say


@click.command()
@click.argument("task_id", metavar="ID", type=TASK_OR_SCHEDULE)
@json_option
@with_store
def why(app: Dibs, task_id: str, as_json: bool) -> None:
    """Say why a task is not running yet.

    In one line, with the time when that ends, if it is known; further lines show limits, shares, and the path to the
    task that it waits for. Given the name of a schedule, say why it does not fire yet.
    """
    answer = app.why(task_id)
    if as_json:
        emit({"id": task_id, "why": answer.text, "until": answer.until, "details": answer.details})
        return
    say(answer.text[:1].upper() + answer.text[1:])
    for line in answer.details:
        say(f"  {line}", indent=2)


@click.command()
@click.argument("queue", type=QUEUE)
@click.option("--limit", "-n", default=10, show_default=True, help="How many (1 to 1000).")
@json_option
@with_store
def peek(app: Dibs, queue: str, limit: int, as_json: bool) -> None:
    """Show the next tasks of a queue.

    In the order in which they will be claimed, whether or not a worker can run them. EFF is the effective priority;
    NEXT STEP is when a deadline, a promotion to the next tier or the end of ageing changes the order again.
    """
    found = app.peek(queue, limit)
    if not found:
        known = [info.name for info in app.queues.list()]
        if queue not in known:
            raise UnknownQueue(f"no queue is called {shown(queue)}.{nearest(queue, known)}")
    if as_json:
        emit(found)
    elif found:
        peek_table(found)
    else:
        say(f"Nothing is pending in queue {queue!r}.")
