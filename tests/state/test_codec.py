"""Plain data survives the codec; anything else is refused."""

from __future__ import annotations

import contextlib
import math
import re
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CheckpointDamaged, NotPlainData
from headrace.expr.code_runtime import NAN
from headrace.state.codec import (
    Erasable,
    Exact,
    decode,
    decode_each,
    key_encoder,
    value_encoder,
    without_erasable,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.just(NAN)
    | st.text(st.characters())
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.dates()
    | st.datetimes(timezones=st.just(UTC))
)
keys = scalars | st.tuples(scalars, scalars)
values = st.recursive(
    scalars | st.frozensets(keys, max_size=4),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_what_is_encoded_comes_back(value: object) -> None:
    # In a tuple, where the one NAN is equal to itself.
    assert (decode(value_encoder()(value)),) == (value,)


@given(values, values, st.lists(values, max_size=3))
def test_erasure_takes_the_values_that_may_be_erased(
    value: object, other: object, more: list[object]
) -> None:
    encode = value_encoder()
    data = encode((value, (Erasable(other), *more)))
    assert decode(data) == (value, (Erasable(other), *more))
    assert decode(without_erasable(data)) == (value, (Erasable(None), *more))
    assert without_erasable(encode(value)) == encode(value)


@given(st.lists(values, max_size=6))
def test_many_at_once_come_back_as_one_by_one(values: list[object]) -> None:
    pieces = [value_encoder()(value) for value in values]
    assert decode_each(pieces) == [decode(piece) for piece in pieces]


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x92\x01", b"\x01\x02"])
def test_one_of_many_that_is_damaged_is_refused(at: int, damage: bytes) -> None:
    pieces = [value_encoder()((n, "text")) for n in range(3)]
    pieces[at] = damage
    with pytest.raises(CheckpointDamaged):
        decode_each(pieces)


@given(keys)
def test_keys_come_back(key: object) -> None:
    assert (decode(key_encoder()(key)),) == (key,)


def test_lists_come_back_as_tuples_and_other_zones_in_utc() -> None:
    noon = datetime(2001, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    back = decode(value_encoder()([1, [2, noon]]))
    assert back == (1, (2, datetime(2001, 1, 1, 10, tzinfo=UTC)))
    assert back[1][1].tzinfo is UTC


@pytest.mark.parametrize("nan", [NAN, -NAN, math.inf - math.inf])
def test_every_nan_comes_back_as_the_one_object(nan: float) -> None:
    back = decode(value_encoder()((1.5, {"a": (nan,)}, {(nan, 1): 2})))
    assert back[1]["a"][0] is NAN
    assert back[2] == {(NAN, 1): 2}


def test_a_string_that_looks_like_nan_stays_a_string() -> None:
    text = b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"
    assert decode(value_encoder()((text, 0.5))) == (text, 0.5)


@pytest.mark.parametrize(
    "pair", [("1.0", "1.00"), ("0", "-0.0"), ("1E+2", "100"), ("9" * 38 + ".0", "9" * 38)]
)
def test_equal_decimals_are_one_key_but_keep_their_scale_as_values(pair: tuple[str, str]) -> None:
    one, other = map(Decimal, pair)
    assert key_encoder()((one, 1)) == key_encoder()((other, 1))
    assert str(decode(value_encoder()(other))) == str(other)


@given(st.frozensets(st.frozensets(keys, max_size=3), max_size=3))
def test_a_set_has_one_form_whatever_its_order(members: frozenset[object]) -> None:
    again = frozenset(sorted(members, key=repr, reverse=True))
    assert key_encoder()(members) == key_encoder()(again)
    assert decode(key_encoder()(members)) == members


def test_a_set_that_is_cut_off_is_refused() -> None:
    whole = msgpack.packb("abc")
    with pytest.raises(CheckpointDamaged):
        decode(msgpack.packb(msgpack.ExtType(5, whole[:-1])))


@given(st.binary(max_size=60))
def test_hostile_bytes_decode_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(CheckpointDamaged):
        decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xffabc",
        b"\x91" * 5000,
        b"\x01\x02",
        b"\x81\x80\x01",
        msgpack.packb(msgpack.ExtType(9, b"x")),
        msgpack.packb(msgpack.ExtType(10, b"x")),
        msgpack.packb(msgpack.ExtType(2, b"1e9999999999x")),
        msgpack.packb(msgpack.ExtType(3, b"\xff\xff\xff\xff")),
        msgpack.packb(msgpack.ExtType(4, b"\x7f" * 8)),
        msgpack.packb(msgpack.ExtType(7, b"\x7f" * 8)),
    ],
)
def test_bytes_not_made_here_are_refused(data: bytes) -> None:
    with pytest.raises(CheckpointDamaged):
        decode(data)


