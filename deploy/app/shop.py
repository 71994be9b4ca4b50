"""The app that compose.yaml runs. Put your own in its place.

It is made without a URL, so DIBS_URL and DIBS_TOKEN name the server.
"""

from __future__ import annotations

from dibs import Dibs

app = Dibs()


@app.task(timeout=10)
def greet(name: str) -> str:
    return f"Hello, {name}!"
