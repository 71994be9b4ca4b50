"""From errors of Redis and of the network to the errors of Dibs."""

from __future__ import annotations

import socket
import ssl

from dibs.engines.redis.connection import ReplyError
from dibs.errors import DibsError, StoreBusy, StoreError, StoreMismatch, StoreUnavailable

__all__ = ["NETWORK", "ConnectionLost", "NoAnswer", "is_elsewhere", "is_unknown_script", "translation"]

NETWORK = (OSError, TimeoutError, ssl.SSLError)
"""What a connection can fail with."""

ELSEWHERE = ("READONLY", "MOVED", "ASK", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN", "UNKILLABLE")
"""This server does not take the command, or not yet: another one may, or this one later."""


class NoAnswer(OSError):
    """A server did not answer while a connection was made."""


class ConnectionLost(Exception):
    """The connection broke, or led to the wrong server. `unwritten`: it is known that nothing was written."""

    def __init__(self, cause: BaseException, *, unwritten: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.unwritten = unwritten

    @property
    def is_final(self) -> bool:
        """Whether trying again at once would meet the same."""
        if isinstance(self.cause, ReplyError):
            return not is_elsewhere(self.cause)
        return isinstance(self.cause, TimeoutError | NoAnswer | socket.gaierror | ssl.SSLError)


def code_of(error: ReplyError) -> str:
    """The first word of what the server answers. Inside a script, an older server puts its own words before it."""
    text = str(error)
    code = text.partition(" ")[0]
    if "The user executing the script can't" in text:
        return "NOPERM"
    if code == "ERR" and "-" in text:
        for word in text.split():
            if word.startswith("-") and word[1:].isupper():
                return word[1:]
    return code


def is_elsewhere(error: ReplyError) -> bool:
    return code_of(error) in ELSEWHERE


def is_unknown_script(error: ReplyError) -> bool:
    return code_of(error) == "NOSCRIPT"


def words_of(error: BaseException) -> str:
    """What happened, in one line."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused (is it running, and is this its port?)"
    if isinstance(error, socket.gaierror):
        return f"the name of its host is not known ({error.strerror})"
    if isinstance(error, FileNotFoundError):
        return "there is no such socket (is it running?)"
    if isinstance(error, BrokenPipeError):
        return "the connection broke"
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


TEXTS: dict[str, tuple[type[DibsError], str]] = {
    "OOM": (
        StoreUnavailable,
        "is full: it uses all of its maxmemory. Nothing was written; raise maxmemory.",
    ),
    "WRONGPASS": (StoreUnavailable, "does not let us in: {}. Check the user and the password."),
    "NOAUTH": (StoreUnavailable, "wants a password: put it into the URL, as redis://:PASSWORD@host."),
    "NOPERM": (
        StoreUnavailable,
        "does not allow this user what Dibs needs: {}. See the guide on Redis for its rights.",
    ),
    "MISCONF": (StoreUnavailable, "can't save to its disk, and takes no writes: {}. Nothing was written."),
    "NOREPLICAS": (StoreUnavailable, "has too few replicas (min-replicas-to-write). Nothing was written; try again."),
    "BUSY": (StoreBusy, "is busy with a script of somebody else. Nothing was written; try again."),
    "WRONGTYPE": (
        StoreMismatch,
        "has keys under this prefix that Dibs did not make ({}). Give Dibs a prefix of its own: ?prefix=…",
    ),
}


def translation(error: BaseException, where: str) -> DibsError:
    """The Dibs error for one of the server's, or of the network's."""
    if isinstance(error, DibsError):
        return error
    told = words_of(error)
    if isinstance(error, TimeoutError):
        return StoreUnavailable(
            f"{where} did not answer in time. What was asked may have been done; it may be repeated."
        )
    if isinstance(error, ssl.SSLError):
        return StoreUnavailable(f"{where} can't be reached by TLS: {told}. Is it rediss://, and is tls_ca its CA?")
    if isinstance(error, OSError):
        return StoreUnavailable(f"{where} can't be reached: {told}. It may be repeated.")
    if isinstance(error, ReplyError):
        kind, text = TEXTS.get(code_of(error), (StoreError, ""))
        if text:
            return kind(f"{where} {text.format(told)}")
        if is_elsewhere(error):
            return StoreUnavailable(f"{where} takes no writes just now: {told}. Nothing was written; try again.")
    return StoreError(f"{where}: {told}.")
