"""`dibs schedules`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import Cli

from dibs import Dibs
from dibs.core.recurrence import check_recurrence
from dibs.core.schedules import ScheduleState
from servers.damage import OnSqlite

DECLARED = """

@app.schedule("0 9 * * mon-fri", tz="Europe/Zurich", name="report", kwargs={"to": "ada"})
@app.task(name="declared")
def declared(to: str) -> None: ...
"""


@pytest.fixture
def declared(cli: Cli, place: Path) -> None:
    """A worker has told the store of a schedule that the code declares."""
    (place / "shop.py").write_text((place / "shop.py").read_text() + DECLARED)
    assert cli("worker", "shop:app", "--until-idle", "--log-level", "error").code == 0
    assert cli("schedules", "list", "--json").json[0]["declared"] is True


def test_add_and_list(cli: Cli) -> None:
    assert "No schedules" in cli("schedules", "list").out
    added = cli("schedules", "add", "greet", "shop.send", "to=ada", "--app", "shop:app", "--every", "5m")
    assert added.out == "Schedule 'greet' is added: every 5 min, next in 5 min.\n"
    line = cli("schedules", "list").out.splitlines()[1]
    assert line.startswith("greet     shop.send  every 5 min  in 5 min  –")
    assert line.endswith("set by hand")
    (schedule,) = cli("schedules", "list", "--json").json
    assert (schedule["task"], schedule["queue"], schedule["priority"]) == ("shop.send", "mail", 70)
    assert (schedule["args"], schedule["every"]) == ({"to": "ada"}, 300.0)


def test_add_without_the_app(cli: Cli, shop: Dibs) -> None:
    command = ["schedules", "add", "greet", "shop.send", "to=ada", "--cron", "30 2 * * *", "--tz", "Europe/Zurich"]
    cli(*command).refused(2, "which queue?")
    options = ["--queue", "mail", "--expires", "1h", "--tenant", "acme", "--per", "p1", "--overlap", "skip"]
    assert cli(*command, *options).code == 0
    assert "is replaced" in cli(*command, *options).out
    (record,) = shop.hub.runner.run(shop.hub.engine.schedules())
    task = record.task
    assert (task.id, task.queue, task.args) == ("", "mail", b'{"to":"ada"}')
    assert (task.spec.expires_at, task.spec.tenant, task.spec.partition, task.client) == (
        3_600_000_000,
        "acme",
        "p1",
        "",
    )
    assert (record.recurrence.cron, record.recurrence.tz, record.recurrence.overlap) == (
        "30 2 * * *",
        "Europe/Zurich",
        "skip",
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["--cron", "--every"]),
        (("--every", "5m", "--tz", "UTC"), ["--tz goes with --cron only"]),
        (("--every", "soon"), ["'soon'", "duration"]),
        (("--cron", "61 * * * *"), ["'61'", "minute"]),
        (("--every", "5m", "--catch-up", "some"), ["--catch-up", "'skip', 'one', 'all'"]),
        (("--every", "5m", "number=1"), ["no parameter 'number'"]),
        (("--every", "5m", "--jitter", "10m"), ["jitter"]),
        (("--cron", "* * * * *", "--tz", "Europe/Zuerich"), ["Europe/Zurich"]),
    ],
)
def test_wrong_schedules_are_refused(cli: Cli, arguments: tuple[str, ...], words: list[str]) -> None:
    cli("schedules", "add", "greet", "shop.send", "to=ada", "--app", "shop:app", *arguments).refused(2, *words)
    assert cli("schedules", "list", "--json").json == []


def test_show_has_the_next_runs_on_both_clocks(cli: Cli) -> None:
    options = ["--cron", "0 12 * * *", "--tz", "Asia/Kolkata", "--catch-up", "all", "--overlap", "skip"]
    cli("schedules", "add", "greet", "shop.send", "to=ada", "--app", "shop:app", *options)
    text = cli("schedules", "show", "greet").out
    for words in (
        "shop.send in queue mail, priority 70",
        '{"to":"ada"}',
        "At 12:00 every day, Asia/Kolkata (0 12 * * *)",
        "one task each, for the newest 100",
        "fires while the last task is unfinished are skipped",
        "0 fired, 0 skipped",
        "set by hand",
    ):
        assert words in text
    assert text.count("12:00:00 IST = ") == 5
    assert text.count("06:30:00 UTC") == 5
    data = cli("schedules", "show", "greet", "--json").json
    assert (data["schedule"]["name"], len(data["upcoming"])) == ("greet", 5)
    cli("schedules", "show", "gret").refused(6, "'gret'", "'greet'")


def test_pause_resume_remove(cli: Cli) -> None:
    cli("schedules", "add", "greet", "shop.send", "to=ada", "--app", "shop:app", "--every", "5m")
    assert cli("schedules", "pause", "greet").out == "Schedule 'greet' is now paused.\n"
    assert cli("schedules", "pause", "greet").out == "Schedule 'greet' is already paused.\n"
    assert " paused " in cli("schedules", "list").out
    assert "next runs" not in cli("schedules", "show", "greet").out
    assert cli("why", "greet").out == "Schedule 'greet' is paused: it does not fire until it is resumed.\n"
    answer = cli("schedules", "resume", "greet", "--json").json
    assert answer == {"schedule": "greet", "state": "active", "changed": True}
    assert cli("schedules", "remove", "greet").out == "Schedule 'greet' is deleted.\n"
    cli("schedules", "remove", "greet").refused(6, "no schedule is called 'greet'")
    cli("schedules", "pause", "greet").refused(6, "no schedule is called 'greet'")


def test_run(cli: Cli, shop: Dibs) -> None:
    cli("schedules", "add", "greet", "shop.send", "to=ada", "--app", "shop:app", "--every", "5m")
    task_id = cli("schedules", "run", "greet").out.strip()
    assert shop.tasks.get(task_id).args == {"to": "ada"}
    with shop.worker():
        answer = cli("schedules", "run", "greet", "--wait", "20s", "--json").json
    assert (answer["name"], answer["task"]["result"]) == ("shop.send", "Hi to ada")


@pytest.mark.usefixtures("declared")
def test_what_code_declares_comes_back(cli: Cli) -> None:
    assert cli("schedules", "list").out.splitlines()[1].endswith("code")
    assert "code, last declared by a worker" in cli("schedules", "show", "report").out
    replaced = cli("schedules", "add", "report", "declared", "to=eve", "--app", "shop:app", "--every", "5m").out
    assert "the next worker that starts with that code sets it back" in replaced
    assert cli("schedules", "pause", "report").code == 0
    cli("worker", "shop:app", "--until-idle", "--log-level", "error")
    (schedule,) = cli("schedules", "list", "--json").json
    assert (schedule["args"], schedule["cron"], schedule["paused"]) == ({"to": "ada"}, "0 9 * * mon-fri", True)
    assert "it is back when a worker starts" in cli("schedules", "remove", "report").out


@pytest.mark.usefixtures("declared")
def test_top_and_doctor_tell_of_schedules(cli: Cli, shop: Dibs) -> None:
    assert "schedules  report in " in cli("top", "--once").out
    assert cli("top", "--json").json["schedules"][0]["name"] == "report"
    assert "schedules: 1, 0 of them paused" in cli("doctor", "--quick").out
    engine, run = shop.hub.engine, shop.hub.runner.run
    (record,) = run(engine.schedules())
    an_hour_ago = record.created_at - 3_600_000_000
    run(engine.set_schedule_state("report", ScheduleState.DELETED))
    run(engine.set_schedule("report", record.recurrence, record.task, declared=True, now=an_hour_ago))
    run(engine.set_schedule("ping", check_recurrence(every=60), record.task, declared=False, now=an_hour_ago))
    text = cli("doctor", "--quick").out
    assert "schedule report: code declared it, but no running worker has for 15 minutes" in text
    assert "schedule ping: schedule 'ping' is overdue by 59 min: no worker leads, so none fires it." in text
    assert "overdue by 59 min" in cli("schedules", "list").out
    assert "code, stale" in cli("schedules", "list").out


def test_one_that_cannot_be_read_is_told_of_and_can_be_removed(
    cli: Cli, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("odd", "good"):
        cli("schedules", "add", name, "shop.send", "to=ada", "--queue", "mail", "--every", "5m")
    OnSqlite(place / "shop.db").set("schedules", "name = 'odd'", record="{")
    assert [each["name"] for each in cli("schedules", "list", "--json").json] == ["good"]
    assert "The schedule odd can't be read" in caplog.text
    for command in (["show"], ["run"], ["pause"]):
        refused = cli("schedules", *command, "odd")
        assert refused.code != 0
        assert "'odd' can't be read" in refused.err
        assert "dibs schedules remove odd" in refused.err
    cli("schedules", "show", "nowhere").refused(6, "no schedule is called 'nowhere'")
    assert cli("schedules", "remove", "odd").out == "Schedule 'odd' is deleted.\n"
    cli("schedules", "remove", "odd").refused(6, "no schedule is called 'odd'")
    assert "unreadable" not in cli("doctor").out
