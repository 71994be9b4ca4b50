"""First steps: define a task, enqueue it, run it, read its result.

Run it with `python first_steps.py`. It keeps its tasks in `first_steps.db` in the current directory, and runs its
worker in the same process. In real life workers are processes of their own: `dibs worker first_steps:app`.
"""

from dibs import Dibs

app = Dibs("sqlite:///first_steps.db")


@app.task
async def greet(name: str, greeting: str = "Hello") -> str:
    return f"{greeting}, {name}!"


@app.task(queue="mail", priority="high", retries=5, timeout=30)
def send(to: str, subject: str) -> int:
    """A plain function runs in a thread, an async one on the worker's event loop."""
    print(f"sending {subject!r} to {to}")
    return len(subject)


def main() -> None:
    first = greet.enqueue("Ada")  # returns once the task is on disk; no worker is needed for that
    second = send.enqueue("ada@example.org", subject="Hi")
    print("enqueued:", first.refresh().state, second.refresh().state)

    with app.worker(concurrency=4):
        print(first.result(timeout=10))
        print("sent", second.result(timeout=10), "characters")

    print("in the end:", first.refresh().state, second.refresh().state)
    print("called in place:", send("bob@example.org", "Just a function"))


if __name__ == "__main__":
    with app:
        main()
