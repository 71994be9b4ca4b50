"""A user of the server with no more rights than Dibs needs."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis_help import beat, claim, new, run, settle, somehow, until

import dibs.engines.redis
from dibs.core.graph import Edge
from dibs.core.settings import QueueSettings
from dibs.core.task import Lease, Outcome
from dibs.core.times import DAY, SECOND
from dibs.engines.events import EventRequest
from dibs.engines.redis import RedisEngine, from_url
from dibs.engines.topics import work_topic
from dibs.engines.values import Cancel, Extension, Level, Query
from dibs.errors import StoreUnavailable
from servers.redis import Server, binaries

COMMANDS = (
    "+time +info +ping +eval +evalsha +get +set +del +unlink +exists +hget +hset +hdel +hmget +hgetall +hincrby +hkeys "
    "+zadd +zrem +zrange +zrangebylex +zrevrangebylex +zrangebyscore +zscore +xadd +xrange +xtrim "
    "+publish +subscribe +unsubscribe +pubsub|numsub +client|setname"
)
RIGHTS = f"resetkeys resetchannels ~{{acl}}:* &{{acl}}:* -@all {COMMANDS}"
"""For a store with the prefix "acl"."""
MORE = {
    "select": "for a database other than 0",
    "wait": "for replicas=",
    "pexpire": "for limits of a PostgreSQL store that has Redis beside it",
    "cluster": "for a cluster: cluster|slots",
    "config": "for what the doctor says about fsync: config|get",
}


@pytest.fixture(params=["redis", "redis7"])
def guarded(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param not in binaries():
        pytest.skip(f"{request.param} is not installed here")
    found = Server(request.param)
    found.command("ACL", "SETUSER", "least", "on", ">secret", *RIGHTS.split())
    yield found
    found.remove()


def url_of(own: Server) -> str:
    return f"redis://least:secret@127.0.0.1:{own.port}/0?prefix=acl"


async def live(engine: RedisEngine) -> None:
    """All that becomes of tasks and workers."""
    await engine.open()
    subscription = engine.subscribe([work_topic("default")])
    assert await subscription.wait(10)
    await engine.events(EventRequest(subscriber="s"))
    await engine.beat(beat("w", os.getpid()))
    await engine.beat(beat("v", os.getpid()))
    assert await claim(engine, 1) == []
    tasks = [new(), new(), new(), new(key="k"), new(partition="p", tenant="t"), new(delay=1)]
    await engine.enqueue(tasks)
    await engine.enqueue([new(after=(Edge(tasks[0].id),)), new(expires_at=1)])
    held = await claim(engine, 3)
    await engine.extend([Extension(Lease(task.id, task.lease), by=SECOND, progress=0.5) for task in held])
    await settle(engine, held[:1])
    await settle(engine, held[1:2], Outcome.FAILED)
    await settle(engine, held[2:], Outcome.PERMANENT)
    await engine.act([Cancel(tasks[3].id)], actor="ada")
    await engine.act_on(new().id, Query(), Cancel(""))
    await engine.set_queue("fair", QueueSettings(fair=True, max_concurrent=2, version=1), expected=0)
    await engine.enqueue([new(queue="fair", tenant=each) for each in "ab"])
    assert await claim(engine, 1, queues=("fair",))
    assert (await engine.events(EventRequest(subscriber="s"))).events == []
    await engine.search(Query(limit=10))
    await engine.rescue()
    later = (await engine.rescue()).at + 100 * DAY
    await engine.rescue(now=later)
    term = await engine.lead("v", now=later)
    assert term is not None
    for chore in (await engine.about()).chores:
        await engine.chore(chore.name, term, now=later)
    await engine.leave("w")
    assert not [each for each in await engine.check(full=True) if each.level is Level.ERROR]
    subscription.close()


def test_these_rights_are_enough(guarded: Server) -> None:
    async def test() -> None:
        engine = from_url(url_of(guarded))
        try:
            await live(engine)
        finally:
            await engine.close()
        refused = {entry[entry.index("object") + 1].partition("|")[0] for entry in guarded.command("ACL", "LOG")}
        assert refused <= {"config"}, "all else that was asked was allowed"

    run(test)


def test_these_rights_are_needed() -> None:
    """Every command that the sources name, and no other."""
    own = Server()
    try:
        known = {command[0] for command in own.command("COMMAND")}
    finally:
        own.remove()
    folder = Path(dibs.engines.redis.__file__).parent
    text = "\n".join(path.read_text() for path in folder.rglob("*") if path.suffix in (".py", ".lua"))
    named = {word.lower() for word in re.findall(r"[\"']([A-Z]{3,})[\"']", text)} & known
    given = {each.lstrip("+").partition("|")[0] for each in COMMANDS.split()}
    assert named - {"auth", "keys", "readonly"} == given | set(MORE)  # no right, a name of ours, an error


@pytest.mark.parametrize(
    ("right", "word"), [("-evalsha", "evalsha"), ("-info", "info"), ("-hincrby", "script"), ("resetkeys", "key")]
)
def test_a_right_that_is_missing_is_told(guarded: Server, right: str, word: str) -> None:
    async def test() -> None:
        guarded.command("ACL", "SETUSER", "least", right)
        engine = from_url(url_of(guarded))
        with pytest.raises(StoreUnavailable) as caught:
            await engine.open()
        await engine.close()
        said = str(caught.value)
        assert "does not allow this user what Dibs needs" in said
        assert word in said
        assert "secret" not in said
        assert "\n" not in said

    run(test)


@pytest.mark.parametrize("right", ["-zadd", "-hset", "-publish", "-zrem"])
def test_a_right_that_only_scripts_need_is_missed_before_anything_is_half_done(guarded: Server, right: str) -> None:
    """A script is not undone when one of its commands is refused."""

    async def test() -> None:
        guarded.command("ACL", "SETUSER", "least", right)
        engine = from_url(url_of(guarded))
        with pytest.raises(StoreUnavailable, match="does not allow this user what Dibs needs"):
            await engine.open()
        await engine.close()
        assert [key for key in guarded.command("KEYS", "*") if not key.endswith((":store", ":rights"))] == []

    run(test)


@pytest.mark.parametrize("right", ["-subscribe"])
def test_a_right_that_a_listener_needs_is_told(guarded: Server, right: str, caplog: pytest.LogCaptureFixture) -> None:
    """It goes on without, by looking. Nobody waits for that on each heartbeat."""

    async def test() -> None:
        guarded.command("ACL", "SETUSER", "least", right)
        engine = from_url(url_of(guarded))
        await engine.open()
        try:
            subscription = engine.subscribe([work_topic("default")])

            async def told() -> bool:
                return any("Can't listen" in record.getMessage() for record in caplog.records)

            async with asyncio.timeout(3):
                await until(told)
            (said,) = {record.getMessage() for record in caplog.records}
            assert "does not allow this user what Dibs needs" in said
            subscription.close()
        finally:
            await engine.close()

    run(test)


def test_a_name_is_not_needed(guarded: Server) -> None:
    """It is for people who look at the server's list of clients."""

    async def test() -> None:
        guarded.command("ACL", "SETUSER", "least", "-client")
        engine = from_url(url_of(guarded))
        await engine.open()
        await engine.close()

    run(test)


def test_rights_that_are_taken_away_while_it_runs_and_given_back(guarded: Server) -> None:
    async def test() -> None:
        engine = from_url(url_of(guarded))
        await engine.open()
        try:
            await engine.enqueue([new()])
            guarded.command("ACL", "SETUSER", "least", "-@write")
            with pytest.raises(StoreUnavailable, match="does not allow this user"):
                await engine.enqueue([new()])
            guarded.command("ACL", "SETUSER", "least", *RIGHTS.split())
            await somehow(lambda: engine.enqueue([new()]))
            assert len(await claim(engine, 5)) == 2
        finally:
            await engine.close()

    run(test)


def test_another_prefix_is_out_of_reach(guarded: Server) -> None:
    async def test() -> None:
        engine = from_url(url_of(guarded).replace("prefix=acl", "prefix=acld"))
        with pytest.raises(StoreUnavailable, match="does not allow this user what Dibs needs"):
            await engine.open()
        await engine.close()

    run(test)
