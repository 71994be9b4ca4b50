"""about and features: an engine says what it is."""

from __future__ import annotations

from dibs.engines.values import Feature
from dibs.testing.conformance.harness import Harness


async def test_says_what_it_is(harness: Harness) -> None:
    about = await harness.engine.about()
    assert about.durability.endswith(".")
    assert about.features == harness.engine.features
    assert all(isinstance(feature, Feature) for feature in about.features)


async def test_a_store_has_one_identity(harness: Harness) -> None:
    sibling = harness.engine.sibling()
    await sibling.open()
    assert (await sibling.about()).identity == (await harness.engine.about()).identity != ""
    await sibling.close()


async def test_chores_are_told_before_they_are_done(harness: Harness) -> None:
    assert {(record.at, record.total) for record in (await harness.engine.about()).chores} == {(0, 0)}
