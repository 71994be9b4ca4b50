"""The process of a server: what it listens on, its store, its end."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import aiohttp
import msgspec
import pytest
import trustme
import uvloop

from dibs import Dibs
from dibs.engines.http.protocol import WAKE
from dibs.errors import DibsError, InvalidOption
from dibs.server import http_protocol, process
from dibs.server.process import bind
from dibs.server.settings import ServerSettings
from servers import postgres
from servers import redis as redis_servers
from servers.live import LiveServer
from servers.server_process import PATIENCE, Serving, end_request

SOON = 10.0
"""Seconds, far less than the shutdown timeout."""


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/store.db"


def postgres_url(folder: Path) -> str:
    return postgres.new_url()


def redis_url(folder: Path) -> str:
    return f"{redis_servers.server().url}?prefix={folder.name}"


# Stores.


@pytest.mark.parametrize("url_in", [sqlite_url, postgres_url, redis_url], ids=["sqlite", "postgres", "redis"])
def test_every_store_is_served_on_the_fast_loop(tmp_path: Path, url_in: Callable[[Path], str]) -> None:
    with Serving("--url", url_in(tmp_path), cwd=tmp_path) as server, Dibs(server.url) as app:

        @app.task(name="add")
        def add(x: int, y: int) -> int:
            return x + y

        later = add.using(delay=1).enqueue(3, 4)
        handle = add.enqueue(1, 2)
        (claim,) = app.claim(wait=PATIENCE)
        assert claim.id == handle.id
        app.settle(claim, result=3)
        assert handle.result(timeout=PATIENCE) == 3
        (claim,) = app.claim(wait=PATIENCE)  # promoted when it is due, by who claims
        assert claim.id == later.id
        app.settle(claim, result=7)
        assert later.result(timeout=PATIENCE) == 7
        app.close()
        assert server.stop() == 0
    assert [line for line in server.lines if " INFO " not in line] == []


def test_the_loop_is_uvloops_unless_the_app_has_used_its_own(tmp_path: Path) -> None:
    with Dibs(sqlite_url(tmp_path)) as app:
        process.choose_loop(app)
        assert isinstance(app.hub.runner.loop, uvloop.Loop)
        assert app.queues.list() == []
    with Dibs(sqlite_url(tmp_path)) as app:
        before = app.hub.runner.loop
        process.choose_loop(app)
        assert app.hub.runner.loop is before
        assert app.queues.list() == []


def test_a_store_that_cannot_be_reached_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "mounted later"
    with Serving("--url", sqlite_url(folder), cwd=tmp_path) as server:
        status, body = server.request()
        assert status == 503
        assert msgspec.json.decode(body)["type"].endswith("store-unavailable")
        assert server.request("GET", "/health", b"")[0] == 200
        assert server.request("GET", "/ready", b"")[0] == 503
        folder.mkdir()
        server.wait_for("can be reached after")
        assert server.request()[0] == 200
        wait_until_ready(server)
        server.wait_for("leads now")
        assert server.stop() == 0
    assert server.log.count("can't be reached") == 1


def wait_until_ready(server: Serving) -> None:
    """What is known about the store may be a second old."""
    until = time.monotonic() + PATIENCE
    while server.request("GET", "/ready", b"")[0] != 200:
        assert time.monotonic() < until, "it is not ready"
        time.sleep(0.05)


def test_a_socket_is_refused_while_the_store_cannot_be_reached(tmp_path: Path) -> None:
    async def connect() -> int:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(server.url + WAKE)
            return refused.value.status

    with Serving("--url", sqlite_url(tmp_path / "missing"), cwd=tmp_path) as server:
        assert asyncio.run(connect()) == 403
        assert server.stop() == 0


def test_a_store_of_another_kind_ends_it(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_bytes(b"not a database " * 100)
    with Serving("--url", f"sqlite:///{tmp_path}/notes.db", cwd=tmp_path) as server:
        assert server.finish() == 1
    assert server.log.count("\n") == 1
    assert "not a SQLite database" in server.log


# Stopping.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_under_way_is_answered_before_it_stops(tmp_path: Path, number: int) -> None:
    with Serving(cwd=tmp_path) as server:
        request = server.begin_request()
        server.process.send_signal(number)
        server.wait_for("Got SIG")
        wait_until_refused(server)
        answer = end_request(request)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer.lower()
        assert server.finish() == 0
    assert "cut off" not in server.log


def wait_until_refused(server: Serving) -> None:
    """Until it accepts nothing more."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            socket.create_connection(server.place, timeout=1.0).close()
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail("it still accepts connections")


