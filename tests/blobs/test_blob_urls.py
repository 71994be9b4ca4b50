"""From what an app is given to a blob store, or to the error that says what was wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dibs import Dibs
from dibs.blobs import open_blobs
from dibs.errors import InvalidOption


def test_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(open_blobs("file:///var/lib/my%20blobs")) == "file:///var/lib/my%20blobs"
    assert str(open_blobs("/var/lib/blobs")) == "file:///var/lib/blobs"
    assert str(open_blobs("blobs")) == f"{tmp_path.as_uri()}/blobs"
    assert str(open_blobs("~/blobs")) == "file:///home/ada/blobs"


def test_buckets() -> None:
    assert str(open_blobs("s3://bucket/some/prefix/?region=eu-west-1")) == "s3://bucket/some/prefix"
    assert str(open_blobs("s3://bucket?endpoint=https://minio.example.org:9000")) == "s3://bucket"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "does not name a directory"),
        ("file://", "does not name a directory"),
        ("file:///", "does not name a directory"),
        ("file://host/blobs", "three slashes"),
        ("file:///blobs?mode=600", "three slashes"),
        ("s3:///prefix", "does not name an S3 bucket"),
        ("s3://key:secret@bucket/prefix", "neither credentials nor a port"),
        ("s3://bucket/?regio=eu", "an s3 URL has no option 'regio'. Did you mean 'region'?"),
        ("s3://bucket/?endpoint=minio:9000", "endpoint must be a URL such as https://"),
        ("fil:///blobs", "no blob store knows the URL scheme 'fil'. Did you mean 'file'? Known: file, s3, memory."),
    ],
)
def test_urls_that_name_nothing(url: str, words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        open_blobs(url)
    assert words in str(caught.value)


def test_s3_without_boto3_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InvalidOption, match=r"pip install 'dibs\[s3\]'"):
        open_blobs("s3://bucket")


def test_an_app_takes_a_url_a_path_or_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_blobs("memory://")
    expected = (tmp_path / "blobs").as_uri()
    for given, name in ((expected, expected), (tmp_path / "blobs", expected), (store, "memory://")):
        assert str(Dibs("memory://", blobs=given).hub.payloads.blobs) == name  # type: ignore[arg-type]
    assert Dibs("memory://").hub.payloads.blobs is None
    monkeypatch.setenv("DIBS_BLOBS", expected)
    assert str(Dibs("memory://").hub.payloads.blobs) == expected
    assert Dibs("memory://", blobs=store).hub.payloads.blobs is store


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"blobs": 5},
            "blobs must be a URL (file:///var/lib/blobs, s3://bucket/prefix), a path or a BlobStore, not 5.",
        ),
        ({"blobs": ""}, "does not name a directory"),
        ({"inline_limit": 1023}, "inline_limit must be a whole number from 1,024 to 262,144, not 1023."),
        ({"inline_limit": 262_145}, "inline_limit must be a whole number from 1,024 to 262,144"),
        ({"inline_limit": "1 MB"}, "inline_limit must be a whole number"),
    ],
)
def test_what_an_app_refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        Dibs("memory://", **options)
    assert words in str(caught.value)
