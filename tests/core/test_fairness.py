"""Fair shares: the published bounds hold for whatever tenants and weights there are."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dibs.core.fairness import COST, most_before, next_virtual_time, start_virtual_time, stride
from dibs.core.settings import QueueSettings

TENANTS = "abcdef"
STARTS = 40
weights = st.sampled_from((0.001, 0.3, 0.5, 1.0, 1.0, 2.0, 3.0, 7.5, 1000.0)) | st.floats(0.001, 1000.0)
fair_queues = st.dictionaries(st.sampled_from(TENANTS), weights, min_size=2).map(
    lambda given: QueueSettings(fair=True, weights=given)
)


class TurnOrder:
    """The turns of a queue in memory: the tenant with something to run and the lowest virtual time starts next."""

    def __init__(self, settings: QueueSettings, virtual_times: dict[str, int] | None = None, clock: int = 0) -> None:
        self.settings = settings
        self.virtual_times = dict(virtual_times or {})
        self.clock = clock

    def next_of(self, tenants: str | list[str]) -> str:
        """Start one task of those tenants that have some."""
        start, tenant = min(
            (start_virtual_time(self.clock, self.virtual_times.get(tenant, 0)), tenant) for tenant in tenants
        )
        self.clock = start
        self.virtual_times[tenant] = next_virtual_time(self.settings, tenant, start)
        return tenant


@st.composite
def turns(draw: st.DrawFn) -> TurnOrder:
    """A queue that has been at work for a while, its tenants coming and going."""
    queue = TurnOrder(draw(fair_queues))
    tenants = sorted(queue.settings.weights)
    for _ in range(draw(st.integers(0, 20))):
        queue.next_of(draw(st.lists(st.sampled_from(tenants), min_size=1, unique=True)))
    return queue


@given(turns())
def test_backlogged_tenants_keep_to_their_shares_in_every_interval(queue: TurnOrder) -> None:
    """With starts over weight written as starts times stride: whole numbers, so the bound is exact."""
    tenants = sorted(queue.settings.weights)
    strides = {tenant: stride(queue.settings, tenant) for tenant in tenants}
    started = [queue.next_of(tenants) for _ in range(STARTS)]
    for begin in range(STARTS):
        served = dict.fromkeys(tenants, 0)
        for tenant in started[begin:]:
            served[tenant] += strides[tenant]
            for one, other in combinations(tenants, 2):
                assert abs(served[one] - served[other]) <= strides[one] + strides[other]


@given(turns(), st.data())
def test_the_bound_on_waiting_is_never_exceeded(queue: TurnOrder, data: st.DataObject) -> None:
    """However the others come and go: a tenant that has something to run starts within the bound."""
    tenants = sorted(queue.settings.weights)
    mine = data.draw(st.sampled_from(tenants))
    most = most_before(queue.settings, mine, tenants)
    if most > 10 * STARTS:  # a weight against one a million times larger: true, and too long to watch
        return
    others = [tenant for tenant in tenants if tenant != mine]
    for before in range(most + 1):
        busy = data.draw(st.lists(st.sampled_from(others), unique=True)) if before < STARTS else others
        if queue.next_of([mine, *busy]) == mine:
            return
    raise AssertionError(f"{most} starts of others and still waiting")


@given(turns(), st.data())
def test_time_spent_idle_earns_nothing(queue: TurnOrder, data: st.DataObject) -> None:
    """Who comes back after a long rest is served as if it had been there all the time."""
    idle, busy = data.draw(st.permutations(sorted(queue.settings.weights)))[:2]
    for _ in range(STARTS):
        queue.next_of([busy])
    one, other = stride(queue.settings, idle), stride(queue.settings, busy)
    started = [queue.next_of([idle, busy]) for _ in range(STARTS)]
    for length in range(STARTS):
        ahead = started[:length].count(idle) * one - started[:length].count(busy) * other
        assert ahead <= one + other


def test_equal_weights_take_turns() -> None:
    queue = TurnOrder(QueueSettings(fair=True))
    assert "".join(queue.next_of("abc") for _ in range(9)) == "abcabcabc"


def test_weights_are_proportions() -> None:
    queue = TurnOrder(QueueSettings(fair=True, weights={"a": 3.0}))
    assert Counter(queue.next_of("ab") for _ in range(400)) == {"a": 300, "b": 100}


def test_a_flood_delays_a_newcomer_by_one_start_only() -> None:
    queue = TurnOrder(QueueSettings(fair=True))
    for _ in range(10_000):
        queue.next_of("a")
    assert most_before(queue.settings, "b", "ab") == 2
    assert "b" in [queue.next_of("ab"), queue.next_of("ab")]


def test_the_bound_is_counted_over_the_others_only() -> None:
    settings = QueueSettings(fair=True, weights={"heavy": 5.0})
    assert most_before(settings, "a", []) == 0
    assert most_before(settings, "a", ["a"]) == 0
    assert most_before(settings, "a", ["heavy", "b"]) == 6 + 2
    assert most_before(settings, "heavy", ["a", "b"]) == 2


def test_every_start_costs_something() -> None:
    settings = QueueSettings(fair=True, weights={"a": 1000.0, "b": 0.001})
    assert (stride(settings, "a"), stride(settings, "b"), stride(settings, "c")) == (1_000, 10**9, COST)
