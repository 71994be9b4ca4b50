"""Topics: what notifications are about. Only this module puts them together or takes them apart."""

from __future__ import annotations

from enum import StrEnum


class TopicKind(StrEnum):
    """What a topic is about: the part before the colon. Only the functions below build or parse topics."""

    WORK = "work"
    ENDED = "ended"
    WORKER = "worker"
    EVENTS = "events"
    ROOM = "room"


SCHEDULES = "schedules"
"""Notified when a schedule has changed."""

EVENTS = TopicKind.EVENTS.value
"""Notified when events were appended, for whatever subscriber."""


def work_topic(queue: str) -> str:
    """Notified when a queue may have work."""
    return f"{TopicKind.WORK}:{queue}"


def ended_topic(queue: str) -> str:
    """Notified when tasks of a queue have ended."""
    return f"{TopicKind.ENDED}:{queue}"


def room_topic(queue: str) -> str:
    """Notified when a queue with a `max_depth` may have room for new tasks."""
    return f"{TopicKind.ROOM}:{queue}"


def worker_topic(worker: str) -> str:
    """Notified when a worker should call extend or beat: a cancel request or another state."""
    return f"{TopicKind.WORKER}:{worker}"


def parse_topic(topic: str) -> tuple[str, str]:
    """The kind of a topic (`TopicKind`, or one that this version does not know), and its queue or worker."""
    kind, _, about = topic.partition(":")
    return kind, about
