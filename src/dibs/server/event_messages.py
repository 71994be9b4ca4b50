"""Messages to clients that listen to events: their form, who wants which, and the queue of one client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from dibs.client.events import LONGEST_CURSOR, event_info
from dibs.core.options import check_text
from dibs.core.times import EPOCH, when
from dibs.engines.events import LONGEST_NUMBER, Cursor, Event
from dibs.errors import InvalidOption
from dibs.observe.events import COMPUTED
from dibs.server.caller import Caller

__all__ = ["Client", "Gap", "Message", "Position", "Reply", "Wanted"]

MOST_WAITING = 5000
"""Events that wait for one client. Their texts are shared, so that each costs one reference."""


class Position(Struct, frozen=True):
    """Up to where events were read, and at which second. Events were written for a while after that, at least."""

    cursor: str
    at: int | None = None

    @classmethod
    def parse(cls, text: str) -> Position:
        at, dash, cursor = check_text(text, "cursor", LONGEST_CURSOR).rpartition("-")
        if dash and not (at.isascii() and at.isdigit() and len(at) <= LONGEST_NUMBER):
            raise InvalidOption("cursor must be one that an earlier event gave.")
        return cls(str(Cursor.parse(cursor)), int(at) if dash else None)

    def __str__(self) -> str:
        return self.cursor if self.at is None else f"{self.at}-{self.cursor}"


class Message:
    """One message to clients, usually an event. It is encoded when somebody wants it, and only once."""

    __slots__ = (
        "_document",
        "_redacted",
        "_redacted_text",
        "_text",
        "cursor",
        "family",
        "n",
        "queue",
        "task_id",
        "task_type",
        "type",
    )

    def __init__(self, type: str, at: datetime, data: dict[str, Any], cursor: str | None) -> None:
        self.n = 0
        """The event's number; of what is not stored, 0."""
        self.type = type
        self.family = type.partition(".")[0]
        self.queue: str | None = data.get("queue")
        self.task_type: str | None = data.get("task_type")
        self.task_id: str | None = data.get("task_id")
        self.cursor = cursor
        self._document = {"type": type, "timestamp": at, "data": data, "cursor": cursor}
        self._redacted: Callable[[], dict[str, Any]] | None = None
        self._text: str | None = None
        self._redacted_text: str | None = None

    @classmethod
    def of(cls, event: Event, cursor: str, redact: Callable[[Event], Event]) -> Message:
        """An event; what `redact` leaves of it is for callers that may not see payloads."""
        made = cls(event.type, when(event.at) or EPOCH, data_of(event), cursor)
        made.n = event.n
        if event.details:
            made._redacted = lambda: data_of(redact(event))
        return made

    def text(self, *, shows_payloads: bool) -> str:
        if self._redacted is None or shows_payloads:
            if self._text is None:
                self._text = encoded(self._document)
            return self._text
        if self._redacted_text is None:
            self._redacted_text = encoded({**self._document, "data": self._redacted()})
        return self._redacted_text


class Gap(Message):
    """Events are missing here: a slow client was passed over, they were deleted, or nobody had them written."""

    __slots__ = ()

    def __init__(self, reason: str, at: datetime, cursor: str | None) -> None:
        super().__init__("gap", at, {"reason": reason}, cursor)


class Reply(Message):
    """An answer to what a client has sent. It is in no form but its own."""

    __slots__ = ()

    def __init__(self, document: dict[str, Any], at: datetime) -> None:
        super().__init__("reply", at, {}, None)
        self._text = encoded(document)


def encoded(document: dict[str, Any]) -> str:
    return msgspec.json.encode(document).decode()


def data_of(event: Event) -> dict[str, Any]:
    """What is told of an event, in the API's words. A task's type is called `type` as well."""
    data = event_info(event, "", False).data
    if event.name is not None:
        data["task_type"] = data["type"] = data.pop("name")
    if isinstance(due_at := event.details.get("due_at"), int):
        data["due_at"] = when(due_at)
    return data


class Wanted(Struct, frozen=True):
    """What a client asked for, as far as its caller may have it. Empty: everything, but for computed events.

    What belongs to no queue is for callers that may use all queues. Types and ids of tasks leave only tasks.
    """

    topics: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    task_types: frozenset[str] = frozenset()
    task_ids: frozenset[str] = frozenset()
    is_limited: bool = False

    @classmethod
    def by(cls, caller: Caller, filters: Sequence[Sequence[str]]) -> Wanted:
        topics, queues, task_types, task_ids = map(frozenset, filters)
        return cls(topics, queues or caller.queues or frozenset(), task_types, task_ids, caller.queues is not None)

    @property
    def is_stored(self) -> bool:
        """Whether it takes any events that are stored."""
        return not self.topics or any(each not in COMPUTED and each != "system" for each in self.topics)

    @property
    def computed(self) -> list[str]:
        """Only if named: a client that asks for nothing in particular wants what happens, not figures."""
        return [each for each in COMPUTED if each in self.topics or each.partition(".")[0] in self.topics]

    def takes(self, message: Message) -> bool:
        if message.type == "gap":
            return self.is_stored
        if self.topics:
            if message.type not in self.topics and message.family not in self.topics:
                return False
        elif message.type in COMPUTED:
            return False
        if message.queue is None:
            if self.is_limited:
                return False
        elif self.queues and message.queue not in self.queues:
            return False
        return (not self.task_types or message.task_type in self.task_types) and (
            not self.task_ids or message.task_id in self.task_ids
        )


class Client:
    """The messages that wait for one client, on its loop. If they are too many, events are dropped, for a gap."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.loop = asyncio.get_running_loop()
        self.waiting: deque[Message] = deque()
        self.news = asyncio.Event()
        self.overflowed = False
        """No event is kept any more until the client has been told of it."""
        self.error: BaseException | None = None
        """Why nothing more will come."""

    def offer(self, messages: Sequence[Message]) -> None:
        if self.overflowed:
            return
        if len(self.waiting) + len(messages) > MOST_WAITING:
            self.drop()
            self.overflowed = True
        else:
            self.waiting.extend(messages)
        self.news.set()

    def answer(self, message: Message) -> bool:
        """Keep a message that is for this client alone, even if it is slow. False: it never takes any."""
        self.waiting.append(message)
        self.news.set()
        return len(self.waiting) <= 2 * MOST_WAITING

    def end(self, error: BaseException) -> None:
        self.error = error
        self.news.set()

    def drop(self) -> None:
        """Drop stored events: they can be read again."""
        self.waiting = deque(each for each in self.waiting if not each.n)
        self.overflowed = False

    def take(self, most: int) -> list[Message]:
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
