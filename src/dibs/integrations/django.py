"""Django inside a worker: its database connections are looked after around each task, where the task runs."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

from dibs.attempt.context import Context
from dibs.attempt.middleware import Next
from dibs.client.app import Dibs
from dibs.core.options import check_kind
from dibs.errors import UsageError

__all__ = ["use_django"]


def use_django(app: Dibs) -> None:
    """Let the tasks of an app use Django's ORM. Call it right after the app is made, before models are imported.

    Sets Django up, unless it is. Around each task it does what Django does around each request: connections that are
    too old or broken are closed, so the task after a restart of the database gets a new one. Calling it again does
    nothing.
    """
    hub = check_kind(app, "app", Dibs).hub
    try:
        import django
        from django.apps import apps
    except ModuleNotFoundError as error:
        raise UsageError("use_django needs Django: pip install django.") from error
    if not (apps.ready or apps.loading):  # `loading` stays true: this may be an import by Django's own set-up
        django.setup()
    if fresh_connections in hub.middleware:
        return

    async def fresh_connections_for_async(ctx: Context, run: Next) -> Any:
        """Async tasks use the ORM in asgiref's own thread."""
        if not iscoroutinefunction(hub.definition(ctx.name).function):
            return await run()
        await close_old_in_asgiref_thread()
        try:
            return await run()
        finally:
            await close_old_in_asgiref_thread()

    hub.middleware[:0] = [fresh_connections_for_async, fresh_connections]


def fresh_connections(ctx: Context) -> Iterator[None]:
    """For plain functions, in their thread or child process."""
    from asyncio import _get_running_loop

    from django.db import close_old_connections

    if _get_running_loop() is not None:  # an async task: Django refuses to be used here
        yield
        return
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


async def close_old_in_asgiref_thread() -> None:
    from asgiref.sync import sync_to_async
    from django.db import close_old_connections

    await sync_to_async(close_old_connections)()
