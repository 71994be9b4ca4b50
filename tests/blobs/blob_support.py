"""What the tests of blob stores share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3

from dibs import Dibs
from dibs.blobs import BlobStore, open_blobs
from dibs.worker.maintenance.blob_sweeper import MARK

PATIENCE = 20.0
"""Seconds after which something that should happen has not."""

BUCKET = "dibs-tests"


class DirectoryPlace:
    """A blob store in a directory, and the ways to spoil it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = root.as_uri()
        self.store = open_blobs(self.url)

    def unreachable(self) -> BlobStore:
        self.root.parent.mkdir(parents=True)
        (self.root.parent / "file").write_text("in the way")
        return open_blobs(str(self.root.parent / "file" / "blobs"))

    def overwrite(self, key: str, data: bytes) -> None:
        (self.root / key).write_bytes(data)

    def take_away(self) -> None:
        """As if it were unmounted."""
        self.root.rename(self.root.parent / "away")

    def bring_back(self) -> None:
        (self.root.parent / "away").rename(self.root)

    def listed(self) -> list[str]:
        """All but the mark of whom the store belongs to."""
        return [info.key for info in self.store.list() if info.key != MARK]

    def age(self, seconds: float) -> None:
        """Make all blobs older."""
        for key in self.listed():
            file = self.root / key
            then = file.stat().st_mtime - seconds
            os.utime(file, (then, then))


class S3Place:
    """A blob store in a bucket of a server that speaks S3."""

    def __init__(self, endpoint: str) -> None:
        self.client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        self.client.create_bucket(Bucket=BUCKET)
        self.prefix = "apps/one"
        self.url = f"s3://{BUCKET}/{self.prefix}?endpoint={endpoint}&region=us-east-1"
        self.store = open_blobs(self.url)

    def unreachable(self) -> BlobStore:
        return open_blobs(f"s3://{BUCKET}?endpoint=http://127.0.0.1:1&region=us-east-1")

    def overwrite(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}", Body=data)

    def empty(self) -> None:
        found = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        for each in found:
            self.client.delete_object(Bucket=BUCKET, Key=each["Key"])
        self.client.delete_bucket(Bucket=BUCKET)
        self.client.close()


class MemoryPlace:
    def __init__(self) -> None:
        self.store = open_blobs("memory://")

    def overwrite(self, key: str, data: bytes) -> None:
        self.store.put(key, data)


MakeApp = Callable[..., Dibs]

Place = DirectoryPlace | S3Place | MemoryPlace


def record_of(app: Dibs, task_id: str) -> Any:
    return app.hub.runner.run(app.hub.engine.get([task_id]))[0]


def eventually(holds: Callable[[], Any]) -> None:
    """Until something that another thread does has happened: looked at often, no longer than it takes."""
    pause = threading.Event()
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, "it did not happen"
        pause.wait(0.002)
