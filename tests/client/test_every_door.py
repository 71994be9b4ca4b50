"""Every public function with values of every wrong kind: it works, or raises a short error of ours.

The functions are found by looking at what is public, so that one that is new is tried as well.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from itertools import groupby, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import dibs
from dibs import Context, Dibs, Filter, Task, chain, group, simulation
from dibs.blobs import open_blobs
from dibs.client.options import CallOptions, Options, RecurrenceOptions, SharedOptions, TaskOptions
from dibs.client.queues import QueueChanges
from dibs.client.tasks import Bulk
from dibs.core.recurrence import check_recurrence
from dibs.core.settings import QueueSettings
from dibs.simulation.synthetic import Plan, synthetic
from dibs.testing import ManualClock, Sandbox
from dibs.worker import WorkerSettings
from servers.postgres import new_schema, server_url

from .odd import ODD, Growth, Hang, a_function, anything, judge, would_wait

WAITS = {"timeout", "wait", "block"}
"""Parameters that say for how long to wait; drawn values that would wait for long are left out."""

NO_DOORS = {
    "Call",  # values and handles that functions give; nobody makes one
    "Handle",
    "Task",
    "Context",
    "State",
    "DibsError",
    "TRANSIENT",
    "__version__",
    "hub",  # the inside
}
RUNS = {"sandbox"}
"""Things whose AssertionError is an answer: they are made for assertions."""

KEYWORDS = {
    f"Unpack[{kind.__name__}]": kind
    for kind in (QueueChanges, SharedOptions, TaskOptions, RecurrenceOptions, CallOptions, Bulk)
}
"""The keywords that a parameter annotated like this takes."""

Door = Callable[..., Any]


class World:
    """An app with something of everything in its store, and one of each thing that has public methods."""

    def __init__(self, url: str, place: Path, stack: ExitStack) -> None:
        self.app = app = stack.enter_context(Dibs(url))

        @app.task(name="work", queue="mail", retries=0)
        def work(number: int = 1, text: str = "") -> int:
            return number

        self.task = work
        broken = work.using(queue="broken")
        self.handle = work.enqueue(1)
        self.workflow = app.enqueue_workflow(chain(work.call(2), group(work.call(3), work.call(4))), "flow")
        while claims := app.claim(["mail"], limit=10, lease=3600):
            for claim in claims:
                app.settle(claim, result=claim.args["number"])
        broken.enqueue(5)
        app.settle(app.claim(["broken"])[0], "permanent", error="broken")
        waiting = work.using(delay=3600).enqueue(6)
        broken.enqueue(7)
        self.claim = app.claim(["broken"], lease=3600)[0]
        app.schedules.set("nightly", work, cron="0 2 * * *")
        self.worker = app.worker()
        self.call = work.call(8)
        self.clock = ManualClock()
        inner = stack.enter_context(Dibs("memory://"))
        contexts: list[Context] = []

        @inner.task(name="look")
        def look(ctx: Context) -> None:
            contexts.append(ctx)

        self.sandbox = stack.enter_context(Sandbox(inner))
        look.enqueue()
        self.sandbox.run_due()
        self.context = contexts[0]
        self.memory_blobs = open_blobs("memory://")
        self.directory_blobs = open_blobs(str(place / "blobs"))
        self.right = self.right_values(waiting.id)

    def right_values(self, waiting: str) -> dict[str, Any]:
        """By the name of a parameter, what it takes; so that a single odd value comes far inside."""
        arrivals = synthetic(Plan(tasks=20, rate=10))
        return {
            "after": self.handle,
            "app": self.sandbox.app,
            "args": {},
            "arrivals": arrivals,
            "calls": [self.task.call(9)],
            "claim": self.claim,
            "connection": None,
            "cron": "0 2 * * *",
            "data": b"data",
            "engine": None,
            "filter": Filter(queue="nobody"),
            "flow": self.task.call(10),
            "fraction": 0.5,
            "function": self.task,
            "handles": [self.handle],
            "key": "key",
            "keys": ["key"],
            "members": self.task.call(11),
            "message": "",
            "moment": self.clock.time,
            "name": "mail",
            "outcome": "snoozed",
            "priority": 50,
            "queue": "mail",
            "queues": ["nobody"],
            "reason": "",
            "recurrence": check_recurrence(every=60),
            "rule": "run",
            "run": simulation.simulate(arrivals, QueueSettings(), 2),
            "seconds": 1,
            "settings": QueueSettings(),
            "slots": 2,
            "source": self.call,
            "steps": self.task.call(12),
            "task": "work",
            "task_id": waiting,
            "template": self.task.call(13).new,
            "timeout": 0.01,
            "url": "memory://",
            "wait": 0,
            "worker": "nobody",
            "workflow_id": self.workflow.id,
        }

    def things(self) -> dict[str, object]:
        """What has methods that others call."""
        made = {name: value for name, value in vars(self).items() if name not in ("right", "call")}
        return made | {f"app.{name}": value for name, value in public(self.app).items() if not callable(value)}

    @cached_property
    def doors(self) -> dict[str, Door]:
        """Every public function by its name."""
        found: dict[str, Door] = {name: getattr(dibs, name) for name in dibs.__all__ if name not in NO_DOORS}
        found |= {f"simulation.{name}": getattr(simulation, name) for name in ("simulate", "measure")}
        found |= {
            "open_blobs": open_blobs,
            "Sandbox": Sandbox,
            "ManualClock": ManualClock,
            "WorkerSettings": WorkerSettings,
        }
        for name, thing in self.things().items():
            found |= {f"{name}.{each}": door for each, door in public(thing).items() if callable(door)}
        found["workflow[…]"] = lambda call: self.workflow[call]
        return {name: door for name, door in sorted(found.items(), key=by_thing) if parameters(door)}


def by_thing(named: tuple[str, Door]) -> tuple[str, str]:
    thing, _, method = named[0].rpartition(".")
    return thing, method


def public(thing: object) -> dict[str, Any]:
    """Its public attributes that are Dibs's own."""
    names = [name for name in dir(thing) if not name.startswith("_") and name not in NO_DOORS]
    found = {name: getattr(thing, name) for name in names}
    return {name: value for name, value in found.items() if is_ours(value)}


