"""A store's URL as people see it: no password, and no doubt about which file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dibs import Dibs
from dibs.engines.memory import MemoryEngine
from dibs.engines.open import shown_url

NESTED = "postgresql%3A%2F%2Fu%3Asecret%40direct%3A6432%2Fshop%3Fsslpassword%3Dsecret"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory://", "memory://"),
        ("postgresql://db.example.org/shop", "postgresql://db.example.org/shop"),
        ("postgresql://u@db/shop?schema=x", "postgresql://u@db/shop?schema=x"),
        ("postgresql://u:secret@db:5432/shop", "postgresql://u:***@db:5432/shop"),
        ("postgresql://u:se@cret@db/shop", "postgresql://u:***@db/shop"),
        ("postgresql://:secret@db/shop", "postgresql://:***@db/shop"),
        ("postgresql://u:secret@a:1,b:2/shop", "postgresql://u:***@a:1,b:2/shop"),
        ("postgresql:///shop?host=/run&password=secret", "postgresql:///shop?host=/run&password=***"),
        ("postgresql://db/shop?sslpassword=secret&pool_size=4", "postgresql://db/shop?sslpassword=***&pool_size=4"),
        (
            f"postgresql://db/shop?pgbouncer=yes&direct_url={NESTED}",
            "postgresql://db/shop?pgbouncer=yes&direct_url=postgresql://u:***@direct:6432/shop%3Fsslpassword%3D***",
        ),
        (
            "postgresql://db/shop?read_url=postgresql%3A%2F%2Fu%3Asecret%40r",
            "postgresql://db/shop?read_url=postgresql://u:***@r",
        ),
        ("postgresql://u:sec/ret@db/shop", "postgresql://***"),
        ("postgresql://u:sec?ret@db/shop", "postgresql://***"),
        ("postgresql://u:sec?ret=1@db/shop", "postgresql://***"),
        ("postgresql://u:sec#ret@db/shop", "postgresql://***"),
        ("postgresql://u:secret@[::1/shop", "postgresql://***"),
        ("sqlite:////var/lib/tasks.db?synchronous=normal", "sqlite:////var/lib/tasks.db?synchronous=normal"),
        ("sqlite:////var/lib/a%20b@c.db", "sqlite:////var/lib/a b@c.db"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert "sec" not in shown


def test_a_relative_path_is_shown_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_url("sqlite:///tasks.db") == f"sqlite:///{tmp_path}/tasks.db"
    assert Dibs().hub.store_name == f"sqlite:///{tmp_path}/dibs.db"


def test_an_engine_of_your_own_is_shown_by_its_class() -> None:
    assert Dibs(engine=MemoryEngine()).hub.store_name == "MemoryEngine"
