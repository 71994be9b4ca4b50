"""Transactional enqueue: the task appears if your own transaction commits, and never if it is rolled back.

Run it with `python transactional_enqueue.py`. Your tables and the tasks live in the same SQLite file,
`transactional_enqueue.db` in the current directory; Dibs's own tables all begin with `dibs_`.
"""

import sqlite3

from dibs import Dibs, Handle
from dibs.errors import UnknownTask

FILE = "transactional_enqueue.db"
app = Dibs(f"sqlite:///{FILE}")


@app.task
def welcome(user: str) -> str:
    return f"Welcome, {user}!"


def sign_up(connection: sqlite3.Connection, user: str) -> Handle[str]:
    connection.execute("INSERT INTO users (name) VALUES (?)", (user,))
    return welcome.using(connection=connection).enqueue(user)


def main() -> None:
    with app.worker():  # Dibs first: it creates the file, and declines one that already has other tables
        connection = sqlite3.connect(FILE)
        connection.execute("CREATE TABLE IF NOT EXISTS users (name TEXT)")

        with connection:  # commits at its end, or rolls back if something is raised
            handle = sign_up(connection, "Ada")
        print(handle.result(timeout=10))

        lost = sign_up(connection, "Bob")
        connection.rollback()
        try:
            lost.refresh()
        except UnknownTask:
            print("Bob was rolled back, and so was his task")

    print("users:", [name for (name,) in connection.execute("SELECT DISTINCT name FROM users")])
    connection.close()


if __name__ == "__main__":
    with app:
        main()