def is_ours(value: object) -> bool:
    """Methods, and objects of the client; neither values nor the inside."""
    if inspect.isroutine(value):
        return True
    return type(value).__module__.startswith("dibs.client.") and not isinstance(value, Options | Task)


def parameters(door: Door) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(door).parameters.values())
    except ValueError:  # an exception class that takes what all of them take
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]


def spots(door: Door) -> list[str]:
    """Where a value can be put: the parameters, and the keywords, such as those of `using`."""
    found = [each.name for each in parameters(door)]
    keywords = [KEYWORDS[each.annotation] for each in parameters(door) if each.annotation in KEYWORDS]
    return [*found, *(name for kind in keywords for name in kind.__annotations__)]


def knock(world: World, name: str, odd: Mapping[str, Any]) -> None:
    """Call a function with these odd values, and right ones otherwise."""
    door = world.doors[name]
    positional: list[Any] = []
    own = {each.name for each in parameters(door)}
    named: dict[str, Any] = {spot: value for spot, value in odd.items() if spot not in own}
    for each in parameters(door):
        if each.name in odd:
            value = odd[each.name]
        elif each.name in world.right and (each.default is each.empty or each.name in WAITS):
            value = world.right[each.name]
        else:
            continue
        if each.kind is each.VAR_KEYWORD:
            named |= {str(key): item for key, item in value.items()} if isinstance(value, dict) else {"odd": value}
        elif each.kind in (each.VAR_POSITIONAL, each.POSITIONAL_ONLY):
            positional.append(value)
        else:
            named[each.name] = value

    def call() -> None:
        try:
            answer = door(*positional, **named)
            if inspect.iscoroutine(answer):
                asyncio.run(awaited(answer))
            elif getattr(answer, "__name__", "") == "decorate":
                answer(a_function)
            elif isinstance(answer, Dibs):
                answer.close()
        except AssertionError:
            if name.split(".", maxsplit=1)[0] not in RUNS:
                raise

    judge(call)


async def awaited(answer: Any) -> Any:
    return await answer


def is_fair(parameter: str, value: Any) -> bool:
    return parameter not in WAITS or not would_wait(value)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, where odd names may become files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIBS_URL", raising=False)
    return tmp_path


