"""Tokens: who may do what. A file holds their hashes; `dibs tokens` writes it, servers notice when it changes."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fcntl import LOCK_EX, flock
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec
from msgspec import Struct

from dibs.core.options import QUEUES, check_label, check_names, nearest, shown
from dibs.engines.http.protocol import Scope
from dibs.errors import InvalidOption, UsageError

__all__ = ["ALL_SCOPES", "Token", "TokenFile", "new_token"]

PREFIX = "dibs_"
"""How every token begins, so that scanners for leaked secrets can find it."""
LOOK_EVERY = 1.0
"""Seconds after which a server looks whether the file has changed."""
ALL_SCOPES = frozenset(Scope)


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One token as it is stored. No queues: all of them. `rate` is requests per second."""

    name: str
    sha256: str
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...] = ()
    rate: float | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


class Tokens(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds."""

    tokens: tuple[Token, ...] = ()


def new_token(
    name: str,
    scopes: Sequence[str],
    queues: Sequence[str] = (),
    rate: float | None = None,
    expires_at: datetime | None = None,
) -> tuple[str, Token]:
    """A token, and what is stored of it."""
    secret = PREFIX + secrets.token_urlsafe(32)
    return secret, Token(
        name=check_token_name(name),
        sha256=hashed(secret),
        scopes=check_scopes(scopes),
        queues=check_names(queues, "queues", QUEUES) if queues else (),
        rate=rate,
        created_at=datetime.now(UTC).replace(microsecond=0),
        expires_at=expires_at,
    )


def check_token_name(name: object) -> str:
    """It ends up in the names of workers, behind an @, and in the audit log."""
    checked = check_label(name, "a token's name")
    if "@" in checked or len(checked) > 60:
        raise InvalidOption(f"a token's name has at most 60 characters and no @, and {shown(name)} has not.")
    return checked


def check_scopes(scopes: Collection[str]) -> tuple[Scope, ...]:
    if not scopes:
        raise InvalidOption(f"a token needs scopes: some of {', '.join(Scope)}.")
    for each in scopes:
        if each not in list(Scope):
            hint = nearest(each, Scope)
            raise InvalidOption(f"no scope is called {shown(each)}.{hint} Scopes: {', '.join(Scope)}.")
    return tuple(scope for scope in Scope if scope in scopes)


def hashed(secret: str) -> str:
    """A token is as random as its hash is long: it needs no salt and no slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class TokenFile:
    """The tokens of a file. Reading is cheap: the file is looked at about once a second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: tuple[Token, ...] = ()
        self._stamp: tuple[int, int, int] | None = None
        self._looked = float("-inf")

    def read(self) -> tuple[Token, ...]:
        """What the file holds now; none if there is no file."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise UsageError(f"the tokens in {self.path} can't be read: {error.strerror}.") from None
        try:
            return msgspec.json.decode(text, type=Tokens).tokens
        except (msgspec.DecodeError, UnicodeError) as error:
            raise UsageError(f"the tokens in {self.path} can't be read: {error}.") from None

    def current(self) -> tuple[Token, ...]:
        """The tokens, read again if the file has changed. While it can't be read, those that are known stay."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            with suppress(OSError, UsageError):
                found = self.path.stat()
                stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
                if stamp != self._stamp:
                    self._known, self._stamp = self.read(), stamp
        return self._known

    def find(self, secret: str) -> Token | None:
        """The token with this secret. Takes as long for a wrong one as for a right one."""
        given, found = hashed(secret), None
        for token in self.current():
            if hmac.compare_digest(token.sha256, given):
                found = token
        return None if found is None or found.is_over(datetime.now(UTC)) else found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While one command changes the file, others wait."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_name(f".{self.path.name}.lock").open("a") as lock:
                flock(lock, LOCK_EX)
                yield
        except OSError as error:
            raise UsageError(f"the tokens in {self.path} can't be changed: {error.strerror}.") from None

    def add(self, token: Token) -> None:
        with self._alone():
            self._add(token)

    def _add(self, token: Token) -> None:
        tokens = self.read()
        if any(each.name == token.name for each in tokens):
            raise InvalidOption(
                f"a token is called {shown(token.name)} already: revoke it first, or take another name."
            )
        self._write((*tokens, token))

    def revoke(self, name: str) -> Token:
        with self._alone():
            return self._revoke(name)

    def _revoke(self, name: str) -> Token:
        tokens = self.read()
        for token in tokens:
            if token.name == name:
                self._write(tuple(each for each in tokens if each is not token))
                return token
        raise InvalidOption(f"no token is called {shown(name)}.{nearest(name, [each.name for each in tokens])}")

    def _write(self, tokens: tuple[Token, ...]) -> None:
        """At once or not at all, and readable by its owner only."""
        text = msgspec.json.format(msgspec.json.encode(Tokens(tokens)), indent=2) + b"\n"
        try:
            with NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}.", delete=False) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).replace(self.path)
        except OSError as error:
            raise UsageError(f"the tokens can't be written to {self.path}: {error.strerror}.") from None
