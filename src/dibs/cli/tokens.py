"""`dibs tokens`: makes, lists and revokes the tokens of a server.

What a server needs may not be installed: it is imported where it is used, so that `dibs --help` works without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from dibs.cli.options import LATER, json_option
from dibs.cli.serve import FILE, check_installed
from dibs.core.options import check_real, shown
from dibs.core.times import SECOND, instant, when
from dibs.errors import InvalidOption
from dibs.runtime.environment import actor
from dibs.terminal import Listing, age, emit, note, say, show, table, when_text

if TYPE_CHECKING:
    from dibs.server.tokens import Token, TokenFile

__all__ = ["SCOPES", "tokens"]

log = logging.getLogger("dibs.cli")

DEFAULT_FILE = Path("dibs-tokens.json")
FASTEST = 1_000_000
SCOPES = "produce, consume, read, operate, admin, payloads"


@click.group()
def tokens() -> None:
    """Make, list and revoke the tokens of a server.

    A file holds what each token may do, and its hash, never the token itself. Servers notice changes within seconds.
    """


def file_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--tokens",
        "path",
        type=FILE,
        default=DEFAULT_FILE,
        show_default=True,
        metavar="FILE",
        help="The file, as dibs serve --tokens takes it.",
    )(function)


@tokens.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    metavar="SCOPE",
    help=f"What it may do: {SCOPES}; several may be separated by commas.",
)
@click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="Only in this queue; may be repeated.")
@click.option("--rate", type=float, help="Requests per second, instead of the server's --rate.")
@click.option("--expires", type=LATER, help="When it ends: a time, or a duration such as 90d.")
@file_option
@json_option
def create(
    name: str,
    scopes: tuple[str, ...],
    queues: tuple[str, ...],
    rate: float | None,
    expires: datetime | None,
    path: Path,
    as_json: bool,
) -> None:
    """Make a token and print it, this once."""
    ends = None if expires is None else when(instant(expires, "--expires") // SECOND * SECOND)
    if ends is not None and ends <= datetime.now(UTC):
        raise InvalidOption(f"--expires {when_text(ends)} has passed already.")
    if rate is not None:
        check_real(rate, "--rate", 0.001, FASTEST)
    file = tokens_in(path)
    from dibs.server.tokens import new_token

    secret, token = new_token(name, parts(scopes), parts(queues), rate, ends)
    file.add(token)
    log.info("%s made the token %s in %s.", actor(), token.name, path)
    if as_json:
        emit({"token": secret, **facts(token), "file": str(path.absolute())})
        return
    say(secret)
    note(f"Token {token.name!r} {rights(token)}.")
    note(f"It is shown only this once: {path} keeps its hash. Serve with dibs serve --tokens {path}")


def tokens_in(path: Path) -> TokenFile:
    check_installed("dibs tokens")
    from dibs.server.tokens import TokenFile

    return TokenFile(path)


def parts(given: tuple[str, ...]) -> list[str]:
    """What was given, one or several at a time."""
    return [each for text in given for part in text.split(",") if (each := part.strip())]


def facts(token: Token) -> dict[str, Any]:
    """A token for people and scripts, without its hash."""
    return {
        "name": token.name,
        "scopes": token.scopes,
        "queues": token.queues or None,
        "rate": token.rate,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
    }


def rights(token: Token) -> str:
    queues = f"the queues {', '.join(token.queues)}" if token.queues else "all queues"
    rate = "" if token.rate is None else f", at most {token.rate:g} requests per second"
    until = "until it is revoked" if token.expires_at is None else f"until {when_text(token.expires_at)}"
    return f"has the scopes {', '.join(token.scopes)}, for {queues}{rate}, {until}"


@tokens.command("list")
@file_option
@json_option
def list_tokens(path: Path, as_json: bool) -> None:
    """All tokens with what they may do."""
    found = tokens_in(path).read()
    if as_json:
        emit([{**facts(token), "expired": token.is_over(datetime.now(UTC))} for token in found])
    elif not found:
        say(f"No tokens in {path}: make one with dibs tokens create NAME --scope SCOPE.")
    else:
        show(token_table(found))


def token_table(found: tuple[Token, ...]) -> Listing:
    made = table(
        *("TOKEN", "SCOPES", "QUEUES", "RATE", "MADE", "ENDS"),
        right=["RATE"],
        short={"TOKEN": 12, "SCOPES": 18, "QUEUES": 10},
        leave=["MADE", "RATE"],
    )
    for token in found:
        made.add_row(
            token.name,
            ", ".join(token.scopes),
            ", ".join(token.queues) or "all",
            "–" if token.rate is None else f"{token.rate:g}/s",
            f"{age(token.created_at)} ago",
            ends_text(token),
        )
    return made


def ends_text(token: Token) -> Text:
    if token.is_over(datetime.now(UTC)):
        return Text("expired", style="red")
    return Text("never" if token.expires_at is None else age(token.expires_at))


@tokens.command()
@click.argument("name")
@file_option
@json_option
def revoke(name: str, path: Path, as_json: bool) -> None:
    """Take a token back: servers refuse it from then on."""
    if not path.exists():
        raise InvalidOption(f"there is no file {shown(str(path))}: say with --tokens where the tokens are.")
    token = tokens_in(path).revoke(name)
    log.info("%s revoked the token %s in %s.", actor(), token.name, path)
    if as_json:
        emit({"token": token.name, "revoked": True})
    else:
        say(f"Token {token.name!r} is revoked.")
