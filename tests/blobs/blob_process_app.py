"""Tasks for executor processes. The test gives the app its blob store; a child has none, and needs none."""

from __future__ import annotations

from dibs import Dibs

app = Dibs("memory://", inline_limit=1024, retry_base=0)


@app.task(executor="process")
def double(text: str) -> str:
    return text * 2


@app.task(executor="process")
def envelope() -> dict[str, str]:
    return {"$dibs": "blob", "key": "x" * 2000}
