"""Plain functions: enqueue functions of modules that you allow, without a decorator.

Run it with `python plain_functions.py`. Workers find the functions by importing the allowed modules.
"""

import getpass
import textwrap
import time

from dibs import Dibs
from dibs.errors import InvalidOption

app = Dibs("memory://", allow=["textwrap"])


def main() -> None:
    handle = app.enqueue(textwrap.indent, "first dibs\n", prefix="> ")
    info = handle.refresh()
    print("enqueued:", info.name, info.args)
    with app.worker():
        print("result:", repr(handle.result(timeout=10)))

    for function in (getpass.getuser, time.time):
        try:
            app.enqueue(function)
        except InvalidOption as error:
            print("refused:", error)


if __name__ == "__main__":
    with app:
        main()
