"""`dibs simulate`: what would happen, with these workers and these settings?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from msgspec import structs

from dibs import simulation
from dibs.cli.kinds import QUEUE, SETTING
from dibs.cli.loading import open_store
from dibs.cli.options import SPAN, add_options, json_option, parse_pairs, store_options
from dibs.cli.queue_settings import setting_value, settings_data, settings_text, wanted_changes
from dibs.client.app import Dibs
from dibs.core.options import check_number, check_real
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.core.times import SECOND
from dibs.engines.values import Query
from dibs.errors import InvalidOption, Refused
from dibs.simulation.cases import MOST_TASKS, Case, Outcome, Source, cases_of, made_up, recommendation, recorded_source
from dibs.simulation.chart import picture
from dibs.simulation.synthetic import Durations, Pattern
from dibs.simulation.tables import show_outcomes
from dibs.simulation.targets import Target, judge, parse_target
from dibs.terminal import emit, note, status

__all__ = ["simulate"]

Function = TypeVar("Function", bound=Callable[..., Any])

MADE_UP = (
    "rate",
    "pattern",
    "period",
    "mix",
    "names",
    "tenants",
    "skew",
    "partitions",
    "duration",
    "durations",
    "seed",
)
"""Options that don't apply to recorded arrivals."""

PAGE = 1000


def arrival_options(function: Function) -> Function:
    """Which tasks arrive when."""
    return add_options(
        function,
        click.option("--tasks", default=100_000, show_default=True, help="How many; of a queue, the newest so many."),
        click.option("--rate", default=8.0, show_default=True, help="Tasks per second, on average."),
        click.option(
            "--pattern",
            type=click.Choice([each.value for each in Pattern]),
            default=Pattern.STEADY.value,
            show_default=True,
            help="How the rate changes. burst: 80% of the tasks come in 10% of the time; daily: a ninth at night.",
        ),
        click.option("--period", type=SPAN, help="How often the pattern repeats.  [default: burst 10m, daily 1d]"),
        click.option(
            "--mix",
            default="low:30,normal:60,critical:10",
            show_default=True,
            help="Priorities (names or numbers) with their weights.",
        ),
        click.option(
            "--duration", type=SPAN, default="1s", show_default=True, help="How long a task runs, on average."
        ),
        click.option(
            "--durations",
            type=click.Choice([each.value for each in Durations]),
            default=Durations.EXPONENTIAL.value,
            show_default=True,
            help="How durations spread.",
        ),
        click.option("--tenants", default=0, show_default=True, help="Tenants: tenant-1, the busiest, tenant-2, …"),
        click.option("--skew", default=1.0, show_default=True, help="Tenant k sends 1/k^skew as much as the first."),
        click.option("--names", default="work", show_default=True, help="Task names with their weights."),
        click.option("--partitions", default=0, show_default=True, help="Partitions (per=), all alike."),
        click.option("--seed", default=0, show_default=True, help="Another seed gives other tasks of the same kind."),
        click.option(
            "--from-queue", metavar="QUEUE", type=QUEUE, help="Instead: the completed tasks of this queue as they came."
        ),
        click.option("--load", default=1.0, show_default=True, help="With --from-queue: so many times as fast."),
    )


def setting_options(function: Function) -> Function:
    """Limits and shares, as `dibs queues set` takes them."""
    return add_options(
        function,
        click.option("--per-task", multiple=True, metavar="TASK[:PART]=VALUE", help="As in `dibs queues set`."),
        click.option("--per-partition", multiple=True, metavar="[PART=]VALUE", help="As in `dibs queues set`."),
        click.option("--fair/--no-fair", default=None, help="Share the queue between tenants."),
        click.option("--weight", multiple=True, metavar="TENANT=NUMBER", help="A tenant's share; 1 for others."),
    )


