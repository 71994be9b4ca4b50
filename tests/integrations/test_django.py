"""Django's ORM in tasks, on a real server that is restarted between two of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dibs import Dibs
from dibs.integrations.django import use_django
from servers.cluster import Cluster

APPS = Path(__file__).parent / "apps"
TASKS = ("in_thread", "on_loop", "in_process", "on_loop_of_process")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.new()
    yield cluster
    cluster.remove()


class Project:
    """A process with a worker; it runs one task at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or '"it ended"')

    def run(self, task: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{task}\n")
        self.process.stdin.flush()
        return self.answer()


@contextmanager
def project(cluster: Cluster, folder: Path, persistent: str) -> Iterator[Project]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(APPS), *sys.path]),
        "DJANGO_SETTINGS_MODULE": "django_settings",
        "DJANGO_DATABASE": cluster.dsn,
        "DJANGO_PERSISTENT": persistent,
        "DIBS_URL": f"sqlite:///{folder}/tasks.db",
    }
    with subprocess.Popen(
        [sys.executable, "-c", "import django_app; django_app.main()"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Project(process)
        finally:
            process.kill()


@pytest.mark.parametrize("persistent", ["no", "yes"])
def test_the_task_after_a_restart_of_the_database_runs(cluster: Cluster, tmp_path: Path, persistent: str) -> None:
    with project(cluster, tmp_path, persistent) as running:
        assert running.answer() == "ready"
        assert [running.run(task) for task in TASKS] == [["completed", 1]] * 4
        cluster.restart("immediate")
        assert [running.run(task) for task in TASKS] == [["completed", 1]] * 4


def test_what_is_no_app_is_refused() -> None:
    with pytest.raises(Exception, match="app must be"):
        use_django("shop")  # type: ignore[arg-type]


def test_using_it_twice_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    apps = pytest.importorskip("django.apps").apps
    monkeypatch.setattr(apps, "loading", True)  # as while Django itself imports the module
    app = Dibs("memory://")
    use_django(app)
    before = [*app.hub.middleware]
    use_django(app)
    assert app.hub.middleware == before
