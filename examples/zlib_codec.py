"""A payload codec: arguments and results are compressed before they are stored. Encryption works the same way.

Run it with `python zlib_codec.py`.
"""

import sqlite3
import zlib

from dibs import Dibs

URL = "sqlite:///zlib_codec.db"


class Zlib:
    """What a payload codec is: a name, which is stored with each payload, and two functions on bytes."""

    name = "zlib"

    def encode(self, payload: bytes) -> bytes:
        return zlib.compress(payload)

    def decode(self, payload: bytes) -> bytes:
        return zlib.decompress(payload)


app = Dibs(URL, payload_codec=Zlib())
old_app = Dibs(URL, also_reads=[Zlib()])  # while a codec is rolled out: reads both, writes plain JSON


@app.task
def count_words(text: str) -> int:
    return len(text.split())


def main() -> None:
    handle = count_words.enqueue("first dibs to the most urgent task " * 1000)
    with sqlite3.connect("zlib_codec.db") as connection:
        (size,) = connection.execute("SELECT length(args) FROM dibs_tasks").fetchone()
    print("35,000 characters are stored in less than 1,000 bytes:", size < 1000)
    print("read by the other app:", len(old_app.tasks.get(handle.id).args["text"]), "characters")
    with app.worker():
        print("words:", handle.result(timeout=10))


if __name__ == "__main__":
    with app, old_app:
        main()
