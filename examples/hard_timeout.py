"""Hard timeouts: a task in a process of its own is killed when its time or its memory is up.

Run it with `python hard_timeout.py`. The memory limit works on Linux only. Python can't stop a thread: a `def` task
that hangs keeps its slot, so code that you don't trust to end belongs in `executor="process"`.
"""

import sys

from dibs import Dibs, Handle
from dibs.errors import TaskFailed

app = Dibs("memory://", retries=0)


@app.task(executor="process", timeout=1)
def spin(turns: int) -> int:
    while turns:
        pass
    return turns


@app.task(executor="process", memory_limit=64 * 1024 * 1024)
def eat(megabytes: int) -> int:
    return len(bytearray(megabytes * 1024 * 1024))


def show(name: str, handle: Handle[int]) -> None:
    try:
        print(f"{name}: {handle.result(timeout=30)}")
    except TaskFailed as error:
        print(f"{name}: {error.error_type}: {error.error_message}")


def main() -> None:
    with app.worker(concurrency=2):
        show("spin", spin.enqueue(1))
        show("eat a little", eat.enqueue(8))
        if sys.platform == "linux":
            show("eat too much", eat.enqueue(500))


if __name__ == "__main__":  # the children import this file: without this line each would start everything again
    with app:
        main()
