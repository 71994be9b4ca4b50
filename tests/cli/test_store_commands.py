"""`dibs doctor`, `backup` and `migrate`."""

from __future__ import annotations

import time
from pathlib import Path

from cli_support import Cli

from dibs import Dibs
from dibs.core.times import HOUR, Instant
from dibs.engines.base import Engine


def findings(cli: Cli, *options: str) -> dict[str, tuple[str, str]]:
    data = cli("doctor", "--json", *options).json
    return {each["title"]: (each["level"], each["detail"]) for each in data["findings"]}


def test_a_healthy_store(cli: Cli, shop: Dibs) -> None:
    shop.queues.set("mail")
    with shop.worker():
        answer = cli("doctor")
    assert answer.code == 0
    for words in ("durability", "crash detection", "workers: 1", "queue mail: 0 pending"):
        assert words in answer.out


def test_what_is_worth_a_warning(cli: Cli, shop: Dibs) -> None:
    shop.queues.set("mail", aging=300)
    shop.queues.set("other")
    new = shop.task_named("shop.send").call(to="ada").new
    shop.hub.runner.run(shop.hub.engine.enqueue([new], now=1_000_000_000))  # long ago
    shop.queues.pause("mail")
    data = cli("doctor", "--quick", "--json").json
    assert data["ok"] is True, "a warning is no error"
    told = " ".join(each["detail"] for each in data["findings"] if each["level"] == "warning")
    for words in ("none is running", "no worker serves it, and tasks are pending: 1", "is paused", "20 × the ageing"):
        assert words in told


async def do_chores(engine: Engine, now: Instant, *names: str) -> None:
    """Do one step of these chores, or of all, as a leader at that time."""
    term = await engine.lead("leader", now=now)
    assert term is not None
    for name in names or [chore.name for chore in (await engine.about()).chores]:
        await engine.chore(name, term, now=now)


def test_late_chores_are_worth_a_warning(cli: Cli, shop: Dibs) -> None:
    run, engine, now = shop.hub.runner.run, shop.hub.engine, time.time_ns() // 1000
    assert not [title for title in findings(cli, "--quick") if "chore" in title], "no worker ever led"
    run(do_chores(engine, now - HOUR))
    assert findings(cli, "--quick")["chores"][0] == "warning"
    run(do_chores(engine, now))
    assert not [title for title in findings(cli, "--quick") if "chore" in title]
    shop.queues.set("mail", policy="tiers")
    new = [shop.task_named("shop.send").using(priority=10).call(to="ada").new for _ in range(2_500)]
    run(engine.enqueue(new, now=now - 2 * HOUR))
    run(do_chores(engine, now - HOUR, "rerank"))
    run(do_chores(engine, now, "rerank"))
    assert findings(cli, "--quick")["chore rerank"] == (
        "warning",
        "has had work left after each run for 60 min: promotions and deadlines take effect late",
    )
    run(do_chores(engine, now, "rerank"))
    assert "chore rerank" not in findings(cli, "--quick")


def test_a_damaged_store_is_an_error(cli: Cli, place: Path, shop: Dibs) -> None:
    shop.task_named("shop.send").enqueue(to="ada")
    shop.close()
    file = place / "shop.db"
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 20_000] = b"\xff" * 20_000
    file.write_bytes(bytes(content))
    assert cli("doctor").code == 1


def test_backup_and_restore(cli: Cli, place: Path, shop: Dibs) -> None:
    task_id = shop.task_named("shop.send").enqueue(to="ada").id
    copy = place / "copy.db"
    assert "Copied to" in cli("backup", str(copy)).out
    cli("backup", str(copy)).refused(2, "--overwrite")
    assert cli("backup", str(copy), "--overwrite", "--json").json["bytes"] == copy.stat().st_size
    restored = cli("tasks", "list", "--url", f"sqlite:///{copy}", "--json").json["tasks"]
    assert [task["id"] for task in restored] == [task_id]


def test_a_store_in_memory_has_no_backup(cli: Cli, place: Path) -> None:
    cli("backup", str(place / "copy.db"), "--url", "memory://").refused(1, "memory://", "one process")


def test_migrate(cli: Cli, place: Path) -> None:
    url = f"sqlite:///{place}/new.db"
    dry = cli("migrate", "--dry-run", "--json", "--url", url).json
    assert dry["applied"] is False
    assert dry["steps"]
    assert not (place / "new.db").exists(), "a dry run makes nothing"
    assert cli("migrate", "--url", url).out.startswith("Applied:")
    assert cli("migrate", "--url", url).out == "The store is up to date.\n"
