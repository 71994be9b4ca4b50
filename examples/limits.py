"""Limits and fairness: concurrency, rates, one at a time per customer, and fair shares for tenants.

Run it with `python limits.py`. Tasks are claimed by hand here, as a worker would, on a clock that we move.
"""

from collections import Counter

from dibs import Dibs
from dibs.errors import RateLimited
from dibs.testing import ManualClock

clock = ManualClock()
app = Dibs("memory://", clock=clock, client="web-1")


@app.task(queue="sync", per="customer")  # the customer is the partition that limits count by
def sync(customer: str) -> None: ...


@app.task(queue="mail")
def send(number: int) -> None: ...


@app.task(queue="render")
def render(page: int) -> None: ...


def main() -> None:
    app.queues.set("sync", per_partition=1)  # one at a time per customer, over all workers
    for customer in ("acme", "acme", "beta", "acme"):
        sync.enqueue(customer)
    print("start:", ", ".join(claim.args["customer"] for claim in app.claim(["sync"], limit=10)))
    for limit in app.queues.full_limits("sync"):  # `dibs why` says the same about one task
        print(f"{limit.scope} {limit.whose}: {limit.running} of {limit.max_concurrent} running")

    app.queues.set("mail", per_task={send.name: {"rate": 5, "burst": 2}}, enqueue_rate=2, enqueue_burst=4)
    try:
        for number in range(10):
            send.enqueue(number)
    except RateLimited as error:
        print(f"enqueued {number}, then: come back in {error.retry_after} s")
    print("sent at once:", len(app.claim(["mail"], limit=10)))
    clock.advance(0.2)
    print("after 0.2 s:", len(app.claim(["mail"], limit=10)))

    app.queues.set("render", fair=True, weights={"big": 2})
    for tenant, pages in (("big", 1000), ("small", 6), ("tiny", 3)):
        app.enqueue_many(render.using(tenant=tenant).call(page) for page in range(pages))
    tenants = Counter(claim.task.spec.tenant for claim in app.claim(["render"], limit=12))
    print("shares of 12:", dict(tenants))


if __name__ == "__main__":
    with app:
        main()
