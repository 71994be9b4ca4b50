"""edges: what a task waits for, and what waits for it."""

from __future__ import annotations

from dibs.core.graph import Edge, Rule
from dibs.engines.values import Cancel, Edges, Need, Purge
from dibs.testing.conformance.harness import Harness


async def test_each_task_asked_about(harness: Harness) -> None:
    need = await harness.add()
    first, second = await harness.follow(need), await harness.follow(need)
    found = await harness.engine.edges([first, need, harness.new_id()], followers=1)
    assert [[each.id for each in edges.needs] for edges in found] == [[need], [], []]
    assert [edges.followers for edges in found] == [[], [first], []]
    assert [edges.followers for edges in await harness.engine.edges([need], followers=5)] == [[first, second]]
    assert [edges.followers for edges in await harness.engine.edges([need])] == [[]]


async def test_needs_are_told_in_their_order(harness: Harness) -> None:
    first, second = await harness.add_many(2)
    after = (Edge(second, Rule.RUN), Edge(first, Rule.IF_FAILED), Edge(second))
    follower, free = await harness.add(after=after), await harness.add()
    expected = [Need(edge.id, edge.rule, True) for edge in after]
    assert [each.needs for each in await harness.engine.edges([free, follower, harness.new_id()])] == [[], expected, []]


async def test_needs_last_as_long_as_the_task(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need)
    await harness.finish(need)
    await harness.finish(follower)
    assert [each.needs for each in await harness.engine.edges([follower])] == [[Need(need, Rule.CANCEL, False)]]
    await harness.engine.act([Purge(follower)], now=harness.now)
    assert [each.needs for each in await harness.engine.edges([follower])] == [[]]


async def test_followers_are_those_that_still_wait(harness: Harness) -> None:
    need, other = await harness.add_many(2)
    ids = [await harness.follow(need) for _ in range(4)]
    both = await harness.follow(need, other, need)
    assert await harness.followers(need) == [*ids, both], "by id, each once"
    assert (await harness.engine.edges([need], followers=2))[0].followers == ids[:2]
    await harness.engine.act([Cancel(ids[1])], now=harness.now)
    assert await harness.followers(need) == [ids[0], *ids[2:], both]
    await harness.finish(need)
    assert await harness.followers(need) == []
    assert await harness.followers(other) == [both]
    assert await harness.followers(harness.new_id()) == []


async def test_what_is_no_id_has_no_edges(harness: Harness) -> None:
    assert await harness.engine.edges(["nonsense", "ünï", ""], followers=10) == [Edges([], [])] * 3
