"""Exactly once: a task writes to your database and completes in the same transaction.

Run it with `python exactly_once.py`. The first run of each payment is interrupted somewhere: before the commit it
leaves nothing behind and runs again; after the commit the task is completed, whatever happens then. Your tables and
the tasks live in the same SQLite file, `exactly_once.db` in the current directory; it is the same on PostgreSQL.
"""

import logging
import sqlite3
from contextlib import closing

from dibs import Context, Dibs

FILE = "exactly_once.db"
app = Dibs(f"sqlite:///{FILE}", retry_base=0)
logging.getLogger("dibs.worker").setLevel(logging.ERROR)  # the worker warns about errors after the commit


def trip(ctx: Context, here: str) -> None:
    if ctx.attempt == 1 and ctx.metadata["trips"] == here:
        raise RuntimeError(f"interrupted {here}")


@app.task
def pay(ctx: Context, order: int) -> int:
    with closing(sqlite3.connect(FILE)) as connection, connection:  # commits, or rolls back if something is raised
        connection.execute("INSERT INTO payments VALUES (?, ?)", (order, ctx.attempt))
        trip(ctx, "before completing")
        ctx.complete_in(connection, result=ctx.attempt)
        trip(ctx, "before the commit")
    trip(ctx, "after the commit")
    return ctx.attempt


def main() -> None:
    places = ["nowhere", "before completing", "before the commit", "after the commit"]
    app.queues.list()  # Dibs first: it creates the file, and declines one that already has other tables
    with closing(sqlite3.connect(FILE)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS payments (number INTEGER, attempt INTEGER)")
        with app.worker():
            for order, place in enumerate(places):
                attempt = pay.using(metadata={"trips": place}).enqueue(order).result(timeout=30)
                print(f"order {order}, interrupted {place}: paid in attempt {attempt}")
        rows = connection.execute("SELECT number, attempt FROM payments ORDER BY number").fetchall()
    print("payments:", rows)


if __name__ == "__main__":
    with app:
        main()
