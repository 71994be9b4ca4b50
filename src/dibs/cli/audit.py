"""`dibs audit`: who changed what."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from dibs.cli.kinds import TARGET
from dibs.cli.options import TIME, json_option, with_store
from dibs.client.app import Dibs
from dibs.client.info import AuditLine
from dibs.core.humanize import format_exact_duration
from dibs.core.options import brief
from dibs.core.settings import DURATIONS
from dibs.core.times import when
from dibs.terminal import emit, note, plain, say, when_text

__all__ = ["audit"]

INSTANTS = ("due_at", "deadline", "expires_at")
IDS_SHOWN = 5
LONGEST_VALUE = 200
"""Characters of one value: arguments and metadata may be long."""


@click.command()
@click.option("--limit", default=50, show_default=True, help="How many at most (1 to 1000).")
@click.option("--actor", metavar="NAME", help="Done by this user or program.")
@click.option("--act", metavar="ACT", help="Such as cancel, edit, 'replay matching' or 'set queue'.")
@click.option("--target", metavar="TARGET", type=TARGET, help="Done to this task, queue, worker or schedule.")
@click.option("--since", type=TIME, help="After this time, or within this duration.")
@click.option("--before", type=int, metavar="N", help="Go on below this number, where an earlier page ended.")
@json_option
@with_store
def audit(
    app: Dibs,
    limit: int,
    actor: str | None,
    act: str | None,
    target: str | None,
    since: datetime | None,
    before: int | None,
    as_json: bool,
) -> None:
    """Show who changed what, newest first.

    Every change by a command or an admin method: who, when, what, and how it was before and after. Kept for 90 days.
    """
    found = app.audit(limit, before=before, actor=actor, act=act, target=target, since=since)
    if as_json:
        emit(found)
        return
    for line in found:
        show_line(line)
    if not found:
        chosen = (before, actor, act, target, since)
        say("Nothing was changed by hand." if chosen == (None,) * 5 else "No entry of the audit log matches.")
    if len(found) == limit:
        note(f"More: --before {found[-1].n}")


def show_line(line: AuditLine) -> None:
    """One entry: who did what, and below it what that changed."""
    say(f"{when_text(line.at)}  {line.actor}  {line.act}  {line.target}")
    if line.before or line.after:
        say(f"    {changes_text(line.before, line.after)}", indent=4)
    if line.detail and not (line.before and line.after):
        say(f"    {brief(line.detail, LONGEST_VALUE)}", indent=4)
    if len(line.ids) > 1:
        more = f" and {len(line.ids) - IDS_SHOWN:,} more" if len(line.ids) > IDS_SHOWN else ""
        say(f"    {', '.join(line.ids[:IDS_SHOWN])}{more}")


def changes_text(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What was changed, field by field: "priority: 50 → 90"."""
    return "; ".join(f"{name}: {change_text(name, before, after)}" for name in {**before, **after})


def change_text(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if name not in before:
        return f"→ {value_text(name, after[name])}"
    if name not in after:
        return f"{value_text(name, before[name])} → gone" if after else value_text(name, before[name])
    if before[name] == after[name]:
        return value_text(name, before[name])
    return f"{value_text(name, before[name])} → {value_text(name, after[name])}"


def value_text(name: str, value: Any) -> str:
    """A stored value as people write it: instants as times, durations with their units."""
    if value is None:
        return "none"
    if name in INSTANTS and isinstance(value, int):
        return when_text(when(value))
    if name in DURATIONS and isinstance(value, int):
        return format_exact_duration(value)
    return brief(plain(value), LONGEST_VALUE)
