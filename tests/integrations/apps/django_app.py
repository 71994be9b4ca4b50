"""Tasks that use Django's ORM, and a worker for them: it runs the tasks that are named on its standard input."""

from __future__ import annotations

import json
import sys

from dibs import Dibs
from dibs.integrations.django import use_django

app = Dibs(retries=0)
use_django(app)

from django.contrib.contenttypes.models import ContentType  # noqa: E402


@app.task
def in_thread() -> int:
    return ContentType.objects.count()


@app.task
async def on_loop() -> int:
    return await ContentType.objects.acount()


@app.task(executor="process")
def in_process() -> int:
    return ContentType.objects.count()


@app.task(executor="process")
async def on_loop_of_process() -> int:
    return await ContentType.objects.acount()


def main() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    with app, app.worker(concurrency=1):  # one slot: each task finds the connection of the one before
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            info = app.wait([app.task_named(line.strip()).enqueue()], timeout=60)[0]
            print(json.dumps([info.state, info.result if info.error is None else info.error.message]), flush=True)
