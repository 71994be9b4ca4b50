"""A producer in a process of its own: `python sqlite_producer.py URL`, until its standard input ends.

It enqueues one task after the other and tells of each: `kept BEGAN ID` when it is acknowledged, or `refused BEGAN WHY`.
"""

from __future__ import annotations

import sys
import threading
import time

from dibs import Dibs
from dibs.errors import StoreError


def produce(url: str) -> None:
    told_to_end = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), told_to_end.set()), daemon=True).start()
    with Dibs(url) as app:

        @app.task
        def note(number: int) -> None: ...

        number = 0
        while not told_to_end.is_set():
            number += 1
            began = time.time_ns()
            try:
                print("kept", began, note.enqueue(number).id, flush=True)
            except StoreError as error:
                print("refused", began, error, flush=True)
                told_to_end.wait(0.01)


if __name__ == "__main__":
    produce(sys.argv[1])
