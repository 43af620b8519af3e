"""JSON in expressions: the functions by name, and texts that are nested deeply or are long."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.errors import EvaluationError, WrongType
from headrace.expr.compile_python import compile_rows
from headrace.expr.json_writer import MAX_STEPS, get_json_object, json_path
from headrace.expr.row_classes import schema_of

F = hr.functions


class Row(NamedTuple):
    text: str | None
    path: str
    other: bytes | None


class Item(NamedTuple):
    name: str
    price: float | None


SCHEMA = schema_of(Row)


def value(expr: Any, text: str | None, path: str = "$") -> Any:
    (found,) = compile_rows((expr,), SCHEMA)((text, path, None))
    return found


def test_functions_have_the_names_of_spark() -> None:
    col = hr.col
    text = '{"a": [{"name": "x", "price": 1.50}, {"name": "y"}], "b": 2}'
    assert value(F.get_json_object(col.text, "$.a[*].name"), text) == '["x","y"]'
    assert value(F.get_json_object(col.text, col.path), text, "$.b") == "2"
    assert value(F.json_array_length(F.get_json_object(col.text, "$.a")), text) == 2
    assert value(F.json_object_keys(col.text), text) == ("a", "b")
    assert value(F.json_tuple(col.text, "b", "c"), text) == ("2", None)
    items = F.from_json(F.get_json_object(col.text, "$.a"), list[Item])
    assert value(items, text) == (("x", 1.5), ("y", None))
    assert value(F.to_json(items), text) == '[{"name":"x","price":1.5},{"name":"y"}]'
    assert value(F.to_json(hr.struct(d=hr.lit(Decimal("0.00000001")), n=col.text)), None) == '{"d":1E-8}'


def test_null_stays_null_but_for_the_tuple() -> None:
    col = hr.col
    assert value(F.get_json_object(col.text, "$"), None) is None
    assert value(F.from_json(col.text, Item), None) is None
    assert value(F.json_tuple(col.text, "a"), None) == (None,)


def test_failfast_raises() -> None:
    with pytest.raises(EvaluationError, match="no JSON of its type"):
        value(F.from_json(hr.col.text, Item, "FAILFAST"), "{")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: F.from_json(hr.col.text, int), "a struct, a list or a map"),
        (lambda: F.from_json(hr.col.text, list[bytes]), "does not read bytes"),
        (lambda: F.from_json(hr.col.text, Item, "DROPMALFORMED"), "no mode 'DROPMALFORMED'"),
        (lambda: F.from_json(hr.col.other, Item), "needs str"),
        (lambda: F.to_json(hr.col.text), "needs a struct, a list or a map"),
        (lambda: F.get_json_object(hr.col.text, f"${'.a' * (MAX_STEPS + 1)}"), "a JSON path has 101 steps"),
    ],
)
def test_mistakes_are_found_before_any_row(make: Any, what: str) -> None:
    with pytest.raises(WrongType, match=what):
        value(make(), "{}")


@pytest.mark.parametrize("depth", [1_000, 1_001, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]"), ("[", "")])
def test_no_depth_is_too_much_for_the_stack(opening: str, closing: str, depth: int) -> None:
    text = opening * depth + "1" + closing * depth
    fits = depth * len(opening.replace('"a":', "")) <= 1_000 and bool(closing)
    for path in ("$", "$[*]", "$[*][*]", f"${'[*]' * MAX_STEPS}", f"${'.a' * MAX_STEPS}", f"${'[0].a' * 50}"):
        found = get_json_object(text, json_path(path))
        assert found is None or fits
    assert (value(F.from_json(hr.col.text, list[str]), text) is not None) == (fits and opening == "[")
    assert value(F.json_tuple(hr.col.text, "a"), text) != (None,) or not fits or opening == "["


def test_characters_beyond_the_basic_plane_are_escaped_where_jackson_writes_bytes() -> None:
    assert get_json_object('["😀"]', json_path("$")) == '["\\uD83D\\uDE00"]'
    assert get_json_object('["😀"]', json_path("$[*]")) == '"😀"'
    assert get_json_object('"😀"', json_path("$")) == "😀"


def test_a_path_may_have_a_number_of_any_length() -> None:
    of_path = F.get_json_object(hr.col.text, hr.col.path)
    assert value(of_path, "[1]", f"$[{'9' * 5_000}]") is None
    assert value(of_path, "[1]", f"$[{'0' * 5_000}]") == "1"


def test_what_follows_a_time_is_read_once() -> None:
    # Took a minute when each space was looked at again.
    spaces = " " * 100_000
    times = F.from_json(hr.col.text, list[datetime])
    assert value(times, f'["1:1:1A{spaces}x"]') is None
    assert value(times, f'["2020-01-01 1:1:1 PST{spaces}"]') == (datetime(2020, 1, 1, 9, 1, 1, tzinfo=UTC),)
