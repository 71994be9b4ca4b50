"""Every command with odd words in the place of each argument and option: it works, or says in a sentence why not.

Commands and options are found in click's own tree, so that one that is new is tried as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click
import pytest
from cli_support import Answer, Cli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client.odd import LONGEST_MESSAGE, Growth, no_hang
from dibs import Dibs
from dibs.cli.codes import ExitCode
from dibs.cli.main import cli as root

ODD = (
    "", " ", "odd", "-1", "0", "0.5", "nan", "inf", "-inf", "1e400", "²", "9" * 30, "9" * 5000, "99999999d", "1e3",
    "\udcff", "x" * 100_000, "null", "{", "[" * 5000, "=", "a=b", "a==", "a=\udcff", "a=nan", ":", "80:", "²:²",
    "0..99999999999999", "9..1", "2030-01-31T12:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
    "../..", "%s%n", "tiers={}", 'a={"a":1}', "aging=99999999999d", "policy=\udcff", "per_task=[1]", "weights={}",
)  # fmt: skip
"""What a shell can hand over; not NUL, which it can't."""

RIGHT = {
    "after": "00000000-0000-7000-8000-000000000000",
    "app_spec": "shop:app",
    "changes": "retries=2",
    "file": "copy.db",
    "name": "mail",
    "queue": "mail",
    "task": "shop.send",
    "topics": "system.metrics",
    "worker_id": "nobody",
}
"""What an argument takes, by its name, so that an odd word elsewhere comes far inside."""

BASE = {
    "bench": ["memory://", "--tasks", "100", "--samples", "10"],
    "demo": ["--workers", "65"],  # half a minute if it ran
    "enqueue": ["--queue", "mail"],
    "events": ["--limit", "1"],
    "schedules add": ["--queue", "mail", "--every", "5m"],
    "serve": ["--tls-cert", "shop.py"],  # without its key it is refused, once all else is right
    "simulate": ["--tasks", "50"],
    "top": ["--once"],
    "worker": ["--until-idle", "--log-level", "error"],
}
"""Words that bound a command that would take long, or that it needs."""

LONG = {"bench", "demo", "events"}
"""Commands that work for long once all words are right. What is drawn for them has to be refused."""

CODES = {ExitCode.OK, ExitCode.FAILED, ExitCode.USAGE, ExitCode.REFUSED}


def commands(group: click.Group = root, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command by its words."""
    with click.Context(group) as context:
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            if isinstance(found, click.Group):
                yield from commands(found, (*path, name))
            else:
                yield " ".join((*path, name)), found


COMMANDS = dict(commands())


def places(command: click.Command) -> list[str]:
    """Arguments, and options that take a word."""
    taking = [each for each in command.params if not getattr(each, "is_flag", False)]
    return [str(each.name) for each in taking if each.expose_value]


def words(name: str, odd: Mapping[str, str], ids: Mapping[str, str]) -> list[str]:
    """The command line with these odd words, and right ones where it needs some."""
    command = COMMANDS[name]
    line = [*name.split(), *BASE.get(name, [])]
    arguments: list[str] = []
    for each in command.params:
        word = odd.get(str(each.name))
        if isinstance(each, click.Argument):
            right = ids.get(str(each.name), RIGHT.get(str(each.name)))
            if word is not None or (right is not None and (each.required or each.nargs == -1)):
                arguments.append(str(right if word is None else word))
        elif word is not None:
            line.append(f"{max(each.opts, key=len)}={word}")
    if name == "bench" and "url" in odd:
        line.remove("memory://")
    return [*line, "--", *arguments] if arguments else line


def judge(answer: Answer, line: list[str]) -> str:
    """What is wrong with an answer; nothing if nothing is."""
    if answer.code not in CODES or "Unexpected" in answer.err or "Traceback" in answer.err:
        return f"{short(line)}: {answer.code} {answer.err[:300]}"
    said = answer.err.strip().splitlines()
    if answer.code and len(said) == 1 and len(said[0]) >= LONGEST_MESSAGE:
        return f"{short(line)}: a message of {len(said[0]):,} characters"
    return ""


def short(line: list[str]) -> str:
    return " ".join(f"{word[:40]!r}" for word in line)


@pytest.fixture
def ids(shop: Dibs) -> dict[str, str]:
    """Ids of what is in the store."""
    send = shop.task_named("shop.send").using(queue="nobody")  # or a worker would wait for them to be idle
    handle = send.using(delay=3600).enqueue(to="ada")
    workflow = shop.enqueue_workflow(send.using(delay=3600).call(to="bob"))
    shop.schedules.set("mail", send, every=3600, kwargs={"to": "eve"})
    return {"task_id": handle.id, "workflow_id": workflow.id}


def test_commands_are_found() -> None:
    assert {"worker", "top", "simulate", "bench", "demo", "tasks list", "queues set", "schedules add"} <= set(COMMANDS)
    assert {"created_after", "limit", "cursor"} <= set(places(COMMANDS["tasks list"]))


def run(cli: Cli, line: list[str]) -> Answer:
    with no_hang():
        return cli(*line, answer="n\n")


def sweep(cli: Cli, ids: Mapping[str, str], odd: tuple[str, ...], *, again: bool) -> None:
    """Each odd word in each place of each command. `again`: also for options that several commands share."""
    failures, growth, seen = [], Growth(), set()
    for name, command in COMMANDS.items():
        helps = {str(each.name): getattr(each, "help", None) for each in command.params}
        for place in places(command):
            alike = place, helps[place] or name
            if alike in seen and not again:
                continue
            seen.add(alike)
            for word in odd:
                line = words(name, {place: word}, ids)
                failures.append(judge(run(cli, line), line))
                if not growth.is_small():
                    failures.append(f"{short(line)} took more than 50 MiB")
    assert not any(failures), "\n".join(filter(None, failures))


TELLING = ("", "-1", "²", "9" * 5000, "99999999d", "\udcff", "x" * 100_000)


def test_each_place_takes_no_odd_word(cli: Cli, ids: dict[str, str]) -> None:
    sweep(cli, ids, TELLING, again=False)


@pytest.mark.soak
def test_each_place_takes_none_of_all_odd_words(cli: Cli, ids: dict[str, str]) -> None:
    sweep(cli, ids, ODD, again=True)


def draw_lines(cli: Cli, ids: Mapping[str, str], examples: int) -> None:
    """Several odd words at once, some of them drawn."""
    growth = Growth()
    word = st.sampled_from(ODD) | st.text(st.characters(exclude_characters="\0"), max_size=20)

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=examples < 100)
    @given(data=st.data())
    def run_anything(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name in COMMANDS if name not in LONG]), "command")
        chosen = data.draw(st.lists(st.sampled_from(places(COMMANDS[name])), max_size=4, unique=True), "places")
        line = words(name, {place: data.draw(word, place) for place in chosen}, ids)
        assert not (wrong := judge(run(cli, line), line)), wrong
        assert growth.is_small()

    run_anything()


def test_drawn_words(cli: Cli, ids: dict[str, str]) -> None:
    draw_lines(cli, ids, 50)


@pytest.mark.soak
def test_many_drawn_words(cli: Cli, ids: dict[str, str]) -> None:
    draw_lines(cli, ids, 3000)
