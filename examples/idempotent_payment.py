"""Idempotency: a key stands for one task, however often it is enqueued.

Run it with `python idempotent_payment.py`.
"""

from decimal import Decimal

from dibs import Context, Dibs
from dibs.errors import IdempotencyConflict

app = Dibs("memory://")
ledger: dict[str, Decimal] = {}


@app.task(queue="payments")
def pay(ctx: Context, order: str, amount: Decimal) -> str:
    # At least once is what a queue can promise: a worker may die after the effect and before the report. So the
    # effect itself must be repeatable. The task's id is the same in every run.
    if ctx.id not in ledger:
        ledger[ctx.id] = amount
    return f"paid {amount} for {order}"


def main() -> None:
    once = pay.using(key="order-42")
    first = once.enqueue("42", Decimal("19.90"))
    again = once.enqueue("42", Decimal("19.90"))  # a second click, or a retry of the web request
    print("same task:", first.id == again.id, "duplicate:", first.duplicate, again.duplicate)

    try:
        once.enqueue("42", Decimal("99.00"))
    except IdempotencyConflict as error:
        print("conflict with the same task:", error.task_id == first.id)

    with app.worker():
        print(first.result(timeout=10))

    # The key is held for 24 hours (`window`), even after its task has ended.
    late = once.enqueue("42", Decimal("19.90"))
    print("after the end:", late.duplicate, late.result(timeout=10))
    print("payments:", len(ledger))


if __name__ == "__main__":
    with app:
        main()