def test_a_second_signal_ends_requests_at_once(tmp_path: Path) -> None:
    with Serving(cwd=tmp_path) as server, server.begin_request() as request:
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("Got SIGTERM")
        wait_until_refused(server)
        began = time.monotonic()
        assert server.stop() == 1
        assert time.monotonic() - began < SOON
        assert ended(request)
    assert "cut off because the time was up: 1." in server.log
    assert "Traceback" not in server.log


def ended(request: socket.socket) -> bool:
    try:
        return request.recv(1000) == b""
    except ConnectionResetError:
        return True


def test_requests_have_the_shutdown_timeout(tmp_path: Path) -> None:
    with Serving("--shutdown-timeout", "300ms", cwd=tmp_path) as server, server.begin_request():
        began = time.monotonic()
        assert server.stop() == 1
        assert 0.3 <= time.monotonic() - began < SOON
    assert "Traceback" not in server.log


def test_idle_connections_and_sockets_do_not_hold_it_up(tmp_path: Path) -> None:
    async def listen() -> None:
        async with aiohttp.ClientSession() as session, session.ws_connect(server.url + WAKE) as wake:
            await wake.send_str('["work/default"]')
            await wake.receive_str()
            server.process.send_signal(signal.SIGTERM)
            ending = await wake.receive(PATIENCE)
            assert (ending.type, ending.data) == (aiohttp.WSMsgType.CLOSE, 1012)

    with Serving(cwd=tmp_path) as server, socket.create_connection(server.place):
        began = time.monotonic()
        asyncio.run(listen())
        assert server.finish() == 0
        assert time.monotonic() - began < SOON


def test_another_process_can_lead_at_once_when_it_has_stopped(tmp_path: Path) -> None:
    with Serving("--url", sqlite_url(tmp_path), cwd=tmp_path) as server:
        server.wait_for("leads now")
        assert server.stop() == 0
    with Dibs(sqlite_url(tmp_path)) as app:
        term = app.hub.runner.run(app.hub.engine.lead("another"))
    assert term is not None
    assert term.number == 2


def test_a_loop_that_is_blocked_does_not_keep_the_process(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(
        "import sys, time\n"
        "from dibs import Dibs\n"
        "from dibs.server import process\n"
        "process.PATIENCE = 0.2\n"
        "app = Dibs('memory://')\n"
        "async def block(may_block):\n"
        "    print('stuck', file=sys.stderr, flush=True)\n"
        "    time.sleep(600)\n"
        "app.hub.runner._start = block\n"
    )
    with Serving("stuck:app", "--shutdown-timeout", "0", cwd=tmp_path) as server:
        server.wait_for("stuck")
        assert server.stop() == 5
    assert "blocked" in server.log


# Listening.


def refused(settings: ServerSettings) -> DibsError:
    with Dibs("memory://") as app, pytest.raises(DibsError) as error:
        process.serve(app, settings)
    return error.value


def test_a_port_in_use_is_said_to_be(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = refused(ServerSettings(port=port))
        assert f"port {port} of 127.0.0.1 is in use" in str(error)
        assert not isinstance(error, InvalidOption), "trying again later may help"
        with Serving("--port", str(port), cwd=tmp_path) as server:
            assert server.finish() == 1
        assert server.log.count("\n") == 1
        assert not (tmp_path / "dibs.db").exists()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 300, "\udcff", "192.0.2.7"])
def test_a_host_that_is_none_of_this_machine_is_refused(host: str, tmp_path: Path) -> None:
    error = refused(ServerSettings(host=host, port=0, tokens=tmp_path / "tokens.json"))
    assert isinstance(error, InvalidOption)
    assert "--host" in str(error)


def test_a_port_that_this_user_may_not_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(made: socket.socket, address: object, shares: bool) -> socket.socket:
        made.close()
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(process, "bound", refuse)
    assert "may not listen on port 80 of 127.0.0.1" in str(refused(ServerSettings(port=80)))


def test_a_name_that_leads_elsewhere_needs_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: elsewhere)
    with pytest.raises(InvalidOption, match="needs tokens"):
        bind(ServerSettings(host="localhost", port=0))


