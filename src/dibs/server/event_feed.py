"""What one client that listens to events is told: what it has missed, then what happens."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
from msgspec import Struct

from dibs.client.events import PAGE, check_topics
from dibs.core.options import QUEUES, TASKS, check_names, check_text
from dibs.engines.events import Cursor
from dibs.engines.http.protocol import Scope
from dibs.errors import InvalidOption, StoreBusy, StoreUnavailable
from dibs.server.broadcast import WRITTEN_FOR, Broadcaster
from dibs.server.caller import Caller
from dibs.server.event_messages import Client, Gap, Message, Position, Reply, Wanted

__all__ = ["Feed", "Filters"]

BATCH = 100
"""Messages that are sent together."""
RETRY = 1.0
"""Seconds after which a store that did not answer is asked again for old events."""
MOST_VALUES = 1000
LONGEST_ID = 500


class Filters(Struct, frozen=True, forbid_unknown_fields=True):
    """What a client wants to be told of. Empty: everything."""

    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    task_types: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()

    def checked(self, caller: Caller) -> Wanted:
        """The same for a caller, if it may have that."""
        if any(len(getattr(self, each)) > MOST_VALUES for each in self.__struct_fields__):
            raise InvalidOption(f"a filter may have {MOST_VALUES:,} values at most.")
        check_topics(self.topics)
        check_names(self.task_types, "task_types", TASKS)
        for task_id in self.task_ids:
            check_text(task_id, "a task's id", LONGEST_ID, 1)
        caller.require(Scope.READ)
        caller.require_queues(check_names(self.queues, "queues", QUEUES))
        return Wanted.by(caller, (self.topics, self.queues, self.task_types, self.task_ids))


class Feed:
    """What one client is told: what it has missed, then what happens. Close it."""

    def __init__(self, broadcaster: Broadcaster, filters: Filters, wanted: Wanted, position: Position | None) -> None:
        self._broadcaster = broadcaster
        self._client = Client(wanted)
        self._filters = filters
        self._first: list[Message] = []
        self._behind = position.cursor if position is not None and wanted.is_stored else None
        """After which event the store is read; None: the client has caught up."""
        self._is_last_page = False
        self._read: Cursor | None = None
        """Up to where the store was read: what is offered twice is told once."""
        self._began = position
        self.cursor = None if position is None else str(position)
        """After the last message that was sent."""

    async def open(self) -> None:
        position, began = await self._broadcaster.join(self._client), self._began
        if self._behind is None:
            self.cursor = position
        elif began is not None and began.at is not None and began.at + WRITTEN_FOR < self._broadcaster.since:
            self._first.append(self._broadcaster.gap("unwatched", self.cursor))
        self._first.insert(0, self._subscribed())

    def close(self) -> None:
        self._broadcaster.leave(self._client)

    def _subscribed(self) -> Message:
        return Message("subscribed", self._broadcaster.now(), msgspec.to_builtins(self._filters), self.cursor)

    async def next(self, patience: float) -> list[Message]:
        """More to tell; nothing if there was nothing for `patience` seconds."""
        if self._first:
            first, self._first = self._first, []
            return first
        while self._behind is not None:
            if self._is_last_page and not self._client.overflowed:
                self._read, self._behind = Cursor.parse(self._behind), None
                break
            if found := await self._old(self._behind):
                return found
        return await self._new(patience)

    async def _old(self, cursor: str) -> list[Message]:
        """A page from the store. What is offered while it is read waits; what was offered before is in the store."""
        if self._client.error is not None:
            raise self._client.error
        self._client.drop()
        try:
            page, messages = await self._broadcaster.page(cursor)
        except (StoreBusy, StoreUnavailable):
            await asyncio.sleep(RETRY)
            return []
        self._behind = page.cursor
        self._is_last_page = len(messages) < PAGE and Cursor.parse(page.cursor).base >= page.settled
        found = [each for each in messages if self._client.wanted.takes(each)]
        return [self._broadcaster.gap("deleted", self.cursor), *found] if page.missed else found

    async def _new(self, patience: float) -> list[Message]:
        client = self._client
        if not client.waiting and not client.overflowed and client.error is None:
            client.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await client.news.wait()
        if client.error is not None:
            raise client.error
        if client.overflowed:
            client.overflowed = False
            return [self._broadcaster.gap("slow", self.cursor)]
        return [each for each in client.take(BATCH) if self._is_news(each)]

    def _is_news(self, message: Message) -> bool:
        if isinstance(message, Gap):
            self._read = None  # the store may have been restored, and count from a lower number
        read = self._read
        return read is None or not message.n or (message.n > read.base and message.n not in read.seen)

    def sent(self, messages: list[Message]) -> None:
        self.cursor = next((each.cursor for each in reversed(messages) if each.cursor), self.cursor)

    def current(self) -> str | None:
        """From where to resume if the client has been told everything."""
        if self._behind is None and not self._client.waiting and not self._client.overflowed:
            self.cursor = self._broadcaster.position(self._client) or self.cursor
        return self.cursor

    async def change(self, filters: Filters, wanted: Wanted) -> None:
        await self._broadcaster.change(self._client, wanted)
        self._filters = filters
        self._answer(self._subscribed())

    def stopping(self) -> Message:
        return Message("server.stopping", self._broadcaster.now(), {}, self.cursor)

    def pong(self, ping: object) -> None:
        self._answer(Reply({"pong": ping, "cursor": self.current()}, self._broadcaster.now()))

    def _answer(self, message: Message) -> None:
        if not self._client.answer(message):
            raise InvalidOption("more messages were sent than answers taken.")
