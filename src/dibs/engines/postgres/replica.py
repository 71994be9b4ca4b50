"""The server of `read_url`: serves reads that may be a little behind; the primary does if it can't be reached.

`Store.consult` asks it for lists and statistics. What concerns one task or one workflow is read from the primary,
because a caller may have just changed it or be waiting for it. So is everything that a decision needs.
"""

from __future__ import annotations

import logging
import time

from dibs.engines.postgres.pool import Address
from dibs.engines.values import Finding, Level
from dibs.errors import StoreError

__all__ = ["Readiness", "lag_finding", "out_of_reach"]

log = logging.getLogger("dibs.engines.postgres")

REST_SECONDS = 15.0
"""How long a server that failed is not asked, so that callers do not wait for it repeatedly."""

LATE_SECONDS = 30.0
"""How far a standby may be behind before the doctor warns."""


class Readiness:
    """Whether the server is worth a try. Logs once that it is not, and once that it is again."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_recognised = False
        """It is known to hold the same store."""
        self.failed = False
        self.rests_until = 0.0

    def is_worth_a_try(self) -> bool:
        return time.monotonic() >= self.rests_until

    def fail(self, error: StoreError) -> None:
        if not self.failed:
            log.warning("read_url does not answer, so everything is read from the primary: %s", error)
        self.failed = True
        self.rests_until = time.monotonic() + REST_SECONDS

    def work(self) -> None:
        if self.failed:
            log.info("read_url answers again: %s", self.address)
        self.failed = False


def lag_finding(address: Address, is_standby: bool, behind: int, seconds: float | None) -> Finding:
    """How old the data there is. `seconds`: since the last transaction that it received."""
    what = f"lists and statistics are read from {address}"
    if not is_standby:
        return Finding(Level.OK, "read_url", f"{what}, which is no standby")
    if behind <= 0:
        return Finding(Level.OK, "read_url", f"{what}, a standby that is up to date")
    told = f"{what}, a standby that is {behind:,} bytes of the log behind"
    if seconds is None or seconds < LATE_SECONDS:
        return Finding(Level.OK, "read_url", told)
    detail = f"{told}, by {seconds:,.0f} s: what is shown is that old; see pg_stat_replication on the primary"
    return Finding(Level.WARNING, "read_url", detail)


def out_of_reach(error: StoreError) -> Finding:
    return Finding(Level.WARNING, "read_url", f"does not answer, so everything is read from the primary: {error}")
