"""References: what is stored with a task in place of a payload that is kept in a blob store.

A blob's key begins with the day and the id of its task, so that a listing shows which tasks to look for. It ends with a
hash of the content, so writers of the same key write the same bytes. A result's key contains the lease number, so a run
that lost its lease can't touch the result of a later one.
"""

from __future__ import annotations

import hashlib
import re

import msgspec
from msgspec import Struct

from dibs.core.times import LATEST, MS, when
from dibs.errors import BlobCorrupt

__all__ = ["ARGUMENTS", "BlobReference", "encoder", "intact", "owner", "reference_in", "reference_to", "result_of"]

PREFIX = b'{"$dibs":"blob",'
ARGUMENTS = "args"
KEY = re.compile(r"(?:\d{4}-\d\d-\d\d|undated)/([0-9a-f-]{36})/(?:args|result-\d+)-[0-9a-f]{16}")


class BlobReference(Struct, frozen=True, tag_field="$dibs", tag="blob"):
    """Where a payload is, and how to verify it."""

    key: str
    size: int
    sha256: str


encoder = msgspec.json.Encoder()
decoder = msgspec.json.Decoder(BlobReference)


def result_of(lease: int) -> str:
    """The part of a blob's key that stands for the result of one lease."""
    return f"result-{lease}"


def reference_to(payload: bytes, task_id: str, part: str) -> BlobReference:
    """The reference to a payload: always the same for the same payload."""
    digest = hashlib.sha256(payload).hexdigest()
    return BlobReference(f"{day_of_id(task_id)}/{task_id}/{part}-{digest[:16]}", len(payload), digest)


def reference_in(payload: bytes) -> BlobReference | None:
    """The reference that is stored in place of a payload; None if the payload itself is stored."""
    if not payload.startswith(PREFIX):
        return None
    try:
        return decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise BlobCorrupt(f"the reference to a large payload can't be read ({error}): {payload[:200]!r}.") from error


def intact(reference: BlobReference, data: bytes) -> bytes:
    """The payload, if it is what the reference was made for."""
    if len(data) != reference.size:
        raise BlobCorrupt(f"the blob {reference.key} has {len(data):,} bytes, and {reference.size:,} were written.")
    if hashlib.sha256(data).hexdigest() != reference.sha256:
        raise BlobCorrupt(f"the blob {reference.key} has another content than was written: its SHA-256 differs.")
    return data


def owner(key: str) -> str | None:
    """The id of the task that a blob belongs to; None for what is not ours."""
    found = KEY.fullmatch(key)
    return found[1] if found else None


def day_of_id(task_id: str) -> str:
    """The day on which an id was made, which a UUIDv7 contains; callers may choose other ids."""
    if task_id[14:15] != "7":
        return "undated"
    at = int(task_id[:8] + task_id[9:13], 16) * MS
    return f"{when(at):%Y-%m-%d}" if at <= LATEST else "undated"
