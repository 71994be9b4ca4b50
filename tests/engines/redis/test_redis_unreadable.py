"""A task that can't be read is given back where it was taken from."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis_help import claim, new, opened, run, sound

from dibs.engines import unreadable
from servers.damage import damaged


@pytest.mark.parametrize("damage", [{"track": 99_999}, {"facts": "{"}, {"state": "moonlit"}], ids=str)
def test_a_claim_that_is_undone_leaves_no_trace(
    damage: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the task says of itself: counts stay exact, and once it is repaired it is claimed."""
    monkeypatch.setattr(unreadable, "LOOK_AGAIN", 0.0)

    async def test() -> None:
        with damaged("redis", tmp_path) as rows:
            async with opened(rows.url) as engine:
                bad, good = tasks = [new(), new()]
                await engine.enqueue(tasks)
                _, sound_value, _ = rows.row("tasks", f"id = '{bad.id}'")
                rows.set("tasks", f"id = '{bad.id}'", **damage)
                assert [task.id for task in await claim(engine, 5)] == [good.id]
                counts = (await engine.counts()).tasks["default"]
                assert (counts["pending"], counts["running"]) == (1, 1)
                rows.command("HSET", "tasks", bad.id, sound_value)  # type: ignore[attr-defined]
                assert [task.id for task in await claim(engine, 5)] == [bad.id]
                await sound(engine)

    run(test)
