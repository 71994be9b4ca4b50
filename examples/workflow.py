"""A workflow: steps that wait for each other, results that pass from task to task, and a replay from where it failed.

Run it with `python workflow.py`.
"""

from dibs import Dibs, Permanent, State, chain, group, take

app = Dibs("memory://", retries=0)
PAPER = {"there": False}


@app.task
def find_orders(day: str) -> list[int]:
    return [19, 5, 7]


@app.task
def total(orders: list[int], region: int) -> int:
    return sum(orders) * region


@app.task
def print_report(title: str, totals: list[int]) -> str:
    if not PAPER["there"]:
        raise Permanent("out of paper")
    return f"{title}: {totals}"


@app.task
def apologise(to: str) -> str:
    return f"sorry, {to}"


def main() -> None:
    orders = find_orders.call("monday")
    totals = group(total.call(take(orders), region=region) for region in (1, 2, 3))
    report = print_report.call("monday", take(totals))  # waits for what it takes
    sorry = apologise.using(after=[report.if_failed()]).call("boss")
    workflow = app.enqueue_workflow(group(chain(orders, totals, report), sorry), name="orders")

    info = workflow.wait(timeout=10)
    print("it has", info.state, "with", info.counts[State.DEAD], "dead of", info.total)
    print("meanwhile:", workflow[sorry].result())

    PAPER["there"] = True
    workflow.replay()  # only what is dead, and what was cancelled because of it
    print("after a replay:", workflow.wait(timeout=10).state)
    print("report:", workflow[report].result())
    print(workflow.graph().text())


if __name__ == "__main__":
    with app, app.worker():
        main()
