"""Where payloads are kept that are too large to be stored with their tasks: a directory, S3, or memory for tests.

`base` defines what a store must do, `directory`, `s3` and `memory` implement it, `open` finds the one that a URL names.
`runtime`, `worker` and `client` may import this package; it knows neither tasks nor engines. Invariants:

- A blob store keeps bytes under keys. It is blocking, and may be used from many threads and processes at once.
- `put` returns when the bytes are as durable as the store makes them; a reader sees all of them or none.
- Only a store that can be reached raises `BlobLost`; all other errors are `BlobStoreUnavailable`, worth another try.
"""

from dibs.blobs.base import BlobInfo, BlobStore
from dibs.blobs.open import open_blobs

__all__ = ["BlobInfo", "BlobStore", "open_blobs"]
