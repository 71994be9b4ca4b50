"""Durations and rates as people write them."""

from __future__ import annotations

from dibs.core.times import DAY, HOUR, MINUTE, SECOND, Duration


def format_duration(seconds: float | None) -> str:
    """Seconds, rounded: 3 ms, 12.5 s, 4 min, 3.0 h, 2.1 days; a negative number counts as 0."""
    if seconds is None:
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def format_rate(per_second: float) -> str:
    """How often something happens: 12.5/s, 8.4/min, 3.0/h. It reads as none only if there was none."""
    if per_second <= 0:
        return "0/s"
    for unit, seconds in (("s", 1), ("min", 60)):
        if per_second * seconds >= 1:
            return f"{per_second * seconds:,.1f}/{unit}"
    return f"{per_second * 3600:,.1f}/h"


def with_article(word: str) -> str:
    """The word after "a" or "an"."""
    return f"{'an' if word[:1].lower() in tuple('aeiou') else 'a'} {word}"


def format_exact_duration(length: Duration) -> str:
    """A duration to the microsecond, for settings that must read as they were given: "1 h 30 min"."""
    words: list[str] = []
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        count, length = divmod(length, unit)
        if count:
            words.append(f"{count} {name}")
    if length or not words:
        words.append(f"{length / SECOND:.6f}".rstrip("0").rstrip(".") + " s")
    return " ".join(words)
