"""`dibs doctor`, `backup` and `migrate`."""

from __future__ import annotations

from pathlib import Path

from cli_support import Cli

from dibs import Dibs


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
    cli("backup", str(place / "copy.db"), "--url", "memory://").refused(2, "memory://")


def test_migrate(cli: Cli, place: Path) -> None:
    url = f"sqlite:///{place}/new.db"
    dry = cli("migrate", "--dry-run", "--json", "--url", url).json
    assert dry["applied"] is False
    assert dry["steps"]
    assert not (place / "new.db").exists(), "a dry run makes nothing"
    assert cli("migrate", "--url", url).out.startswith("Applied:")
    assert cli("migrate", "--url", url).out == "The store is up to date.\n"
