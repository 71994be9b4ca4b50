"""Large arguments and results: kept in a directory (or S3), with a reference in the task.

Run it with `python large_payloads.py`.
"""

import sqlite3
from pathlib import Path

from dibs import Dibs

app = Dibs("sqlite:///large_payloads.db", blobs="large_payloads")  # or blobs="s3://bucket/prefix"


@app.task
def longest_words(text: str, count: int) -> list[str]:
    return sorted(set(text.split()), key=lambda word: (-len(word), word))[:count]


@app.task
def repeat(text: str, times: int) -> str:
    return text * times


def main() -> None:
    book = " ".join(f"word{number}" for number in range(100_000))
    handle = longest_words.enqueue(book, 2)
    print(f"the arguments: {len(book):,} characters")
    with sqlite3.connect("large_payloads.db") as connection:
        (stored,) = connection.execute("SELECT args FROM dibs_tasks").fetchone()
    print("stored with the task is a reference:", stored[:15])
    where = app.tasks.get(handle.id).args
    print("the blob is a file:", (Path("large_payloads") / where["blob"]).stat().st_size == where["size"])
    with app.worker():
        print("result:", handle.result(timeout=10))
        print(f"a large result: {len(repeat.enqueue('x', 1_000_000).result(timeout=10)):,} characters")
    print("blobs:", sum(path.is_file() for path in Path("large_payloads").rglob("*-*-*/*")) >= 2)


if __name__ == "__main__":
    with app:
        main()
