"""Arguments and results: a task receives what it declares, and what can't be carried is refused with a clear error."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.core.codec import Codec, Signature, fingerprint
from dibs.errors import InvalidArguments, InvalidOption, WrongResult

CODEC = Codec()


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass
class Address:
    street: str
    lines: list[str] = field(default_factory=list)


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Customer(pydantic.BaseModel):
    name: str
    since: datetime
    address: Address | None = None


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
IDENTIFIER = UUID("0190163d-8694-739b-aea5-966c26f8ad91")


def signature(function: Any, takes_context: bool = False) -> Signature:
    return Signature(function, function.__name__, takes_context)


def carried(function: Any, *args: Any, codec: Codec = CODEC, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """What the function receives after its arguments went through the store."""
    its = signature(function)
    return its.decode(codec.unwrap(its.encode(its.bind(args, kwargs), codec)))


def by_annotation(annotation: Any, value: Any) -> Any:
    def task(value: Any) -> None: ...

    task.__annotations__["value"] = annotation
    return carried(task, value)[1]["value"]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 2**60),
        (float, 1.5),
        (str, "ünïcode …"),
        (bool, True),
        (bytes, b"\x00\xff"),
        (None, None),
        (datetime, NOON),
        (date, date(2026, 1, 2)),
        (timedelta, timedelta(seconds=90)),
        (UUID, IDENTIFIER),
        (Decimal, Decimal("10.10")),
        (Colour, Colour.BLUE),
        (Size, Size.LARGE),
        (Address, Address("Main", ["a"])),
        (Point, Point(1, 2)),
        (Customer, Customer(name="Ada", since=NOON, address=Address("Main"))),
        (list[datetime], [NOON, NOON]),
        (dict[str, Point], {"a": Point(1)}),
        (dict[int, str], {1: "one"}),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (int | None, None),
        (int | None, 5),
        (int | str, "five"),
        (list[Customer], [Customer(name="Ada", since=NOON)]),
        (Customer | None, None),
        (Any, {"a": [1, None, "x"]}),
    ],
)
def test_a_task_receives_what_it_declares(annotation: Any, value: Any) -> None:
    received = by_annotation(annotation, value)
    assert received == value
    assert type(received) is type(value)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_plain_values_survive(value: Any) -> None:
    assert CODEC.decode(CODEC.encode(value, "the result")) == value


def test_parameters_of_every_kind() -> None:
    def task(first: int, second: int = 2, /, third: int = 3, *, fourth: int, fifth: int = 5) -> None: ...

    assert carried(task, 1, fourth=4) == ([1], {"fourth": 4})
    assert carried(task, 1, 7, 8, fourth=4, fifth=9) == ([1, 7], {"third": 8, "fourth": 4, "fifth": 9})
    args, kwargs = carried(task, 1, third=Decimal(3) == 3 and 3, fourth=4)
    task(*args, **kwargs)


def test_positional_only_parameters_have_no_name_for_callers() -> None:
    def task(first: int = 1, second: int = 2, /) -> None: ...

    with pytest.raises(InvalidArguments, match="by position only"):
        signature(task).bind((), {"second": 3})


def test_defaults_are_the_functions_own_affair() -> None:
    def task(a: int, b: Address = Address("x"), c: Customer | None = None, d: Any = None) -> None: ...  # noqa: B008

    assert carried(task, 1) == ([], {"a": 1})
    assert carried(task, 1, c=None, d=None) == ([], {"a": 1, "c": None, "d": None})


def test_context_is_no_argument() -> None:
    def task(ctx: object, a: int) -> None: ...

    assert signature(task, takes_context=True).bind((1,), {}) == {"a": 1}


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "needs an argument 'a'"),
        ((1, 2, 3), {}, r"takes 2 positional argument\(s\), and 3 were given"),
        ((1,), {"c": 3}, r"no parameter 'c'.*\.using"),
        ((1,), {"a": 3}, "got 'a' twice"),
        ((1,), {"priority": 3}, r"no parameter 'priority'.*\.using"),
    ],
)
def test_calls_that_do_not_fit(args: tuple[int, ...], kwargs: dict[str, int], message: str) -> None:
    def task(a: int, b: int = 2) -> None: ...

    with pytest.raises(InvalidArguments, match=message):
        signature(task).bind(args, kwargs)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "5"), (int, True), (datetime, "yesterday"), (Colour, "green"), (Point, {"x": "a"}), (Customer, {"name": 1})],
)
def test_values_of_the_wrong_type_are_refused_at_enqueue(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidArguments, match="don't fit its signature"):
        by_annotation(annotation, value)


def test_stored_arguments_that_no_longer_fit() -> None:
    def task(a: int) -> None: ...

    for payload in (b'{"a":"x"}', b'{"a":1,"b":2}', b"{}", b"[]", b"not json"):
        with pytest.raises(InvalidArguments, match="task"):
            signature(task).decode(payload)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        lambda: 1,
        complex(1, 2),
        {(1, 2): 3},
        {None: 1},
        "\ud800",
        float("nan"),
        float("inf"),
        -float("inf"),
        [1, {"deep": [None, float("nan")]}],
        Point(x=float("nan")),  # type: ignore[arg-type]
        Address("a", [float("inf")]),  # type: ignore[list-item]
    ],
)
def test_what_json_can_not_carry_is_refused(value: Any) -> None:
    def task(value: Any) -> None: ...

    with pytest.raises(InvalidArguments, match="can't be carried as JSON"):
        carried(task, value)
    with pytest.raises(InvalidArguments, match="the result can't be carried as JSON"):
        CODEC.encode(value, "the result")


def test_values_without_end_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidArguments, match="can't be carried"):
        CODEC.encode(endless, "the result")


def test_null_is_not_mistaken_for_nan() -> None:
    assert CODEC.encode([None, "null", 1.5], "the result") == b'[null,"null",1.5]'


def test_signatures_that_can_not_be_stored() -> None:
    def many(*numbers: int) -> None: ...
    def named(**numbers: int) -> None: ...

    for function in (many, named):
        with pytest.raises(InvalidOption, match="stored by name"):
            signature(function)


def test_annotations_that_can_not_be_read() -> None:
    class Strange:
        pass

    def strange(value: Strange) -> None: ...

    strange.__annotations__["value"] = Strange
    with pytest.raises((InvalidArguments, InvalidOption), match="strange"):
        carried(strange, {"a": 1})

    def missing(value: Any) -> None: ...

    missing.__annotations__["value"] = "NowhereDefined"
    with pytest.raises(InvalidOption, match="can't be resolved"):
        carried(missing, 1)


def test_results_by_the_return_annotation() -> None:
    def task() -> list[Point]: ...  # type: ignore[empty-body]

    its = signature(task)
    assert its.decode_result(CODEC.encode([Point(1)], "the result"), CODEC, "id") == [Point(1)]
    assert its.decode_result(None, CODEC, "id") is None


def test_results_are_checked_where_an_annotation_says_what_they_are() -> None:
    def number() -> int: ...  # type: ignore[empty-body]

    def perhaps() -> int | None: ...

    def nothing() -> None: ...

    def anything(): ...  # type: ignore[no-untyped-def]

    def unknown() -> NotThere: ...  # type: ignore[name-defined]  # noqa: F821

    def uncarried() -> Callable[[], None]: ...  # type: ignore[empty-body]

    def encoded(function: Callable[..., Any], value: object) -> bytes | None:
        return signature(function).encode_result(value, CODEC, "the id")

    assert [encoded(number, 3), encoded(perhaps, None), encoded(nothing, None), encoded(anything, None)] == [
        b"3",
        None,
        None,
        None,
    ]
    assert [encoded(each, "x") for each in (nothing, anything, unknown, uncarried)] == [b'"x"'] * 4
    for function, value in ((number, "x"), (number, None), (number, True), (perhaps, 0.5)):
        with pytest.raises(WrongResult, match="is not of the type that it declares") as caught:
            encoded(function, value)
        assert caught.value.task_id == "the id"


# Payload codecs.


class Compressed:
    """The example of a payload codec: zlib around the JSON."""

    name = "zlib"

    def encode(self, payload: bytes) -> bytes:
        return zlib.compress(payload)

    def decode(self, payload: bytes) -> bytes:
        return zlib.decompress(payload)


def test_a_payload_codec_wraps_and_unwraps() -> None:
    def task(text: str) -> None: ...

    compressing = Codec(Compressed())
    its = signature(task)
    payload = its.encode({"text": "x" * 100_000}, compressing)
    assert len(payload) < 1_000
    assert msgspec.json.decode(payload)["$dibs"] == "zlib", "the envelope is JSON and names its codec"
    assert its.decode(compressing.unwrap(payload)) == ([], {"text": "x" * 100_000})


def test_plain_payloads_stay_readable_while_a_codec_is_rolled_out() -> None:
    plain, compressing = Codec(), Codec(Compressed())
    assert compressing.decode(plain.encode([1], "it")) == [1]
    assert Codec(also_reads=[Compressed()]).decode(compressing.encode([1], "it")) == [1]


def test_an_unknown_codec_is_named() -> None:
    payload = Codec(Compressed()).encode([1], "it")
    with pytest.raises(InvalidArguments, match=r"'zlib'.*also_reads"):
        Codec().decode(payload)


def test_values_that_look_like_an_envelope_are_told_apart() -> None:
    value = {"$dibs": "zlib", "data": "AAAA"}
    for codec in (Codec(), Codec(Compressed())):
        assert codec.decode(codec.encode(value, "it")) == value


@pytest.mark.parametrize("name", ["plain", "blob"])
def test_names_that_envelopes_use_themselves_are_taken(name: str) -> None:
    class Named(Compressed):
        pass

    Named.name = name
    for make in (lambda: Codec(Named()), lambda: Codec(also_reads=[Named()])):
        with pytest.raises(InvalidOption, match=f"can't be called '{name}'"):
            make()


# Fingerprints.


def test_equal_calls_have_equal_fingerprints() -> None:
    def task(a: int, b: Any = None, c: int = 3) -> None: ...

    its = signature(task)
    same = [((1,), {}), ((), {"a": 1}), ((1, None, 3), {}), ((1,), {"c": 3, "b": None})]
    assert len({its.fingerprint(its.bind(args, kwargs)) for args, kwargs in same}) == 1
    others = [((2,), {}), ((1, 2), {}), ((1,), {"c": 4})]
    assert len({its.fingerprint(its.bind(args, kwargs)) for args, kwargs in [*same[:1], *others]}) == 4


def test_fingerprints_know_the_name_and_not_the_order_of_keys() -> None:
    assert fingerprint("a", {"x": 1}) != fingerprint("b", {"x": 1})
    assert fingerprint("a", {"x": {"p": 1, "q": 2}}) == fingerprint("a", {"x": {"q": 2, "p": 1}})


def test_a_default_that_json_can_not_carry() -> None:
    def task(a: int, b: Any = object()) -> None: ...  # noqa: B008

    its = signature(task)
    assert carried(task, 1) == ([], {"a": 1})
    with pytest.raises(InvalidArguments, match="default"):
        its.fingerprint(its.bind((1,), {}))