@click.command()
@click.argument("changes", metavar="[NAME=VALUE]...", nargs=-1, type=SETTING)
@click.option("--workers", default=1, show_default=True, help="Workers.")
@click.option("--concurrency", default=10, show_default=True, help="Tasks at once in each of them.")
@arrival_options
@setting_options
@click.option(
    "--sweep",
    multiple=True,
    metavar="NAME=VALUES",
    help="One run per value: workers=1..8, concurrency=5,10 or a setting: aging=1m,10m,1h. May be repeated.",
)
@click.option(
    "--target",
    multiple=True,
    metavar="WHO:PART<TIME",
    help="A wait not to exceed, such as critical:p95<30s, tenant-3:p99<5m or all:max<1h. May be repeated.",
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this file.")
@json_option
@store_options
@click.pass_context
def simulate(
    context: click.Context,
    /,
    changes: tuple[str, ...],
    workers: int,
    concurrency: int,
    sweep: tuple[str, ...],
    target: tuple[str, ...],
    svg: Path | None,
    as_json: bool,
    url: str | None,
    app_spec: str | None,
    **given: Any,
) -> None:
    """Say what would happen, without doing it.

    Runs the rules of a queue in virtual time on made-up tasks, or on those that a queue has completed, and shows how
    long they wait, by priority and tenant, how long they are overtaken, and how busy the workers are. Settings are
    given as to `dibs queues set`: policy=tiers aging=5m max_concurrent=20. With --from-queue they change the queue's
    own.

    With --sweep and --target it finds the first of several values that is good enough: how many workers do I need,
    which ageing should I choose?
    """
    targets = [parse_target(text, seconds_of) for text in target]
    source, base = arrivals_of(context, given, url, app_spec)
    limits = given["per_task"], given["per_partition"], given["weight"], given["fair"]
    settings = change_settings(base, wanted_changes(base, changes, *limits))
    cases = cases_of(settings, workers, concurrency, parse_pairs(sweep, "a sweep"), setting_value)
    outcomes = [outcome_of(source, case, targets, quiet=as_json) for case in cases]
    if svg is not None:
        svg.write_text(picture(outcomes), encoding="utf-8")
    if as_json:
        emit(document(source, outcomes))
    else:
        show_outcomes(source, outcomes, settings_text(outcomes[0].case.settings))
        if svg is not None:
            note(f"Drawn into {click.format_filename(svg)}.")


def seconds_of(text: str) -> float:
    """A duration inside a target."""
    try:
        return SPAN.convert(text, None, None)
    except click.BadParameter as error:
        raise InvalidOption(f"--target: {error.message}") from None


def arrivals_of(
    context: click.Context, given: Mapping[str, Any], url: str | None, app_spec: str | None
) -> tuple[Source, QueueSettings]:
    """The arrivals, and the settings that the changes apply to."""
    name = given["from_queue"]
    if name is None:
        if given["load"] != 1:
            raise InvalidOption("--load needs --from-queue; made-up tasks have a --rate.")
        return made_up(given), QueueSettings()
    idle = [option for option in MADE_UP if context.get_parameter_source(option) is ParameterSource.COMMANDLINE]
    if idle:
        raise InvalidOption(
            f"--from-queue takes tasks as they came: leave out {', '.join(f'--{each}' for each in idle)}."
        )
    with open_store(url, app_spec) as app:
        settings = app.queues.get(name).settings
        return from_queue(app, name, given["tasks"], given["load"]), settings


def from_queue(app: Dibs, name: str, most: int, load: float) -> Source:
    """Arrivals that a queue has seen: its newest completed tasks, `load` times as fast."""
    check_number(most, "--tasks", 1, MOST_TASKS)
    check_real(load, "--load", 0.001, 1000)
    source = recorded_source(islice(completed(app, name), most), name, load)
    if source is None:
        raise Refused(f"queue {name!r} has no completed tasks to learn from (they are kept as long as `keep` says).")
    return source


def completed(app: Dibs, name: str) -> Iterator[TaskRecord]:
    """The newest first."""
    query = Query(states=(State.COMPLETED,), queues=(name,), limit=PAGE)
    while True:
        page = app.hub.runner.run(app.hub.engine.search(query))
        yield from page.records
        if page.cursor is None:
            return
        query = structs.replace(query, cursor=page.cursor)


def outcome_of(source: Source, case: Case, targets: Sequence[Target], *, quiet: bool) -> Outcome:
    """Simulate one case and measure it."""
    with status(f"simulating {len(source.arrivals):,} tasks {case.label}", quiet=quiet):
        report = simulation.measure(simulation.simulate(source.arrivals, case.settings, case.slots))
        return Outcome(case, report, [judge(target, report) for target in targets])


def document(source: Source, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything for scripts; durations in seconds."""
    arrivals = source.arrivals
    best = recommendation(outcomes)
    return {
        "arrivals": {
            "source": source.text,
            "tasks": len(arrivals),
            "seconds": (arrivals.ends - arrivals.begins) / SECOND,
            "recorded_wait": source.recorded_wait,
        },
        "cases": [
            {
                "case": outcome.case.label,
                "workers": outcome.case.workers,
                "concurrency": outcome.case.concurrency,
                "settings": settings_data(outcome.case.settings),
                "targets": outcome.verdicts,
                "report": outcome.report,
            }
            for outcome in outcomes
        ],
        "recommended": None if best is None else outcomes[best].case.label,
    }
