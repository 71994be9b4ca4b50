"""What a blob store is."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dibs.core.times import Instant
from dibs.errors import BlobStoreUnavailable

__all__ = ["BlobInfo", "BlobStore", "Blobs", "probe"]


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


def probe(store: BlobStore) -> None:
    """Write, read and delete a blob that nobody else knows."""
    key, data = f"check/{secrets.token_hex(16)}", secrets.token_bytes(64)
    store.put(key, data)
    try:
        if store.get(key) != data:
            raise BlobStoreUnavailable(f"{store} gives back something else than was written.")
    finally:
        store.delete([key])
