"""Apps on each engine, as the tests of the client have them."""

from client.conftest import app, make_app, still, url

__all__ = ["app", "make_app", "still", "url"]
