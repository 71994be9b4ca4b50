"""What a run should achieve, such as `critical:p95<30s`, and whether it did."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from dibs.core.options import as_number, nearest, shown
from dibs.core.priority import parse_priority
from dibs.errors import InvalidOption
from dibs.simulation.measure import PERCENTILES, Report, Waits, label

__all__ = ["Target", "Verdict", "judge", "parse_target"]

FORM = re.compile(r"(?P<who>.+):\s*(?P<part>[a-z0-9]+)\s*<=?\s*(?P<limit>[^<]+)", re.IGNORECASE)
EVERYBODY = "all"


class Target(Struct, frozen=True):
    """Of the tasks of `who` (`all`, a priority or a tenant) the given percentile of waits is at most `seconds`."""

    who: str
    part: str
    seconds: float


class Verdict(Struct, frozen=True, kw_only=True):
    """Whether a target was met; `seconds` is the wait that was measured, None if no such task ran."""

    target: Target
    seconds: float | None
    met: bool


def parse_target(text: str, span: Callable[[str], float]) -> Target:
    """A target as people write it; `span` reads a duration."""
    found = FORM.fullmatch(text.strip())
    if found is None:
        raise InvalidOption(
            f"{shown(text)} is not a target: write who:p95<30s, such as critical:p95<30s or all:max<1h."
        )
    part = found["part"].lower()
    if part not in PERCENTILES:
        raise InvalidOption(
            f"a target is about one of {', '.join(PERCENTILES)}, not {shown(part)}.{nearest(part, PERCENTILES)}"
        )
    return Target(canonical(found["who"].strip()), part, span(found["limit"].strip()))


def canonical(who: str) -> str:
    """Priorities by the name that reports use; all else is a tenant."""
    try:
        return label(parse_priority(as_number(who)))
    except InvalidOption:
        return who


def judge(target: Target, report: Report) -> Verdict:
    """Whether a run met a target. A priority takes precedence over a tenant of the same name."""
    waits = waits_for(target.who, report)
    seconds = None if waits is None else float(getattr(waits, target.part))
    return Verdict(target=target, seconds=seconds, met=seconds is not None and seconds <= target.seconds)


def waits_for(who: str, report: Report) -> Waits | None:
    if who == EVERYBODY:
        return report.wait
    return report.by_priority.get(who) or report.by_tenant.get(who)
