"""Blobs in S3, against a real HTTP server."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from blob_support import BUCKET, S3Place

from dibs.blobs import open_blobs
from dibs.errors import BlobStoreUnavailable


def test_objects_are_named_by_prefix_and_key(s3: S3Place) -> None:
    s3.store.put("day/task/args", b"x")
    (found,) = s3.client.list_objects_v2(Bucket=BUCKET)["Contents"]
    assert found["Key"] == "apps/one/day/task/args"


def test_two_prefixes_of_a_bucket_don_t_see_each_other(s3: S3Place) -> None:
    other = open_blobs(s3.url.replace("apps/one", "apps/two"))
    whole = open_blobs(s3.url.replace("/apps/one", ""))
    s3.store.put("a", b"one")
    other.put("a", b"two")
    assert [info.key for info in s3.store.list()] == ["a"]
    assert [info.key for info in whole.list()] == ["apps/one/a", "apps/two/a"]
    assert (s3.store.get("a"), whole.get("apps/two/a")) == (b"one", b"two")


def test_more_than_one_request_can_list(s3: S3Place) -> None:
    for number in range(12):
        s3.store.put(f"{number:02}", b"x")
    assert [info.key for info in s3.store.list("04", 3)] == ["05", "06", "07"]


def test_a_bucket_that_is_not_there_is_no_lost_blob(s3: S3Place) -> None:
    missing = open_blobs(s3.url.replace(BUCKET, "nowhere-to-be-found"))
    with pytest.raises(
        BlobStoreUnavailable, match=r"can't read blobs in s3://nowhere-to-be-found/apps/one: .*NoSuchBucket"
    ):
        missing.get("a")
    with pytest.raises(BlobStoreUnavailable):
        missing.check()
    with pytest.raises(BlobStoreUnavailable):
        missing.list()


def test_a_bare_404_is_no_lost_blob(s3: S3Place) -> None:
    class NotFound(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *words: object) -> None:
            """Quietly."""

    with HTTPServer(("127.0.0.1", 0), NotFound) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        elsewhere = open_blobs(f"s3://{BUCKET}?endpoint=http://127.0.0.1:{server.server_port}&region=us-east-1")
        with pytest.raises(BlobStoreUnavailable, match="404"):
            elsewhere.get("a")
        server.shutdown()
        thread.join()


def test_missing_credentials_are_told(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(BlobStoreUnavailable, match="credentials"):
        open_blobs(s3.url).put("a", b"x")


def test_a_forked_child_makes_connections_of_its_own(s3: S3Place) -> None:
    s3.store.put("a", b"x")
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if s3.store.get("a") == b"x" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert s3.store.get("a") == b"x"


def test_it_says_what_it_is(s3: S3Place) -> None:
    assert s3.store.check() == "s3://dibs-tests/apps/one, readable and writable"
