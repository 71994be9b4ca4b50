"""How a server behaves: where it listens, whom it trusts, and how much it takes."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

from msgspec import Struct

from dibs.core.options import check_number, shown
from dibs.errors import InvalidOption

__all__ = ["ANY_HOST", "ServerSettings", "is_loopback"]

MIB = 1024 * 1024
ANY_HOST = "*"
"""As a host: requests may come for any, and from anywhere, because another application decides who may call."""


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Everything that can be set about a server. `hosts` and `origins` are allowed besides its own."""

    host: str = "127.0.0.1"
    port: int = 8642
    tokens: Path | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    """Addresses and networks whose X-Forwarded-* headers are believed."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    rate: float | None = None
    """Requests per second of each client; a token may have its own."""
    most_body: int = 32 * MIB
    most_connections: int = 10_000
    shutdown_timeout: float = 30.0
    keeps: bool = True
    """Whether it takes part in leadership, rescue and chores."""

    def checked(self) -> ServerSettings:
        """The same, if it is safe and complete."""
        check_number(self.port, "port", 0, 65_535)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidOption("TLS needs both a certificate and its key: give --tls-cert and --tls-key.")
        for path in (self.tls_cert, self.tls_key):
            if path is not None and not path.is_file():
                raise InvalidOption(f"there is no file {path}.")
        if self.tokens is None and not is_loopback(self.host):
            raise InvalidOption(
                f"without tokens a server listens on this machine only, and {shown(self.host)} is more than that. "
                "Make a token with dibs tokens create NAME --scope …, and give --tokens FILE; or leave --host out."
            )
        return self


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
