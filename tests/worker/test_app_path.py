"""How an executor process finds the app: by a path that the worker makes out before it starts."""

from __future__ import annotations

import math
from itertools import count
from types import ModuleType

import process_app
import pytest
from worker_support import PATIENCE

from dibs import Dibs
from dibs.errors import UsageError
from dibs.worker import Worker, WorkerSettings
from dibs.worker.executors.app_path import find_app_path, hub_at


def test_the_app_is_found_in_a_module_that_defines_its_tasks() -> None:
    assert find_app_path(process_app.app.hub) == "process_app:app"
    assert hub_at("process_app:app") is process_app.app.hub


def test_a_path_that_was_given_is_taken_and_a_module_alone_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_app_path(process_app.app.hub, "elsewhere:make.app") == "elsewhere:make.app"
    module = ModuleType("given_module")
    module.the_app = process_app.app  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "given_module", module)
    assert find_app_path(process_app.app.hub, "given_module") == "given_module:the_app"


def test_an_app_that_processes_could_not_import_is_refused_at_the_door() -> None:
    with Dibs("memory://") as app:
        app.task(executor="process", name="root")(math.isqrt)
        with pytest.raises(UsageError, match="import it there by name"):
            app.worker().start()


def test_foreign_objects_in_the_module_are_not_asked_for_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    class Touchy:
        asked = count()

        def __getattr__(self, name: str) -> None:
            next(self.asked)

    for place, name in enumerate(("aaa", "zzz")):
        monkeypatch.setitem(vars(process_app), f"{name}{place}", Touchy())
    assert find_app_path(process_app.app.hub) == "process_app:app"
    assert next(Touchy.asked) == 0


def test_a_function_from_another_module_runs_where_the_path_is_given(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "path_app.py").write_text(
        "from dibs import Dibs\nimport path_lib\n"
        "app = Dibs('memory://')\nadd = app.task(executor='process', name='add')(path_lib.add)\n"
    )
    (tmp_path / "path_lib.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    monkeypatch.syspath_prepend(tmp_path)
    import path_app  # type: ignore[import-not-found]

    with path_app.app as app, Worker(app.hub, WorkerSettings(), "path_app:app"):
        assert path_app.add.enqueue(2, 3).result(timeout=PATIENCE) == 5
