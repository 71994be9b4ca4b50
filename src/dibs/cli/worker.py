"""`dibs worker`: run an app's tasks."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dibs.cli.kinds import QUEUE
from dibs.cli.loading import app_of_worker
from dibs.cli.options import SPAN
from dibs.core.options import as_number, check_number, shown
from dibs.errors import InvalidOption
from dibs.observe.logs import LEVELS, set_up_logging
from dibs.worker.main import run
from dibs.worker.settings import WorkerSettings
from dibs.worker.supervisor import reload, supervise
from dibs.worker.worker import Worker

__all__ = ["own_command", "worker"]

log = logging.getLogger("dibs.cli")

MOST_PROCESSES = 1000
LOG_OPTIONS = ("log_level", "json_logs")


@click.command()
@click.argument("app_spec", metavar="[MODULE:APP]", required=False)
@click.option(
    "--queues", "-q", type=QUEUE, help="Queues to serve, separated by commas; by default those of the app's tasks."
)
@click.option("--concurrency", "-c", default=10, show_default=True, help="Tasks at once in one process.")
@click.option("--capability", multiple=True, help="What this worker offers to tasks that require it; may be repeated.")
@click.option("--reserve", multiple=True, metavar="PRIORITY:SLOTS", help="Keep slots for urgent work, such as 80:2.")
@click.option("--in-order", is_flag=True, help="Serve the queues strictly in the order given.")
@click.option("--processes", default=1, show_default=True, help="Worker processes; those that die are started again.")
@click.option("--reload", "watch_code", is_flag=True, help="Start again when code here changes; for development.")
@click.option("--lease", type=SPAN, help="How long leases last, whatever tasks and queues say.")
@click.option("--no-prefetch", is_flag=True, help="Claim only what can start at once.")
@click.option("--shutdown-timeout", type=SPAN, default="30s", show_default=True, help="Time to finish after a signal.")
@click.option("--until-idle", is_flag=True, help="Leave when nothing is left to do.")
@click.option("--metrics-port", type=int, help="Serve /metrics, /health and /ready on this port; 0 takes a free one.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address of that port.")
@click.option("--name", help="The worker's name; by default host, process and a random part.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="How much to log, to stderr.",
)
@click.option("--json-logs", is_flag=True, help="One JSON object per log line.")
@click.pass_context
def worker(context: click.Context, /, app_spec: str | None, processes: int, watch_code: bool, **given: Any) -> int:
    """Run the tasks of an app.

    The app is MODULE:APP, or the one that DIBS_APP or pyproject.toml names.

    Works until SIGTERM or SIGINT, then finishes what runs within --shutdown-timeout; a second signal hands running
    tasks back at once. The exit code is 0 if everything was finished, 3 if work was handed back. Modules in the
    current directory can be imported. An app that configures logging itself keeps its configuration.
    """
    settings = settings_from(given)
    check_number(processes, "--processes", 1, MOST_PROCESSES)
    if processes > 1 and settings.name is not None:
        raise InvalidOption("--name can't be shared by several processes: leave it out.")
    if processes > 1 and watch_code:
        raise InvalidOption("--reload is for one process: leave --processes out.")
    if watch_code:  # the app is imported by the child only
        set_up_logging(given["log_level"], given["json_logs"])
        return reload(own_command(("--reload",)), [Path.cwd()])
    app, app_spec = app_of_worker(app_spec)
    has_set_up = set_up_logging(given["log_level"], given["json_logs"])
    if processes > 1:
        return supervise(partial(child_command, given["metrics_port"]), processes)
    if not has_set_up:
        respect_own_logging(context, app_spec)
    with app:
        app.hub.runner.ensure_engine()
        if not app.hub.definitions:
            log.warning("%s has no tasks: import the modules that define them where the app is made.", app_spec)
        return run(app.hub, settings, app_spec, endpoint(given["metrics_port"], given["metrics_host"]))


def endpoint(port: int | None, host: str) -> Callable[[Worker], AbstractContextManager[object]]:
    """What serves the metrics of a worker, if anything does."""
    if port is None:
        return nullcontext
    from dibs.exporters.endpoint import serving

    check_number(port, "--metrics-port", 0, 65_535)
    return lambda worker: serving(worker, port, host)


def child_command(metrics_port: int | None, place: int) -> list[str]:
    """The command of one of several processes: each has a metrics port of its own, from the given one on."""
    command = own_command(("--processes", "--metrics-port"))
    if metrics_port is None:
        return command
    return [*command, "--metrics-port", str(metrics_port + place - 1 if metrics_port else 0)]


def respect_own_logging(context: click.Context, app_spec: str) -> None:
    """Say that the app's own configuration of logging is in use. It may have disabled Dibs's loggers by default."""
    for name, logger in tuple(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.split(".")[0] == "dibs":
            logger.disabled = False
    given = [f"--{name.replace('_', '-')}" for name in LOG_OPTIONS if is_given(context, name)]
    if given:
        verb = "is" if len(given) == 1 else "are"
        log.warning("%s configures logging itself, so %s %s not applied.", app_spec, " and ".join(given), verb)
    else:
        log.info("%s configures logging itself; Dibs adds only the facts of the running task.", app_spec)


def is_given(context: click.Context, option: str) -> bool:
    return context.get_parameter_source(option) is not ParameterSource.DEFAULT


def settings_from(given: dict[str, Any]) -> WorkerSettings:
    queues = given["queues"]
    return WorkerSettings(
        queues=tuple(part.strip() for part in queues.split(",") if part.strip()) if queues else (),
        concurrency=given["concurrency"],
        capabilities=given["capability"],
        reserve=dict(parse_reserve(text) for text in given["reserve"]),
        in_order=given["in_order"],
        name=given["name"],
        shutdown_timeout=given["shutdown_timeout"],
        until_idle=given["until_idle"],
        lease=given["lease"],
        prefetch=not given["no_prefetch"],
    )


def parse_reserve(text: str) -> tuple[int, int]:
    priority, _, slots = text.partition(":")
    numbers = as_number(priority), as_number(slots)
    if not isinstance(numbers[0], int) or not isinstance(numbers[1], int):
        raise InvalidOption(f"--reserve {shown(text)} is not PRIORITY:SLOTS, such as 80:2.")
    return numbers[0], numbers[1]


def own_command(without: tuple[str, ...]) -> list[str]:
    """This command line for a child process, without the options that only concern this process."""
    kept: list[str] = []
    words = iter(sys.argv[1:])
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in without:
            kept.append(word)
        elif name in ("--processes", "--metrics-port") and not equals:
            next(words, None)
    return [sys.executable, "-m", "dibs", *kept]
