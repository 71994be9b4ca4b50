"""From a URL to a blob store."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from dibs.blobs.base import BlobStore
from dibs.core.options import check_text, nearest, shown, split_url, unknown_option
from dibs.errors import InvalidOption

__all__ = ["open_blobs"]

SCHEMES = ("file", "s3", "memory")
LONGEST_PATH = 1000
S3_OPTIONS = ("endpoint", "region")


def open_blobs(url: str) -> BlobStore:
    """The blob store that a URL, or the path of a directory, names. Nothing is created or connected yet."""
    check_text(url, "blobs", LONGEST_PATH)
    if "://" not in url:
        return directory(url, url)
    scheme = split_url(url).scheme
    if scheme == "file":
        return directory(path_in(url), url)
    if scheme == "s3":
        return s3(url)
    if scheme == "memory":
        from dibs.blobs.memory import MemoryBlobs

        return MemoryBlobs()
    raise InvalidOption(
        f"no blob store knows the URL scheme {shown(scheme)}.{nearest(scheme, SCHEMES)} Known: {', '.join(SCHEMES)}."
    )


def path_in(url: str) -> str:
    parts = split_url(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise InvalidOption(
            f"{shown(url)} does not name a directory. Use file:///var/lib/blobs (three slashes), or just a path."
        )
    return unquote(parts.path)


def directory(path: str, url: str) -> BlobStore:
    from dibs.blobs.directory import DirectoryBlobs

    if path in ("", "/"):
        raise InvalidOption(
            f"{shown(url)} does not name a directory for blobs. Use file:///var/lib/blobs, or just a path."
        )
    return DirectoryBlobs(Path(path).expanduser())


def s3(url: str) -> BlobStore:
    parts = split_url(url)
    if not parts.netloc or parts.fragment:
        raise InvalidOption(f"{shown(url)} does not name an S3 bucket. Use s3://bucket/prefix.")
    if "@" in parts.netloc or ":" in parts.netloc:
        raise InvalidOption(
            "the URL of an S3 blob store holds neither credentials nor a port: credentials come from where boto3 looks "
            "for them (AWS_ACCESS_KEY_ID, ~/.aws, a role), and another server is named by ?endpoint=https://host:port."
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in S3_OPTIONS:
            raise unknown_option(name, S3_OPTIONS, "an s3 URL")
    endpoint = options.get("endpoint")
    if endpoint is not None and split_url(endpoint).scheme not in ("http", "https"):
        raise InvalidOption(f"endpoint must be a URL such as https://storage.example.org:9000, not {shown(endpoint)}.")
    if find_spec("boto3") is None:
        raise InvalidOption("blobs in S3 need boto3, which is not installed: pip install 'dibs[s3]'.")
    from dibs.blobs.s3 import S3Blobs

    return S3Blobs(parts.netloc, unquote(parts.path).strip("/"), endpoint=endpoint, region=options.get("region"))
