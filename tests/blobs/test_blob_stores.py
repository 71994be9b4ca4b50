"""What every blob store does, whatever it is made of."""

from __future__ import annotations

import threading
import time

import pytest
from blob_support import PATIENCE, DirectoryPlace, Place, S3Place

from dibs.blobs import BlobStore
from dibs.core.reference import ARGUMENTS, encoder, reference_to
from dibs.core.times import HOUR
from dibs.errors import BlobCorrupt, BlobLost, BlobStoreUnavailable
from dibs.runtime.payloads import Payloads

ID = "0190163d-8694-739b-aea5-966c26f8ad91"


@pytest.mark.parametrize(
    "data", [b"", b"x", bytes(range(256)) * 5000], ids=["nothing", "a byte", "more than a megabyte"]
)
def test_what_was_put_is_what_one_gets(place: Place, data: bytes) -> None:
    place.store.put("2026-01-02/one/args-1", data)
    assert place.store.get("2026-01-02/one/args-1") == data


def test_a_key_that_is_put_again_is_replaced_and_young(place: Place) -> None:
    place.store.put("a/b", b"old")
    place.store.put("a/b", b"newer")
    assert place.store.get("a/b") == b"newer"
    (info,) = place.store.list()
    assert (info.key, info.size) == ("a/b", 5)
    assert abs(info.modified_at - time.time_ns() // 1000) < HOUR


def test_what_is_not_there_is_lost(place: Place) -> None:
    place.store.put("a/b", b"there")
    for key in ("a/c", "b/b", "a", "a/b/c"):
        with pytest.raises(BlobLost, match=f"the blob {key} is not in"):
            place.store.get(key)


def test_deleting(place: Place) -> None:
    for key in ("a/b/c", "a/b/d", "a/e/f"):
        place.store.put(key, b"x")
    place.store.delete(["a/b/c", "a/e/f", "never/was"])
    assert [info.key for info in place.store.list()] == ["a/b/d"]
    place.store.delete(["a/b/c"])
    place.store.delete([])
    with pytest.raises(BlobLost):
        place.store.get("a/b/c")


def test_listing_is_in_the_order_of_keys_and_goes_on_from_anywhere(place: Place) -> None:
    assert place.store.list() == []
    keys = sorted(
        ["a/b", "a-b/c", "a.b/c", "a/b-c", "b", "2026-01-02/x/args-1", "2026-01-02/x-y/args", "2026-01-10/x/z"]
    )
    for key in reversed(keys):
        place.store.put(key, key.encode())
    assert [(info.key, info.size) for info in place.store.list()] == [(key, len(key)) for key in keys]
    for position, key in enumerate(keys):
        assert [info.key for info in place.store.list(key, 2)] == keys[position + 1 : position + 3]
    assert [info.key for info in place.store.list("2026-01-02/x-z", 1)] == ["2026-01-02/x/args-1"], "a key that is gone"
    assert place.store.list("c") == []


def test_pages_add_up(place: Place) -> None:
    keys = [f"2026-01-0{number % 9 + 1}/{number:03}/args" for number in range(50)]
    for key in keys:
        place.store.put(key, b"x")
    found: list[str] = []
    while page := place.store.list(found[-1] if found else "", 7):
        assert len(page) <= 7
        found += [info.key for info in page]
    assert found == sorted(keys)


def test_what_was_tampered_with_is_noticed(place: Place) -> None:
    payloads = Payloads(place.store, 1024)
    stored = payloads.stored(b"1" * 2000, ID, ARGUMENTS, "it")
    assert payloads.fetched(stored) == b"1" * 2000
    key = reference_to(b"1" * 2000, ID, ARGUMENTS).key
    for other, words in ((b"2" * 2000, "another content"), (b"1" * 1999, "has 1,999 bytes, and 2,000 were written")):
        place.overwrite(key, other)
        with pytest.raises(BlobCorrupt, match=words):
            payloads.fetched(stored)
    place.store.delete([key])
    with pytest.raises(BlobLost, match=key):
        payloads.fetched(stored)


def test_check_leaves_nothing_behind(place: Place) -> None:
    assert place.store.check()
    assert place.store.list() == []


def test_many_threads_at_once(place: Place) -> None:
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def use(number: int) -> None:
        try:
            start.wait(PATIENCE)
            for turn in range(5):
                place.store.put(f"day/{turn}/{number}", f"{turn} {number}".encode())
                assert place.store.get(f"day/{turn}/{number}") == f"{turn} {number}".encode()
                place.store.delete([f"day/{turn}/{number}"])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    assert place.store.list() == []


@pytest.fixture(params=["directory", "s3"])
def unreachable(request: pytest.FixtureRequest) -> BlobStore:
    place: DirectoryPlace | S3Place = request.getfixturevalue(request.param)
    return place.unreachable()


def test_a_store_that_can_not_be_reached_says_so_at_every_verb(unreachable: BlobStore) -> None:
    for verb in (
        lambda: unreachable.put("a/b", b"x"),
        lambda: unreachable.get("a/b"),
        unreachable.check,
    ):
        with pytest.raises(BlobStoreUnavailable):
            verb()


def test_a_reference_needs_a_store(place: Place) -> None:
    stored = encoder.encode(reference_to(b"x", ID, ARGUMENTS))
    with pytest.raises(BlobStoreUnavailable, match=r"no blob store.*DIBS_BLOBS"):
        Payloads().fetched(stored)
