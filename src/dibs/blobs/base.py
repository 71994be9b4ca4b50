"""What a blob store is."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dibs.core.options import check_items, check_number, check_text, shown
from dibs.core.times import Instant
from dibs.errors import BlobStoreUnavailable, InvalidOption

LONGEST_KEY = 500
MOST_AT_ONCE = 1000
"""Blobs that one call lists or deletes."""


class BlobInfo(Struct, frozen=True):
    """One blob in a listing."""

    key: str
    modified_at: Instant
    size: int


Blobs = list[BlobInfo]


@runtime_checkable
class BlobStore(Protocol):
    """Bytes under keys. `str()` of it names it in messages, without secrets."""

    def put(self, key: str, data: bytes) -> None:
        """Keep `data`; if the key exists, set its `modified_at` to now."""
        ...

    def get(self, key: str) -> bytes:
        """The whole blob; raises `BlobLost` if there is none."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete up to 1,000; a missing blob is no error."""
        ...

    def list(self, after: str = "", limit: int = 1000) -> Blobs:
        """Up to `limit` (at most 1,000) blobs in the order of their keys, those after `after`."""
        ...

    def check(self) -> str:
        """Try whether it can be used, and describe it in a few words."""
        ...


def check_key(key: object) -> str:
    """The key of a blob."""
    return check_text(key, "the key of a blob", LONGEST_KEY, 1)


def check_blob(key: object, data: object) -> bytes:
    """The bytes to keep. `bytes()` would turn a number into that many zeros."""
    check_key(key)
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidOption(f"a blob is made of bytes, not of {shown(data)}.")
    return bytes(data)


def check_keys(keys: object) -> list[str]:
    """The keys of one `delete`."""
    found = check_items(keys, "delete()", str, "keys")
    if len(found) > MOST_AT_ONCE:
        raise InvalidOption(f"delete() takes at most {MOST_AT_ONCE:,} keys at once, not {len(found):,}.")
    return found


def check_page(after: object, limit: object) -> tuple[str, int]:
    """Which part of a listing."""
    return check_text(after, "after", LONGEST_KEY), check_number(limit, "limit", 1, MOST_AT_ONCE)


def probe(store: BlobStore) -> None:
    """Write, read and delete a blob under a random key."""
    key, data = f"check/{secrets.token_hex(16)}", secrets.token_bytes(64)
    store.put(key, data)
    try:
        if store.get(key) != data:
            raise BlobStoreUnavailable(f"{store} does not return what was written.")
    finally:
        store.delete([key])
