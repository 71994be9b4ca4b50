"""Progress and cancelling: a task reports its progress, and stops when it is asked to.

Run it with `python progress_and_cancel.py`.
"""

import time

from dibs import Context, Dibs
from dibs.errors import TaskCancelled

app = Dibs("memory://")
PAGES = 10_000


@app.task
def convert(ctx: Context, book: str) -> int:
    for page in range(PAGES):
        ctx.raise_if_cancelled()  # nothing can stop a thread from outside: it must check
        ctx.progress(page / PAGES, f"page {page} of {book}")  # cheap; only the latest value is stored
        time.sleep(0.005)
    return PAGES


def main() -> None:
    running = convert.enqueue("Moby-Dick")
    while not (info := running.refresh()).progress:
        time.sleep(0.01)
    print("state:", info.state, "progress is known:", info.progress > 0, "message:", info.progress_message[:5], "…")

    print("a running one:", running.cancel("wrong edition"))
    try:
        running.result(timeout=10)
    except TaskCancelled as error:
        print("cancelled by:", error.reason)
    print("note:", running.refresh().note)

    waiting = convert.using(delay=3600).enqueue("Emma")
    print("a waiting one:", waiting.cancel("not today"), "and now", waiting.refresh().state)
    print("cancelled twice:", waiting.cancel(), "which is", bool(waiting.cancel()))


if __name__ == "__main__":
    with app, app.worker():
        main()
