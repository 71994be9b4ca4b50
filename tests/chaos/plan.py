"""Which faults come when. The same seed gives the same plan, whatever else the machine does."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["ALL", "Fault", "draw"]

ALL = "all"
"""The target of a fault that hits everybody alike."""

LEAD_IN = 4.0
"""Seconds without a fault at the beginning."""

REST = 15.0
REST_AFTER = 8
"""After so many faults there is a rest of so many seconds, in which nothing may be out of the ordinary."""

BESIDE = 0.2
"""How often a fault begins while the one before it lasts."""


@dataclass(frozen=True)
class Fault:
    """Something that happens at `at` seconds, lasts `seconds` and hits `target`: one process, or all."""

    at: float
    kind: str
    seconds: float
    target: str


def draw(seed: int, seconds: float, kinds: Mapping[str, str], lease: float, processes: Sequence[str]) -> list[Fault]:
    """Faults for a run. `kinds` says of each kind whom it hits: `worker`, `producer`, `all`.

    Every kind comes once before any comes twice. Those that last do so for between a tenth and three times the lease.
    """
    chance = random.Random(seed)
    plan: list[Fault] = []
    at, bag = LEAD_IN, []
    while True:
        if not bag:
            bag = sorted(kinds)
            chance.shuffle(bag)
        kind = bag.pop()
        lasts = lease * chance.choice([0.1, 0.5, 0.9, 1.1, 1.5, 3.0])
        if at + lasts > seconds:
            return plan
        hits = [name for name in processes if name.startswith(kinds[kind])]
        plan.append(Fault(round(at, 3), kind, round(lasts, 3), chance.choice(hits) if hits else ALL))
        if len(plan) % REST_AFTER == 0:
            at = max(fault.at + fault.seconds for fault in plan) + REST
        else:
            at += 0.5 if chance.random() < BESIDE else lasts + chance.uniform(1.0, 2.0 * lease)
