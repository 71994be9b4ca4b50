"""What goes wrong between a caller and a store: by plan for your own tests, and as a suite that an engine must pass.

`faulty(engine, faults)` is the engine, but its verbs fail, get lost, repeat or wait as `faults` say::

    faults = Faults()
    engine = faulty(MyEngine(...), faults)
    faults.plan("settle", Fault.LOST)        # the next settlement takes effect, and its caller never knows
    faults.away("claim", "extend")           # these fail until faults.back()

The suite asks whether each verb that changes something is as safe to repeat as the seam promises::

    @pytest.mark.parametrize("case", faults.cases(), ids=str)
    def test_faults(case):
        case.run(lambda: MyEngine(...))      # a new, empty store on each call

Imports pytest nowhere, so any runner will do. Invariant: nothing is left to chance, so a case that fails does so again.
"""

from __future__ import annotations

from functools import partial

from dibs.testing.conformance import Case, EngineFactory, cases_of
from dibs.testing.faults import closing, given_up, lost_reply, together
from dibs.testing.faults.calls import CALLS
from dibs.testing.faults.engine import Fault, Faults, faulty

__all__ = ["Case", "EngineFactory", "Fault", "Faults", "cases", "faulty"]

CHECKS = {"lost_reply": lost_reply.check, "given_up": given_up.check, "together": together.check}
"""What is done to every call."""

NOT_PROMISED = {("together", call) for call in together.NOT_PROMISED}


def cases() -> list[Case]:
    """All cases: by subject, and by call."""
    pairs = [(subject, call) for subject in CHECKS for call in CALLS if (subject, call) not in NOT_PROMISED]
    found = [Case(subject, call, partial(CHECKS[subject], CALLS[call])) for subject, call in pairs]
    return found + cases_of("closing", closing)
