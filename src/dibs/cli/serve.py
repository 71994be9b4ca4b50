"""`dibs serve`: answer requests over HTTP for a store."""

from __future__ import annotations

import logging
from contextlib import closing
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from dibs.cli.loading import open_store
from dibs.cli.options import SPAN
from dibs.cli.worker import own_command
from dibs.client.app import Dibs
from dibs.core.options import check_number, check_real, shown
from dibs.engines.values import Feature
from dibs.errors import InvalidOption, UsageError
from dibs.observe.logs import LEVELS, set_up_logging
from dibs.worker.supervisor import supervise

if TYPE_CHECKING:
    from dibs.server.settings import ServerSettings

__all__ = ["FILE", "check_installed", "child_command", "serve"]

log = logging.getLogger("dibs.cli")

MIB = 1024 * 1024
MOST_PROCESSES = 1000
FASTEST = 1_000_000
LONGEST_PATH = 1000


class FileType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """The path of a file, which messages can show."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value).isprintable() or not 0 < len(str(value)) <= LONGEST_PATH:
            self.fail(f"{shown(str(value))} is not the path of a file.", param, ctx)
        return Path(value)


FILE = FileType()


@click.command()
@click.argument("app_spec", metavar="[MODULE:APP]", required=False)
@click.option("--url", metavar="URL", help="The store, such as sqlite:///tasks.db.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8642, show_default=True, help="The port to listen on; 0 takes a free one.")
@click.option("--tokens", type=FILE, metavar="FILE", help="Require tokens: those that dibs tokens made.")
@click.option("--allow-host", multiple=True, metavar="HOST", help="Another name of this server; may be repeated.")
@click.option("--allow-origin", multiple=True, metavar="ORIGIN", help="Pages of this origin may call it; repeatable.")
@click.option("--trust-proxy", multiple=True, metavar="ADDRESS", help="A proxy, or its network; may be repeated.")
@click.option("--tls-cert", type=FILE, metavar="FILE", help="The certificate, for https.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="The key of the certificate.")
@click.option("--workers", default=1, show_default=True, help="Processes; those that die are started again.")
@click.option("--rate", type=float, help="Requests per second of each client, unless its token says otherwise.")
@click.option("--max-body-mib", default=32, show_default=True, help="The largest request, in MiB.")
@click.option("--shutdown-timeout", type=SPAN, default="30s", show_default=True, help="Time to finish after a signal.")
@click.option("--access-log", is_flag=True, help="Log each request.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="How much to log, to stderr.",
)
@click.option("--json-logs", is_flag=True, help="One JSON object per log line.")
@click.option("--shared-port", type=int, hidden=True, help="As one of several processes: the port of all of them.")
def serve(app_spec: str | None, url: str | None, workers: int, shared_port: int | None, **given: Any) -> int:
    """Serve a store over HTTP: to producers, workers and operators in any language.

    Listens on this machine only, unless --tokens says who may call. Serves the store of an app, which also declares
    its schedules, or the one of --url; by default what the environment or pyproject.toml names, or ./dibs.db. A store
    that is not there is made. Besides
    answering, it does what workers do for their store: it takes back lost tasks and fires schedules.

    Works until SIGTERM or SIGINT, then finishes requests within --shutdown-timeout; a second signal ends them at once.
    The exit code is 0 if every request was answered.
    """
    check_installed("dibs serve")
    check_number(workers, "--workers", 1, MOST_PROCESSES)
    settings = settings_from(given).checked()
    if url is not None and app_spec is not None:
        raise InvalidOption("--url and MODULE:APP both name a store: give one of them.")
    app = open_store(url, app_spec, create=True)
    check_served(app, workers)
    set_up_logging(given["log_level"], given["json_logs"])
    if shared_port is None and workers > 1:
        app.close()
        return serve_together(settings, workers)
    if app.hub.url.startswith("memory:"):
        log.warning("The store is in the memory of this process: everything in it is gone when the server stops.")
    if shared_port is not None:
        settings = structs.replace(settings, port=shared_port)

    from dibs.server import process

    return process.serve(app, settings, shares_port=shared_port is not None, access_log=given["access_log"])


def check_installed(command: str) -> None:
    """Refuse a command if what a server needs is not installed."""
    try:
        import dibs.server.process  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("dibs"):
            raise
        raise UsageError(f"{command} needs more: pip install 'dibs[server]'.") from error


def settings_from(given: dict[str, Any]) -> ServerSettings:
    from dibs.server.settings import ServerSettings

    return ServerSettings(
        host=given["host"],
        port=check_number(given["port"], "--port", 0, 65_535),
        tokens=given["tokens"],
        hosts=given["allow_host"],
        origins=given["allow_origin"],
        proxies=tuple(network(text) for text in given["trust_proxy"]),
        tls_cert=given["tls_cert"],
        tls_key=given["tls_key"],
        rate=None if given["rate"] is None else check_real(given["rate"], "--rate", 0.001, FASTEST),
        most_body=check_number(given["max_body_mib"], "--max-body-mib", 1, 1024) * MIB,
        shutdown_timeout=given["shutdown_timeout"],
    )


def network(text: str) -> str:
    """An address or a network, in its plainest form."""
    try:
        found = str(ip_network(text.strip(), strict=False))
    except ValueError:
        raise InvalidOption(
            f"--trust-proxy {shown(text)} is neither an address nor a network, such as 10.0.0.0/8."
        ) from None
    return found if "/" in text else found.partition("/")[0]


def check_served(app: Dibs, workers: int) -> None:
    if app.hub.url.startswith(("http://", "https://")):
        raise InvalidOption(
            f"{app.hub.store_name} is a Dibs server itself, and one can't serve another: give the URL of its store."
        )
    if workers > 1 and Feature.SHARED not in app.hub.features:
        raise InvalidOption(f"{app.hub.store_name} can't be shared by several processes: leave --workers out.")


def serve_together(settings: ServerSettings, processes: int) -> int:
    """Several processes on one port. This one holds it, so that it stays the same when they are started again."""
    from dibs.server.process import bind

    with closing(bind(settings)) as alone:  # refused if anything listens there, even another server of this user
        settings = structs.replace(settings, port=alone.getsockname()[1])
    with closing(bind(settings, shares=True)):
        return supervise(child_command(own_command(()), settings.port), processes)


def child_command(command: list[str], port: int) -> list[str]:
    """The command of one of several processes."""
    after = command.index("serve") + 1
    return [*command[:after], "--shared-port", str(port), *command[after:]]
