"""What a blob store is."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dibs.core.options import check_items, check_number, check_text, shown
from dibs.core.times import Instant
from dibs.errors import BlobStoreUnavailable, InvalidOption

__all__ = [
    "LONGEST_KEY",
    "BlobInfo",
    "BlobStore",
    "Blobs",
    "check_blob",
    "check_key",
    "check_keys",
    "check_page",
    "probe",
]

LONGEST_KEY = 500
MOST_AT_ONCE = 1000


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
        """Keep `data`, also if the key is there already: its `modified_at` is then now."""
        ...

    def get(self, key: str) -> bytes:
        """All of it, or `BlobLost`."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete up to 1,000; what is not there is no error."""
        ...

    def list(self, after: str = "", limit: int = 1000) -> Blobs:
        """Up to `limit` (at most 1,000) blobs in the order of their keys, from behind `after` on."""
        ...

    def check(self) -> str:
        """Try whether it can be used, and say in a few words what it is."""
        ...


def check_key(key: object) -> str:
    """What a blob can be called."""
    return check_text(key, "the key of a blob", LONGEST_KEY, 1)


def check_blob(key: object, data: object) -> bytes:
    """The bytes to keep. A number would be taken for that many zeros."""
    check_key(key)
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidOption(f"a blob is made of bytes, not of {shown(data)}.")
    return bytes(data)


def check_keys(keys: object) -> list[str]:
    """What to delete at once."""
    found = check_items(keys, "delete()", str, "keys")
    if len(found) > MOST_AT_ONCE:
        raise InvalidOption(f"delete() takes at most {MOST_AT_ONCE:,} keys at once, not {len(found):,}.")
    return found


def check_page(after: object, limit: object) -> tuple[str, int]:
    """Which part of a listing."""
    return check_text(after, "after", LONGEST_KEY), check_number(limit, "limit", 1, MOST_AT_ONCE)


def probe(store: BlobStore) -> None:
    """Write, read and delete a blob that nobody else knows."""
    key, data = f"check/{secrets.token_hex(16)}", secrets.token_bytes(64)
    store.put(key, data)
    try:
        if store.get(key) != data:
            raise BlobStoreUnavailable(f"{store} gives back something else than was written.")
    finally:
        store.delete([key])