def test_an_address_of_the_other_family_is_taken_if_the_first_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    own, tried = process.bound, []

    def absent_at_first(made: socket.socket, address: object, shares: bool) -> socket.socket:
        tried.append(address)
        if len(tried) == 1:
            made.close()
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return own(made, address, shares)

    monkeypatch.setattr(process, "bound", absent_at_first)
    with bind(ServerSettings(host="localhost", port=0)) as made:
        assert made.getsockname()[0] == "127.0.0.2"


# TLS.


@pytest.fixture
def certified(tmp_path: Path) -> tuple[ssl.SSLContext, Path, Path]:
    """A client that trusts it, a certificate and its key."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.private_key_pem.write_to_path(key)
    for each in issued.cert_chain_pems:
        each.write_to_path(cert, append=True)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return trusting, cert, key


def test_tls(tmp_path: Path, certified: tuple[ssl.SSLContext, Path, Path]) -> None:
    trusting, cert, key = certified
    with Serving("--tls-cert", str(cert), "--tls-key", str(key), cwd=tmp_path) as server:
        assert server.url.startswith("https://")
        assert server.request(tls=trusting)[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            server.request(tls=ssl.create_default_context())
        assert server.stop() == 0


def test_tls_files_that_cannot_be_used_are_refused(certified: tuple[ssl.SSLContext, Path, Path]) -> None:
    _, cert, key = certified
    assert "no certificate and key" in str(refused(ServerSettings(tls_cert=key, tls_key=key)))
    other = cert.with_name("other.pem")
    trustme.CA().issue_cert("127.0.0.1").private_key_pem.write_to_path(other)
    assert "no certificate and key: key values mismatch" in str(refused(ServerSettings(tls_cert=cert, tls_key=other)))
    other.write_text("nothing")
    assert "no certificate and key" in str(refused(ServerSettings(tls_cert=other, tls_key=key)))
    assert "there is no file" in str(refused(ServerSettings(tls_cert=cert, tls_key=cert.with_name("none"))))


def test_a_tls_file_that_cannot_be_read_is_named(
    certified: tuple[ssl.SSLContext, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    _, cert, key = certified
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert str(refused(ServerSettings(tls_cert=cert, tls_key=key))) == f"{cert} can't be read: Permission denied."


def test_an_encrypted_key_is_not_asked_for_on_the_terminal(certified: tuple[ssl.SSLContext, Path, Path]) -> None:
    from cryptography.hazmat.primitives import serialization

    _, cert, key = certified
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    key.write_bytes(locked)
    assert "encrypted" in str(refused(ServerSettings(tls_cert=cert, tls_key=key)))


WRONG_HEADS = {
    "a long header": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 300_000 + b"\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-Many: x\r\n" * 20_000 + b"\r\n",
    "a long path": b"GET /" + b"x" * 300_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "nonsense": b"nonsense\r\n\r\n",
    "bytes": b"\x00\x01\x02\xff" * 100,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


def test_a_wrong_head_is_refused(tmp_path: Path) -> None:
    with Serving("--url", sqlite_url(tmp_path), cwd=tmp_path) as server:
        for what, head in WRONG_HEADS.items():
            with socket.create_connection(server.place, timeout=PATIENCE) as client:
                answer = b""
                with suppress(ConnectionError):
                    client.sendall(head)
                    answer = client.recv(100)
                assert answer[9:12] in (b"400", b""), (what, answer)
        assert server.request("GET", "/health")[0] == 200
        assert "Traceback" not in server.log


def test_a_head_that_does_not_come_to_its_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.1)
    with LiveServer(Dibs("memory://"), http=http_protocol.LimitedProtocol) as server:
        for begun in (b"", b"GET /health HTTP/1.1\r\nHost: loc"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
                client.sendall(begun)
                assert client.recv(100) == b""


@pytest.mark.parametrize(("trusted", "status"), [("192.0.2.1", 200), ("127.0.0.1", 403), ("127.0.0.0/8", 403)])
def test_forwarded_addresses_are_believed_of_trusted_proxies_only(tmp_path: Path, trusted: str, status: int) -> None:
    """Without tokens only this machine is served: an address that is believed, and is another one, is refused."""
    with Serving("--url", sqlite_url(tmp_path), "--trust-proxy", trusted, cwd=tmp_path) as server:
        assert server.request("GET", "/api/v1/queues", b"", **{"X-Forwarded-For": "192.0.2.7"})[0] == status
        assert server.request("GET", "/api/v1/queues", b"")[0] == 200
