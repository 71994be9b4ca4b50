"""Which app or store a command is about, and from `MODULE:APP` to an app."""

from __future__ import annotations

import sys
import traceback
from contextlib import chdir
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from dibs.cli.project import Project, find_project
from dibs.client.app import Dibs
from dibs.core.humanize import with_article
from dibs.core.options import brief, nearest, shown
from dibs.errors import DibsError, InvalidOption, StoreMissing
from dibs.runtime.environment import default_app, default_url

__all__ = ["app_of_worker", "open_store"]

DEFAULT_FILE = Path("dibs.db")


class AppFailed(DibsError):
    """The module of an app raised while it was imported."""


def open_store(url: str | None, app: str | None, *, create: bool = False) -> Dibs:
    """The app, or one without tasks on the store of this URL; by default what is named elsewhere.

    `create`: there may be no store yet.
    """
    if url is not None and app is not None:
        raise InvalidOption("--url and --app both name a store: give one of them.")
    opened = open_named(url, create=create) if app is None else load_app(app)
    if opened.url.startswith("memory:") and not create:
        raise StoreMissing("there is no store at memory://: it lives in one process, and commands are others.")
    opened.hub.creates = create
    return opened


def open_named(url: str | None, *, create: bool) -> Dibs:
    """By a URL; else what the environment names, an app or a store; else the project; else ./dibs.db.

    In the environment the app goes first, because most apps take their store from there as well.
    """
    if url is not None:
        return Dibs(url)
    if (spec := default_app()) is not None:
        return load_app(spec)
    if default_url() is not None:
        return Dibs()
    project = find_project()
    if project is not None:
        return app_of(project)
    if not create and not DEFAULT_FILE.exists():
        raise InvalidOption(
            f"no store is named, and there is no {DEFAULT_FILE.absolute()}: give --url sqlite:///tasks.db or "
            "--app MODULE:APP, set DIBS_URL or DIBS_APP, or name one of them in pyproject.toml ([tool.dibs])."
        )
    return Dibs()


def app_of(project: Project) -> Dibs:
    if project.app is None:
        return Dibs(project.url)
    with chdir(project.folder):  # what is relative in its code is so to this folder, wherever the command is given
        return load_app(project.app)


def app_of_worker(spec: str | None) -> tuple[Dibs, str]:
    """The app to run: one that is named here, in the environment or in the project."""
    if spec is None and (spec := default_app()) is None:
        project = find_project()
        if project is None or project.app is None:
            raise InvalidOption(
                "which app? Give MODULE:APP, such as shop:app; or set DIBS_APP, or app in pyproject.toml ([tool.dibs])."
            )
        return app_of(project), project.app
    return load_app(spec), spec


def load_app(spec: str) -> Dibs:
    """The app that `MODULE:APP` names; `MODULE` will do if it has only one app."""
    module_name, _, attribute = spec.partition(":")
    put_here_on_path()
    module = load_module(module_name, spec)
    if not attribute:
        return unused(only_app(module, module_name), module_name)
    found: object = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise InvalidOption(
                f"the module {module_name} has no {shown(attribute)}.{nearest(attribute, apps_in(module))}"
            )
        found = getattr(found, name)
    if not isinstance(found, Dibs):
        raise InvalidOption(
            f"{shown(spec)} is {with_article(type(found).__name__)}, not a Dibs app.{apps_hint(module)}"
        )
    return unused(found, module_name)


def unused(app: Dibs, module: str) -> Dibs:
    """An app that is as it was made: what its module does with it at each import would be done by each command."""
    if app.hub.runner.is_serving or app.hub.runner.is_closed:
        raise AppFailed(
            f"importing {module} runs a worker of its app, or closes it: put what only `python {module}.py` should do "
            'below `if __name__ == "__main__":`.'
        )
    return app


def put_here_on_path() -> None:
    """Put the current directory first, as `python -m` does, so that the user's modules are found."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def load_module(name: str, spec: str) -> ModuleType:
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        meant = name.removesuffix(".py").replace("/", ".").lstrip(".")
        hint = f" Did you mean {shown(spec.replace(name, meant))}?" if name.endswith(".py") else ""
        raise InvalidOption(f"{shown(spec)} does not name an app: use MODULE:APP, such as myproject.tasks:app.{hint}")
    try:
        if find_spec(name.partition(".")[0]) is None:
            raise InvalidOption(
                f"there is no module {shown(name)}, neither in {Path.cwd()} nor among what is installed."
            )
        return import_module(name)
    except InvalidOption as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise  # the one above; one from the module's body has more frames
        raise AppFailed(reason(name, error)) from error
    except (Exception, SystemExit) as error:
        raise AppFailed(reason(name, error)) from error


def reason(name: str, error: BaseException) -> str:
    """Which module could not be imported, what it raised, and where."""
    what = brief(f"{type(error).__name__}: {error}", 300) if str(error) else type(error).__name__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return f"can't import {name}: {what.rstrip('.')}{where}; dibs --traceback … shows more."


def apps_in(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, Dibs)]


def apps_hint(module: ModuleType) -> str:
    names = apps_in(module)
    return f" The module has: {', '.join(names)}." if names else ""


def only_app(module: ModuleType, name: str) -> Dibs:
    apps = {id(vars(module)[each]): vars(module)[each] for each in apps_in(module)}
    if len(apps) == 1:
        app = next(iter(apps.values()))
        assert isinstance(app, Dibs)
        return app
    if not apps:
        raise InvalidOption(f"the module {name} has no Dibs app: make one with app = Dibs(…).")
    raise InvalidOption(
        f"the module {name} has several apps: say which, one of {', '.join(f'{name}:{a}' for a in apps_in(module))}."
    )
