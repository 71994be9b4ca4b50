"""Your own loop: claim, extend and settle by hand, where a worker does not fit.

Run it with `python own_loop.py`. The function of `encode` is never called: its signature checks what is enqueued.
"""

from dibs import Dibs
from dibs.client.consumer import Claim
from dibs.errors import LeaseLost

app = Dibs("memory://")


@app.task(queue="films", name="encode", retries=1, retry_base=0)
def encode(film: str) -> str:
    raise NotImplementedError("done by the loop below")


def work() -> int:
    """Handle films until none is left."""
    seen = 0
    while claims := app.claim(["films"], limit=1, names=["encode"], lease=10, wait=0.2):
        for claim in claims:
            seen += 1
            handle(claim)
    return seen


def handle(claim: Claim) -> None:
    film = claim.args["film"]
    print(f"claimed {film}, attempt {claim.attempt}, lease {claim.lease.number}")
    try:
        app.extend(claim, by=30, progress=0.5, message="half-way")  # repeat this before the lease ends
    except LeaseLost:
        return  # another worker has it now: drop it, the store accepts no report from us
    if claim.cancelled:
        app.settle(claim, "cancelled")
    elif film == "broken":
        app.settle(claim, "failed", error=ValueError("no sound"))  # dead when it is out of attempts
    else:
        app.settle(claim, result=f"{film}.mp4")


def main() -> None:
    good, bad = encode.enqueue("metropolis"), encode.enqueue("broken")
    print("runs:", work())
    print(good.result(timeout=1), "and", bad.refresh().state)


if __name__ == "__main__":
    with app:
        main()
