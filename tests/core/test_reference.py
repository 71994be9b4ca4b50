"""References to large payloads: what they say, and how a blob is known again."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from dibs.core.reference import (
    ARGUMENTS,
    encoder,
    intact,
    owner,
    reference_in,
    reference_to,
    result_of,
)
from dibs.errors import BlobCorrupt

ID = "0190163d-8694-739b-aea5-966c26f8ad91"


def test_a_reference_is_an_envelope_that_leads_back() -> None:
    reference = reference_to(b"[1, 2]", ID, ARGUMENTS)
    stored = encoder.encode(reference)
    assert msgspec.json.decode(stored) == {
        "$dibs": "blob",
        "key": reference.key,
        "size": 6,
        "sha256": hashlib.sha256(b"[1, 2]").hexdigest(),
    }
    assert stored.startswith(b'{"$dibs":"blob",')
    assert reference_in(stored) == reference
    assert intact(reference, b"[1, 2]") == b"[1, 2]"


@pytest.mark.parametrize("payload", [b"{}", b'{"a":1}', b'{"$dibs":"plain","data":""}', b"null", b""])
def test_other_payloads_are_no_references(payload: bytes) -> None:
    assert reference_in(payload) is None


def test_the_key_names_day_task_part_and_content() -> None:
    assert reference_to(b"x", ID, ARGUMENTS).key == f"2024-06-14/{ID}/args-2d711642b726b044"
    assert reference_to(b"x", ID, result_of(12)).key == f"2024-06-14/{ID}/result-12-2d711642b726b044"


def test_the_same_payload_has_the_same_key_and_no_other_has() -> None:
    keys = [
        reference_to(data, ID, part).key for data in (b"x", b"y") for part in (ARGUMENTS, result_of(1), result_of(2))
    ]
    assert len(set(keys)) == 6
    assert reference_to(b"x", ID, ARGUMENTS) == reference_to(b"x", ID, ARGUMENTS)


@pytest.mark.parametrize(
    "task_id",
    ["3f2504e0-4f89-41d3-9a0c-0305e82c3301", "ffffffff-ffff-7fff-bfff-ffffffffffff"],
    ids=["random", "a time that will never be"],
)
def test_ids_without_a_day(task_id: str) -> None:
    key = reference_to(b"x", task_id, ARGUMENTS).key
    assert key.startswith(f"undated/{task_id}/")
    assert owner(key) == task_id


def test_the_owner_of_a_blob() -> None:
    assert owner(reference_to(b"x", ID, result_of(3)).key) == ID
    for foreign in (
        "",
        "check/0190163d",
        f"2024-06-14/{ID}/args",
        f"2024-06-14/{ID}",
        f"x/2024-06-14/{ID}/args-2d711642b726b044",
    ):
        assert owner(foreign) is None


def test_what_was_changed_is_noticed() -> None:
    reference = reference_to(b"[1, 2]", ID, ARGUMENTS)
    with pytest.raises(BlobCorrupt, match=f"{reference.key} has 5 bytes, and 6 were written"):
        intact(reference, b"[1,2]")
    with pytest.raises(BlobCorrupt, match=f"{reference.key} has another content"):
        intact(reference, b"[1, 3]")
    with pytest.raises(BlobCorrupt, match="can't be read"):
        reference_in(b'{"$dibs":"blob","key":5}')