def test_what_is_public_is_found(place: Path) -> None:
    with ExitStack() as stack:
        names = set(World("memory://", place, stack).doors)
    assert {"Dibs", "Filter", "Retry", "take", "chain", "app.claim", "app.tasks.search", "app.queues.aset"} <= names
    assert {
        "handle.result",
        "task.using",
        "context.progress",
        "sandbox.advance",
        "worker.stop",
        "workflow.wait",
    } <= names
    assert not [name for name in names if "hub" in name]


def sweep(url: str, place: Path, odd: Mapping[str, Any], *, twins: bool, things: tuple[str, ...] = ()) -> None:
    """Each odd value in each place of each function, with a fresh store for each thing that has functions.

    `url` has a place for a name.
    `twins`: async forms as well; `things`: only functions of these.
    """
    with ExitStack() as stack:
        doors = World("memory://", place, stack).doors
    chosen = [name for name in doors if twins or not is_twin(name, doors)]
    failures = []
    for thing, names in groupby(chosen, lambda name: name.rpartition(".")[0]):
        if things and thing.split(".")[0] not in things:
            continue
        with ExitStack() as stack:
            world, growth = World(url.format(thing.replace(".", "_") or "dibs"), place, stack), Growth()
            for name in names:
                for spot, (what, value) in product(spots(doors[name]), odd.items()):
                    if not is_fair(spot, value):
                        continue
                    try:
                        knock(world, name, {spot: value})
                    except (Exception, Hang) as error:
                        failures.append(f"{name}({spot}={what}) raised {type(error).__name__}: {str(error)[:200]}")
                    if not growth.is_small():
                        failures.append(f"{name}({spot}={what}) took more than 50 MiB")
    assert not failures, "\n".join(failures)


def is_twin(name: str, doors: Mapping[str, Door]) -> bool:
    """Whether it is the async form of another, which runs the same code."""
    thing, dot, method = name.rpartition(".")
    return method.startswith("a") and f"{thing}{dot}{method[1:]}" in doors


TELLING = (
    "None", "True", "minus one", "nan", "a huge int", "no text", "a lone surrogate", "a long text", "bytes",
    "a list of None", "a mapping by number", "a deep list", "object", "the last datetime", "the longest timedelta",
)  # fmt: skip


STORED = ("a large int", "a huge int", "a lone surrogate", "bytes", "a deep list")
"""What a driver would choke on."""


def test_each_place_takes_no_odd_value(place: Path) -> None:
    sweep("memory://", place, {what: ODD[what] for what in TELLING}, twins=False)


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def test_no_odd_value_comes_to_the_driver(place: Path, engine: str) -> None:
    url = f"sqlite:///{place}/{{}}.db" if engine == "sqlite" else f"{server_url()}&schema={new_schema()}_{{}}"
    sweep(url, place, {what: ODD[what] for what in STORED}, twins=False, things=("app", "handle", "task", "workflow"))


@pytest.mark.soak
def test_each_place_takes_none_of_all_odd_values(url: str, place: Path) -> None:
    sweep(url.replace("tasks.db", "{}.db"), place, ODD, twins=True)


def draw_knocks(url: str, place: Path, examples: int) -> None:
    """Several places at once, with values that are drawn; all on one store, as it comes to be."""
    with ExitStack() as stack:
        world, growth = World(url, place, stack), Growth()

        @settings(
            max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=examples < 1000
        )
        @given(data=st.data())
        def knock_anywhere(data: st.DataObject) -> None:
            name = data.draw(st.sampled_from(list(world.doors)), "door")
            chosen = data.draw(st.lists(st.sampled_from(spots(world.doors[name])), max_size=3, unique=True), "places")
            odd = {spot: data.draw(anything, spot).value for spot in chosen}
            assume(all(is_fair(spot, value) for spot, value in odd.items()))
            if not grows_little(growth, lambda: knock(world, name, odd)):
                assert grows_little(growth, lambda: knock(world, name, odd)), "twice in a row: it is no coincidence"

        knock_anywhere()


def grows_little(growth: Growth, act: Callable[[], None]) -> bool:
    growth.begin()
    act()
    return growth.is_small()


def test_drawn_values(url: str, place: Path) -> None:
    draw_knocks(url, place, 150)


@pytest.mark.soak
def test_many_drawn_values(url: str, place: Path) -> None:
    draw_knocks(url, place, 10_000)
