"""Workers beside rows that they can't read: they stay, and all other tasks complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dibs import Dibs
from dibs.client.tasks import Filter
from dibs.core.states import State
from dibs.core.times import Instant
from dibs.engines import unreadable
from dibs.engines.memory import MemoryEngine
from dibs.engines.values import Claimed, ClaimRequest, Term
from dibs.errors import InvalidOption, StoreCorrupt, Unreadable
from servers.damage import ENGINES, Damaged, damaged

PATIENCE = 30.0
NEWER = '{"spec":{},"colour":"red"}'


@pytest.fixture(params=ENGINES)
def rows(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Damaged]:
    monkeypatch.setattr(unreadable, "LOOK_AGAIN", 0.2)
    with damaged(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def app(rows: Damaged) -> Iterator[Dibs]:
    app = Dibs(rows.url, retry_base=0)
    yield app
    app.close()


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_worker_passes_it_and_runs_it_once_it_is_repaired(app: Dibs, rows: Damaged) -> None:
    @app.task(name="double")
    def double(x: int) -> int:
        return 2 * x

    handles = [double.enqueue(x) for x in range(10)]
    bad = handles[4]
    rows.set("tasks", f"id = '{bad.id}'", facts=rows.json(NEWER))
    before = rows.row("tasks", f"id = '{bad.id}'")
    with app.worker() as worker:
        others = [handle for handle in handles if handle is not bad]
        assert [handle.result(timeout=PATIENCE) for handle in others] == [2 * x for x in range(10) if x != 4]
        more = double.enqueue(21)
        assert more.result(timeout=PATIENCE) == 42
        assert rows.row("tasks", f"id = '{bad.id}'") == before
        with pytest.raises(Unreadable, match="colour"):
            bad.result(timeout=PATIENCE)
        with pytest.raises(Unreadable, match="colour"):
            bad.refresh()
        with pytest.raises(Unreadable, match="purged"):
            bad.cancel()
        info = app.tasks.get(bad.id)
        assert (info.state, info.queue, info.name) == (State.PENDING, "default", "double")
        assert "colour" in str(info.unreadable)
        assert not info.is_done
        assert "can't be read" in str(app.why(bad.id))
        assert bad.id in [each.id for each in app.tasks.search().tasks]
        assert [each.id for each in app.tasks.search(Filter(state="pending")).tasks] == [bad.id]
        assert app.tasks.search(Filter(key="k")).tasks == []
        rows.set("tasks", f"id = '{bad.id}'", facts=rows.json('{"spec":{}}'))
        eventually(lambda: app.tasks.get(bad.id).state is State.COMPLETED)
        assert bad.result(timeout=PATIENCE) == 8
        assert worker


def test_one_that_is_damaged_while_it_runs_completes(app: Dibs, rows: Damaged) -> None:
    @app.task(name="wait")
    def wait(x: int) -> int:
        eventually(lambda: damaged_by_now)
        return x

    damaged_by_now: list[bool] = []
    with app.worker():
        handle = wait.enqueue(5)
        eventually(lambda: app.tasks.get(handle.id).state is State.RUNNING)
        rows.set("tasks", f"id = '{handle.id}'", facts=rows.json(NEWER))
        damaged_by_now.append(True)
        eventually(lambda: app.tasks.get(handle.id).state is State.COMPLETED)
        rows.set("finished", f"id = '{handle.id}'", facts=rows.json('{"spec":{}}'))
        assert handle.result(timeout=PATIENCE) == 5


@pytest.mark.parametrize("columns", [{"lease": 2**31 - 1}, {"lease_for": 2**63 - 1}, {"ready_at": 2**62}])
def test_numbers_out_of_range_stop_nobody(app: Dibs, rows: Damaged, columns: dict[str, int]) -> None:
    @app.task(name="double")
    def double(x: int) -> int:
        return 2 * x

    bad, *others = [double.enqueue(x) for x in range(3)]
    rows.set("tasks", f"id = '{bad.id}'", **columns)
    with app.worker():
        assert [handle.result(timeout=PATIENCE) for handle in others] == [2, 4]
        assert len(app.tasks.search().tasks) == 3


class TrippingEngine(MemoryEngine):
    """It meets something that no verb knows how to skip."""

    trips = True
    tripped = 0

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        self.trip()
        return await super().claim(request, now=now)

    async def lead(self, worker: str, *, now: Instant | None = None) -> Term | None:
        self.trip()
        return await super().lead(worker, now=now)

    def trip(self) -> None:
        if self.trips:
            self.tripped += 1
            raise TypeError("'<' not supported between instances of 'int' and 'str'")


def test_a_worker_outlives_what_no_verb_can_skip() -> None:
    """It is the store's fault, and no reason to leave."""
    engine = TrippingEngine()
    app = Dibs("memory://", engine=engine)

    @app.task(name="double")
    def double(x: int) -> int:
        return 2 * x

    with pytest.raises(StoreCorrupt, match=r"claim met something.*TypeError.*dibs doctor"):
        app.claim()
    with app.worker():
        handle = double.enqueue(4)
        eventually(lambda: engine.tripped > 3)
        engine.trips = False
        assert handle.result(timeout=PATIENCE) == 8
    app.close()


@pytest.mark.parametrize("progress", [float("nan"), "half", True, -0.1, 1.5, float("inf")])
def test_progress_that_could_not_be_read_is_refused(app: Dibs, progress: object) -> None:
    @app.task(name="work")
    def work() -> None: ...

    work.enqueue()
    (claim,) = app.claim()
    with pytest.raises(InvalidOption, match="progress must be a number from 0 to 1"):
        app.extend(claim, progress=progress)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="message must be a text"):
        app.extend(claim, progress=0.5, message=5)  # type: ignore[arg-type]
    assert app.tasks.get(claim.id).progress is None
    app.extend(claim, progress=1, message="done")
    assert app.tasks.get(claim.id).progress == 1.0
