"""PostgreSQL with Redis beside it: PostgreSQL has the tasks, Redis carries wake-ups and keeps the tokens of clients.

`docs/design/hybrid.md` says what was measured, and what was left out. While Redis is away, all goes by PostgreSQL
alone; one line of the log says so, and one that it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlunsplit

from msgspec import structs

from dibs.core.limits import TOKEN, refill
from dibs.core.options import shown, split_url
from dibs.core.settings import Limit
from dibs.core.times import Instant
from dibs.engines.accelerator import Ask, Receive
from dibs.engines.base import never
from dibs.engines.postgres import PostgresEngine
from dibs.engines.postgres import from_url as postgres_from_url
from dibs.engines.postgres.session_log import SessionLog
from dibs.engines.redis.client import Client
from dibs.engines.redis.connecting import Address
from dibs.engines.redis.connection import Command, Connection, ReplyError
from dibs.engines.redis.errors import ConnectionLost
from dibs.engines.redis.keys import Keys
from dibs.engines.redis.notifier import Notifier
from dibs.engines.redis.url import SCHEMES, address_of
from dibs.engines.topics import TopicKind, parse_topic
from dibs.engines.values import Finding, Level
from dibs.errors import DibsError, InvalidOption

__all__ = ["Beside", "RedisAccelerator", "from_url", "redis_address"]

Answer = TypeVar("Answer")

OPTION = "accelerator"
ANSWER_SECONDS = 0.5
"""A Redis that takes longer is away: PostgreSQL would have been faster."""
PING_SECONDS = 0.4
"""A listening connection whose last ping has no answer by the next one is gone: workers must notice within a second."""
FIRST_REST, LONGEST_REST = 0.5, 8.0
"""For how many seconds no command is sent to a Redis that did not answer."""


class Part(StrEnum):
    """What Redis is used for. Each may fail alone: a Redis that is full still carries messages."""

    PUBLISHING = "publishing"
    LISTENING = "listening"
    LIMITING = "limiting"


NOBODY = Ask(("", ""), Limit(rate=1.0), 0)
"""Takes nothing, and is written all the same: whether tokens can be taken."""


def from_url(url: str) -> PostgresEngine:
    """A ``postgresql://`` URL with the option ``accelerator=redis://…``, written so that it fits into another URL."""
    parts = split_url(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    given = [value for name, value in options if name == OPTION]
    rest = urlencode([(name, value) for name, value in options if name != OPTION], safe="/:,")
    engine = postgres_from_url(urlunsplit((*parts[:3], rest, parts.fragment)))
    engine.accelerate = Beside(redis_address(given[-1]))
    return engine


def redis_address(url: str) -> Address:
    """Where it is. It has to answer soon, or PostgreSQL does it."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise InvalidOption(
            f"{OPTION} must be the URL of a Redis server, such as redis://host:6379/0, not "
            f"{shown(scheme + separator) if separator else 'what was given'}. Inside another URL, write %3A for :, %2F "
            "for /, %3F for ? and %26 for &."
        )
    address = address_of(url)
    timeout, connect_timeout = (min(each, ANSWER_SECONDS) for each in (address.timeout, address.connect_timeout))
    return structs.replace(address, timeout=timeout, connect_timeout=connect_timeout, replicas=0)


class Beside:
    """Makes the accelerators of an engine and of its siblings, which share a log and a count."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.log = SessionLog()
        self.outages = 0
        """How often Redis went away, as seen by any of them."""

    def __call__(self, identity: str, receive: Receive, when_away: Callable[[], None]) -> RedisAccelerator:
        return RedisAccelerator(self, Keys(f"{self.address.prefix}:{identity}"), receive, when_away)


class RedisAccelerator:
    """One engine's way to Redis: a connection for commands, and one that listens while somebody waits for a topic."""

    def __init__(self, beside: Beside, keys: Keys, receive: Receive, when_away: Callable[[], None]) -> None:
        self.beside = beside
        self.address = beside.address
        self.keys = keys
        self.when_away = when_away
        self.client = Client(self.address, keys.tag)
        self.listening = Listening(self, receive)
        self.away: set[Part] = set()
        """What does not work."""
        self.rests: dict[Part, float] = {}
        self.rests_until: dict[Part, float] = {}

    # Whether it is there.

    @property
    def is_up(self) -> bool:
        return self.away <= {Part.LIMITING}

    def fail(self, part: Part, why: object) -> None:
        is_first, was_up = not self.away, self.is_up
        self.away.add(part)
        if is_first:
            self.beside.outages += 1
            told = f"{self.address} is away, so PostgreSQL does without it: {why}"
            self.beside.log.missing(self, told, f"{self.address} is back, and is used again.")
        if was_up and not self.is_up:
            self.when_away()

    def work(self, part: Part) -> None:
        if part in self.away:
            self.away.discard(part)
            self.rests.pop(part, None)
            if not self.away:
                self.beside.log.back(self)

    async def attempt(self, part: Part, act: Callable[[], Awaitable[Answer]]) -> Answer | None:
        """Do something with Redis; None if it is away. Of many that meet a rest that is over, one tries."""
        if part in self.away:
            if time.monotonic() < self.rests_until[part]:
                return None
            self.rests_until[part] = time.monotonic() + ANSWER_SECONDS
        try:
            answer = await self.twice(act)
        except (ConnectionLost, DibsError, ReplyError) as error:
            if not self.client.is_closed:
                rest = self.rests[part] = min(2 * self.rests.get(part, FIRST_REST / 2), LONGEST_REST)
                self.rests_until[part] = time.monotonic() + rest
                self.fail(part, error)
            return None
        self.work(part)
        return answer

    async def try_again(self) -> None:
        """What is away, if it has rested: nobody may come soon to find out."""
        if Part.PUBLISHING in self.away:
            await self.tell(["probe"])
        if Part.LIMITING in self.away:
            await self.take([NOBODY], None)

    async def twice(self, act: Callable[[], Awaitable[Answer]]) -> Answer:
        """Connections end for many reasons, which the next one may not meet. A silent server is not asked again."""
        try:
            return await act()
        except ConnectionLost as error:
            if error.unwritten or isinstance(error.cause, TimeoutError):
                raise
        return await act()

    # Wake-ups.

    async def publish(self, topics: Collection[str]) -> Collection[str]:
        """What nobody has got is told by the store: there may be processes without Redis. Ends of tasks are not: they
        are many, and mostly nobody waits for them."""
        heard = await self.tell(topics)
        if heard is None:
            return topics
        return [
            topic
            for topic, number in zip(topics, heard, strict=True)
            if not number and parse_topic(topic)[0] != TopicKind.ENDED
        ]

    async def tell(self, topics: Collection[str]) -> list[int] | None:
        """How many processes have got each."""
        commands: list[Command] = [("PUBLISH", self.keys.channel(topic), "") for topic in topics]
        return await self.attempt(Part.PUBLISHING, lambda: self.client.pipeline(commands))

    def listen_to(self, topics: Collection[str]) -> None:
        with suppress(OSError):  # the connection is made again, for all that is wanted by then
            self.listening.listen_to([self.keys.channel(topic) for topic in topics])

    def release(self, topics: Collection[str]) -> None:
        with suppress(OSError):
            self.listening.release([self.keys.channel(topic) for topic in topics])

    # Tokens.

    async def take(self, asks: Sequence[Ask], now: Instant | None) -> list[tuple[int, int]] | None:
        """The sum is done by the script `tokens`."""
        words: list[str | int] = ["" if now is None else now]
        for each in asks:
            full = refill(None, each.limit, 0).level // TOKEN
            words += ["\n".join(each.bucket), repr(each.limit.rate), full, each.count]
        answers = await self.attempt(Part.LIMITING, lambda: self.client.run("tokens", self.keys("store"), *words))
        return None if answers is None else [(taken, int(left)) for taken, left in answers]

    # Lifecycle.

    async def check(self) -> Finding:
        self.rests_until = dict.fromkeys(Part, 0.0)
        if await self.tell(["probe"]) is None or await self.take([NOBODY], None) is None:
            detail = f"{self.address} is away: wake-ups and limits of clients go by PostgreSQL alone"
            return Finding(Level.WARNING, OPTION, detail)
        times = f"; it has been away {self.beside.outages:,} times" if self.beside.outages else ""
        return Finding(Level.OK, OPTION, f"wake-ups and limits of clients go by {self.address}, which is up{times}")

    async def close(self) -> None:
        self.beside.log.forget(self)
        self.client.close()
        await self.listening.close()
        await asyncio.sleep(0)  # a connection that is given up is closed by the loop, which may end after this


class Listening(Notifier):
    """The connection that listens. What it hears is handed on; what it misses, others poll for."""

    def __init__(self, accelerator: RedisAccelerator, receive: Receive) -> None:
        super().__init__(accelerator.address, accelerator.keys, asyncio.get_running_loop(), never)
        self.accelerator = accelerator
        self.hear = receive
        self.is_answered = False

    def receive(self, message: Any) -> None:
        self.is_answered = True
        super().receive(message)
        if isinstance(message, list) and message[0] in (b"message", b"subscribe"):  # it may have missed some before
            self.hear(self.topics(message[1]))

    async def until_gone(self, line: Connection) -> None:
        """Until it is gone, or silent for too long, or does not get what it asks for.

        What counts is the answer to each ping, not the time since: this loop may have been held up itself.
        """
        while line.is_open:
            asked = {*self.wanted}
            self.is_answered = False
            line.send_only(("PING",))
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_SECONDS):
                    await asyncio.shield(line.gone)
            if not self.is_answered or not asked & {*self.wanted} <= self.heard:
                self.missing(self.why_refused() or "it does not answer.")
                return
            self.accelerator.work(Part.LISTENING)
            await self.accelerator.try_again()

    def missing(self, why: str) -> None:
        self.accelerator.fail(Part.LISTENING, why)

    def back(self) -> None:
        """What is missing is back when all of it has been confirmed."""
        self.failures = 0
