"""The hook for compression and encryption."""

from __future__ import annotations

import zlib

import pytest

from dibs import Dibs
from dibs.errors import InvalidArguments

from .conftest import TIMEOUT, MakeApp


class Zlib:
    name = "zlib"

    def encode(self, payload: bytes) -> bytes:
        return zlib.compress(payload)

    def decode(self, payload: bytes) -> bytes:
        return zlib.decompress(payload)


class Reversed:
    name = "reversed"

    def encode(self, payload: bytes) -> bytes:
        return payload[::-1]

    decode = encode


def add_echo(app: Dibs) -> None:
    @app.task(name="echo")
    def echo(text: str) -> str:
        return text


def stored(app: Dibs, task_id: str) -> bytes:
    record = app.hub.runner.run(app.hub.engine.get([task_id]))[0]
    assert record is not None
    return record.args


def test_arguments_and_results_go_through_it(make_app: MakeApp) -> None:
    app = make_app(payload_codec=Zlib())
    add_echo(app)
    long = "abc" * 200_000  # more than the limit, were it not compressed
    handle = app.task_named("echo").enqueue(long)
    assert len(stored(app, handle.id)) < 5_000
    assert stored(app, handle.id).startswith(b'{"$dibs":"zlib"')
    with app.worker():
        assert handle.result(TIMEOUT) == long
    assert handle.refresh().args == {"text": long}


def test_old_payloads_stay_readable(make_app: MakeApp) -> None:
    app = make_app(payload_codec=Reversed(), also_reads=[Zlib()])
    add_echo(app)
    codec = app.hub.codec
    reader = app.task_named("echo")
    new = reader.enqueue("new")
    codec.writes = Zlib()
    old = reader.enqueue("old")
    codec.writes = None
    plain = reader.enqueue("plain")
    with app.worker():
        assert [handle.result(TIMEOUT) for handle in (new, old, plain)] == ["new", "old", "plain"]


def test_a_codec_that_is_missing_is_named(make_app: MakeApp) -> None:
    app = make_app(payload_codec=Zlib())
    add_echo(app)
    handle = app.task_named("echo").enqueue("x")
    del app.hub.codec.reads["zlib"]
    assert "unreadable payload" in handle.refresh().args
    with pytest.raises(InvalidArguments, match="written with the codec 'zlib', which this app does not have"):
        app.claim()


def test_a_payload_that_looks_like_an_envelope_is_kept(make_app: MakeApp) -> None:
    app = make_app()

    @app.task(name="keep")
    def keep(value: dict[str, str]) -> dict[str, str]:
        return value

    handle = keep.enqueue({"$dibs": "zlib"})
    with app.worker():
        assert handle.result(TIMEOUT) == {"$dibs": "zlib"}
