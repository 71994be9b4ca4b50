"""Blobs in a bucket of S3, or of another server with its protocol."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dibs.blobs.base import BlobInfo, Blobs, check_blob, check_key, check_keys, check_page, probe
from dibs.core.options import brief
from dibs.core.times import instant
from dibs.errors import BlobLost, BlobStoreUnavailable

__all__ = ["S3Blobs"]

CONNECT_TIMEOUT = 3.0
READ_TIMEOUT = 10.0
"""Seconds without a byte, not for a whole answer."""
TRIES = 2
CONNECTIONS = 32
MISSING = "NoSuchKey"
"""The one answer that means that a blob is gone. A bare 404 may come from any server at a wrong address."""


class S3Blobs:
    """`prefix/key` is the object's name. Credentials come from where boto3 looks for them."""

    def __init__(self, bucket: str, prefix: str, *, endpoint: str | None = None, region: str | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint = endpoint
        self._region = region
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._made: Any = None

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def _client(self) -> Any:
        """Made at first use, as that takes a while, and again in a forked child, which must not share connections."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if self._made is None:
                self._made = make_client(self._endpoint, self._region)
            return self._made

    def put(self, key: str, data: bytes) -> None:
        kept = check_blob(key, data)
        with self._errors("write"):
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=kept)

    def get(self, key: str) -> bytes:
        from botocore.exceptions import ClientError

        check_key(key)
        with self._errors("read"):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)
            except ClientError as error:
                if error.response["Error"]["Code"] == MISSING:
                    raise BlobLost(f"the blob {brief(key, 200)} is not in {self}.") from error
                raise
            with answer["Body"] as body:
                data: bytes = body.read()
            return data

    def delete(self, keys: Sequence[str]) -> None:
        wanted = check_keys(keys)
        if not wanted:
            return
        named = [{"Key": self._prefix + key} for key in wanted]
        with self._errors("delete"):
            answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": named, "Quiet": True})
        if failed := answer.get("Errors"):
            first = f"{failed[0].get('Code')}: {failed[0].get('Message')}"
            raise BlobStoreUnavailable(f"{len(failed)} blobs could not be deleted from {self} ({first}).")

    def list(self, after: str = "", limit: int = 1000) -> Blobs:
        check_page(after, limit)
        with self._errors("list"):
            start = {"StartAfter": self._prefix + after} if after else {}
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=limit, **start)
        return [self._info(found) for found in answer.get("Contents", [])]

    def _info(self, found: dict[str, Any]) -> BlobInfo:
        modified_at = instant(found["LastModified"], "LastModified")
        return BlobInfo(found["Key"].removeprefix(self._prefix), modified_at, found["Size"])

    def check(self) -> str:
        probe(self)
        self.list(limit=1)
        return f"{self}, readable and writable"

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError, OSError) as error:
            raise BlobStoreUnavailable(f"can't {doing} blobs in {self}: {error_text(error)}") from error


def error_text(error: Exception) -> str:
    """The error's message, as the end of a sentence."""
    return f"{str(error).strip().rstrip('.') or type(error).__name__}."


def make_client(endpoint: str | None, region: str | None) -> Any:
    """A client that gives up within seconds: its caller holds a lease, or a user waits for it."""
    from boto3.session import Session
    from botocore.config import Config

    settings: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT,
        "read_timeout": READ_TIMEOUT,
        "retries": {"total_max_attempts": TRIES, "mode": "standard"},
        "max_pool_connections": CONNECTIONS,
    }
    if endpoint is not None:
        settings["s3"] = {"addressing_style": "path"}
    # Every payload is checked by its SHA-256, and some servers don't know the checksums that newer versions add.
    for name in ("request_checksum_calculation", "response_checksum_validation"):
        if name in Config.OPTION_DEFAULTS:
            settings[name] = "when_required"
    # A session of our own: the default one must not be used from several threads.
    return Session().client("s3", endpoint_url=endpoint, region_name=region, config=Config(**settings))
