"""How much one call does, how long records are kept, and how long a term lasts: the same in every engine."""

from __future__ import annotations

from dibs.core.times import DAY, MINUTE, SECOND, Duration

TERM: Duration = 15 * SECOND
"""How long a term lasts without renewal."""
TERM_RENEWAL: Duration = 5 * SECOND

PROMOTE_BATCH = 1000
"""Due tasks that one claim makes pending."""
EXPIRE_BATCH = 1000
"""Tasks past their deadline to start that one claim ends."""
RESCUE_BATCH = 500
"""Tasks that one `rescue` takes back."""
BURY_BATCH = 1000
"""Waiting tasks that one part of deleting a queue ends."""
CHORE_BATCH = 1000
"""Rows that one step of a chore changes or deletes."""
ACT_BATCH = 500
"""Tasks that one part of an act on all that match changes."""
CHORE_LATE: Duration = 3 * MINUTE
"""Without a run for so long, a chore is late: a leader runs each at least once a minute."""
CHORE_BEHIND: Duration = 10 * MINUTE
"""A chore that has had work left for so long after each of its runs does not keep up."""
VISIT_BATCH = 5000
"""Rows that one step of retention, or one part of an act, reads, whether or not they are meant."""

KEEP_WORKERS: Duration = DAY
"""How long a dead worker stays listed."""
KEEP_AUDIT: Duration = 90 * DAY
KEEP_EVENTS: Duration = 10 * MINUTE
"""How long an event can be read; and at most `MOST_EVENTS` of them, give or take a batch."""
MOST_EVENTS = 200_000
EVENT_BATCH = 50_000
"""Events that one step deletes."""
KEEP_STEPS: Duration = 7 * DAY
"""How long a background step stays listed after its end."""
KEEP_MINUTES = 7 * 24 * 60
"""Statistics are kept for this many minutes."""

CHECKED_ROWS = 10_000
"""The oldest rows of each kind that the doctor reads, unless it reads all."""
CHECKED_MINUTES = 60
"""The last minutes of statistics that it reads."""

ABSENT_SECONDS = 1.0
"""A worker whose process is absent at two checks at least this far apart is lost."""
