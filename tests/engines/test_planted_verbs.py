"""Bugs planted in the verbs that engines share: all stores would agree on the wrong thing. The oracle does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
from test_planted_bugs import QUICK, damage

from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.port import Port
from dibs.engines.sqlite import SqliteEngine
from dibs.engines.values import Rescued
from dibs.engines.verbs.dependencies import inherit_again
from dibs.engines.verbs.rescue import rescue
from dibs.engines.verbs.upkeep import expire
from dibs.testing.model import check_engine


async def rescue_after_a_stall(
    port: Port, absent: Sequence[str], low: Instant, ended_by: Instant | None, not_after: Instant | None
) -> Rescued:
    """A call that was held up takes leases that may have been extended since."""
    return await rescue(port, absent, low, ended_by, None)


async def inherit_for_ever(port: Port, ids: Sequence[str]) -> None:
    """A task that was urgent to others stays urgent when they no longer wait for it."""
    found = await port.find(list(ids))
    calm = [task.id for task in found.values() if isinstance(task, TaskRecord) and not task.inherited]
    await inherit_again(port, calm)


async def never_expire(port: Port, low: Instant) -> bool:
    """A task starts however late it is."""
    return False


PLANTED = [(rescue, rescue_after_a_stall), (inherit_again, inherit_for_ever), (expire, never_expire)]


@pytest.mark.parametrize(("sound", "damaged"), PLANTED, ids=lambda verb: verb.__name__)
def test_bug_in_a_shared_verb_is_found(
    sound: Callable[..., object], damaged: Callable[..., object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    damage(monkeypatch, sound, damaged)
    numbers = count(1)
    with pytest.raises(AssertionError):
        check_engine(lambda: SqliteEngine(tmp_path / f"{next(numbers)}.db"), QUICK)
