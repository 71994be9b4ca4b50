"""Every environment variable that Dibs reads, and the facts about this process."""

from __future__ import annotations

import getpass
import os
import secrets
import socket

VARIABLES = {
    "DIBS_URL": "the store to use when no URL is given, such as sqlite:///tasks.db",
    "DIBS_APP": "the app of commands that name none, such as shop:app",
    "DIBS_TOKEN": "the token for a Dibs server, when its URL comes without one",
    "DIBS_BLOBS": "where to keep large payloads when the app does not say: file:///path, s3://bucket/prefix",
    "DIBS_ACTOR": "who is acting, for the audit log; otherwise the name of the operating system's user",
    "NO_COLOR": "set to anything: no colour in the CLI's output",
}


def default_url() -> str | None:
    """`DIBS_URL`, if set."""
    return os.environ.get("DIBS_URL") or None


def default_app() -> str | None:
    """`DIBS_APP`, if set."""
    return os.environ.get("DIBS_APP") or None


def default_token() -> str | None:
    """`DIBS_TOKEN`, if set."""
    return os.environ.get("DIBS_TOKEN") or None


def default_blobs() -> str | None:
    """`DIBS_BLOBS`, if set."""
    return os.environ.get("DIBS_BLOBS") or None


def actor() -> str:
    """Who is acting."""
    named = os.environ.get("DIBS_ACTOR")
    if named:
        return "".join(each if each.isprintable() else "?" for each in named[:200])  # it goes to the audit log
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid {os.getuid()}"


def worker_name() -> str:
    """A name for a worker in this process, unlike any other."""
    return f"{host()}-{os.getpid()}-{secrets.token_hex(3)}"


def host() -> str:
    """This machine's name."""
    return socket.gethostname()
