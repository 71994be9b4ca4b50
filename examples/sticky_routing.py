"""Sticky routing: a task that needs what is on one machine runs there and nowhere else.

Run it with `python sticky_routing.py`. Here two workers in one process stand for two machines; on the command line it
is `dibs worker sticky_routing:app --capability host:a`. Every worker also offers `host:` and its own host name.
"""

from dibs import Dibs, Handle

app = Dibs("memory://")


@app.task
def resize(file: str) -> str:
    return f"{file} resized"


def uploaded(machine: str, file: str) -> Handle[str]:
    """The file lies on the disk of one machine, so that is where it must be worked on."""
    return resize.using(requires=[f"host:{machine}"]).enqueue(file)


def main() -> None:
    first, other, last = uploaded("a", "cat.jpg"), uploaded("b", "dog.jpg"), uploaded("a", "owl.jpg")

    with app.worker(name="worker-a", capabilities=["host:a"]):
        # Nothing blocks the head of the queue: a worker takes what it can run and leaves the rest to others.
        print(first.result(timeout=10), "by", first.refresh().worker)
        print(last.result(timeout=10), "by", last.refresh().worker)
        print("dog.jpg:", other.refresh().state)
        print("why:", app.why(other.id))

        with app.worker(name="worker-b", capabilities=["host:b"]):
            print(other.result(timeout=10), "by", other.refresh().worker)


if __name__ == "__main__":
    with app:
        main()
