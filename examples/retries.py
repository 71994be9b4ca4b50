"""Retries: what a task can say about its own failure, and what happens to tasks that are out of attempts.

Run it with `python retries.py`.
"""

from dibs import TRANSIENT, Context, Dibs, Filter, Permanent, Retry
from dibs.errors import TaskFailed

app = Dibs("memory://", retries=2, retry_base=0.05)  # attempts: 1 + 2; delays: 0.05 s, 0.1 s, each ± 10 %
broken = {"printer"}


@app.task
def fetch(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise Retry("the other side is busy", after=0.1)  # this delay instead of the usual one
    return ctx.attempt


@app.task
def charge(card: str) -> None:
    raise Permanent(f"{card} is not a card")  # no attempt can succeed


@app.task(retry_on=TRANSIENT)  # connection errors, timeouts and the like, not a ValueError
def read(number: str) -> int:
    return int(number)


@app.task
def print_page() -> str:
    if "printer" in broken:
        raise OSError("out of paper")
    return "printed"


def main() -> None:
    print("fetch completed in attempt", fetch.enqueue().result(timeout=10))
    page = print_page.enqueue()
    for handle in (charge.enqueue("4711"), read.enqueue("seven"), page):
        try:
            handle.result(timeout=10)
        except TaskFailed as error:
            attempts = handle.refresh().failed_attempts
            print(f"dead, {error.reason}, after {attempts}: {error.error_type}: {error.error_message}")

    broken.clear()  # somebody brought paper
    done = app.tasks.replay_matching(Filter(state="dead", text="out of paper"))
    print(f"replayed {done.changed}:", page.result(timeout=10))
    print("its history:", ", ".join(line.event for line in page.history()))


if __name__ == "__main__":
    with app, app.worker():
        main()