@pytest.mark.parametrize("value", [datetime(2001, 1, 1), datetime.min, datetime.max])
def test_times_without_a_zone_come_back_as_they_are(value: datetime) -> None:
    assert decode(value_encoder()((value,))) == (value,)


_SPANS = [timedelta(microseconds=n) for n in (0, -1, 2**63 - 1, -(2**63), 2**63)]
_SPANS += [timedelta.min, timedelta.max]


@pytest.mark.parametrize("value", _SPANS)
def test_spans_of_time_come_back_as_they_are(value: timedelta) -> None:
    assert decode(value_encoder()((value, Exact(value)))) == (value, Exact(value))
    assert decode(key_encoder()(frozenset({value}))) == {value}


class Longer(timedelta):
    """A span with more to it, as those of pandas have nanoseconds."""


def test_a_span_of_another_class_is_refused_where_any_value_may_stand() -> None:
    with pytest.raises(NotPlainData, match="a Longer cannot be stored") as caught:
        value_encoder()(Exact(Longer(1)))
    assert "come back as a timedelta" in str(caught.value)


@pytest.mark.parametrize("value", [object(), {1, 2}, lambda: 1, 1j])
def test_only_plain_data_is_encoded(value: object) -> None:
    with pytest.raises(NotPlainData, match="cannot be stored"):
        value_encoder()(value)


class Point(NamedTuple):
    x: int


class Size(IntEnum):
    BIG = 1


def test_values_of_any_type_come_back_as_they_were() -> None:
    value = (None, True, 1, 2.5, "a", b"b", Decimal("1.0"), date(2001, 1, 1), (), {("k",): frozenset({1})})
    again = decode(value_encoder()(("row", Exact(value))))
    assert again == ("row", Exact(value))
    assert [type(part) for part in again[1].value] == [type(part) for part in value]
    assert decode(value_encoder()(Exact((-NAN,)))).value[0] is NAN


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([], "a list .*would come back as a tuple"),
        ((1, ("a", [2])), "a list .*would come back as a tuple"),
        ({"a": {"b": []}}, "a list .*would come back as a tuple"),
        (frozenset({Point(1)}), "a Point .*would come back as a tuple"),
        ({Point(1): 1}, "a Point .*would come back as a tuple"),
        (Size.BIG, "a Size .*would come back as a int"),
        (defaultdict(int), "a defaultdict .*would come back as a dict"),
        (bytearray(), "a bytearray .*would come back as a bytes"),
        (object(), "a object cannot be stored"),
    ],
)
def test_values_of_any_type_that_would_come_back_as_others_are_refused(value: object, told: str) -> None:
    with pytest.raises(NotPlainData) as refused:
        value_encoder()(Exact(value))
    assert re.search(told, f"{refused.value.what} {refused.value.why}", re.DOTALL)


def test_a_date_is_not_a_timestamp() -> None:
    assert type(decode(value_encoder()(date(2001, 1, 1)))) is date


def _nested(depth: int) -> frozenset[object]:
    value: frozenset[object] = frozenset({1})
    for _ in range(depth - 1):
        value = frozenset({value, 2})
    return value


def test_sets_come_back_or_are_refused_when_they_are_written_however_deep() -> None:
    for encode in (value_encoder(), key_encoder()):
        assert decode(encode(_nested(16))) == _nested(16)
        with pytest.raises(NotPlainData, match="nested more than 16 deep"):
            encode(_nested(17))


@pytest.mark.parametrize("code", [5, 6])
def test_hostile_bytes_nested_deeply_are_damage_and_not_the_end_of_the_process(code: int) -> None:
    hostile = b"\xc0"
    for _ in range(5_000):
        hostile = msgpack.packb(msgpack.ExtType(code, hostile))
    with pytest.raises(CheckpointDamaged):
        decode(hostile)
