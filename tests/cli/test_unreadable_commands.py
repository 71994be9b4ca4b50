"""What commands say of a task that can't be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import Cli

from dibs import Dibs
from dibs.core.states import State
from servers.damage import ENGINES, Damaged, damaged


@pytest.fixture(params=ENGINES)
def rows(request: pytest.FixtureRequest, place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Damaged]:
    with damaged(request.param, place) as found:
        monkeypatch.setenv("DIBS_URL", found.url)
        yield found


def test_they_show_and_purge_it(cli: Cli, rows: Damaged) -> None:
    with Dibs(rows.url) as app:

        @app.task(name="work")
        def work() -> None: ...

        bad, good = work.enqueue(), work.enqueue()
        rows.set("tasks", f"id = '{bad.id}'", facts=rows.json('{"spec":{},"colour":"red"}'))
        found = cli("doctor", "--quick")
        assert found.code == 1
        assert f"task {bad.id}: Object contains unknown field `colour`" in found.out
        assert "dibs tasks purge ID" in found.out
        listed = cli("tasks", "list")
        assert listed.code == 0
        assert "unreadable" in listed.out
        assert "stored as pending: Object contains unknown field" in listed.out
        shown = cli("tasks", "show", bad.id)
        assert shown.code == 0
        assert "unreadable (stored as pending)" in shown.out
        assert "can't be read here" in shown.out
        assert "colour" in cli("tasks", "show", bad.id, "--json").json["task"]["unreadable"]
        assert cli("why", bad.id).code == 0
        assert bad.id not in cli("peek", "default").out
        cli("tasks", "cancel", bad.id).refused(6, "can't be read by this version", "purged")
        assert cli("tasks", "purge", bad.id).out == f"{bad.id} purged\n"
        assert "counts: 1 tasks, as counted" in cli("doctor").out
        assert good.refresh().state is State.PENDING
