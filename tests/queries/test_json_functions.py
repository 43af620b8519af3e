"""Functions of JSON in their Spark spelling: a query's answer is Spark's own, also on hostile texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import EvaluationError, HeadraceError
from tests.queries.json_spellings import MAPS, PARTS, READ, WRITTEN, V, rows
from tests.queries.spark_answers import create_view, equal, value_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.seeds(3, verify_from=1)
def test_parts_are_those_of_spark(spark: SparkSession, seed: int) -> None:
    some = rows(seed, 400)
    create_view(spark, some)
    assert not value_differences(spark, some, PARTS, equal)


@pytest.mark.seeds(3, verify_from=1)
def test_values_from_json_are_those_of_spark(spark: SparkSession, seed: int) -> None:
    some = rows(seed, 400)
    create_view(spark, some)
    assert not value_differences(spark, some, READ, equal)


_NAME = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\w+)\s*:""")


@pytest.mark.seeds(3, verify_from=1)
def test_maps_are_those_of_spark(spark: SparkSession, seed: int) -> None:
    some = [row for row in rows(seed, 600) if repeats_no_name(row.t or "")]
    create_view(spark, some)
    assert not value_differences(spark, some, MAPS, equal)


def repeats_no_name(text: str) -> bool:
    names = [name.strip("\"'") for name in _NAME.findall(text)]
    return len(names) == len(set(names))


@pytest.mark.parametrize(
    ("type", "text"),
    [
        ("MAP<STRING, INT>", '{"a":1,"a":1}'),
        ("b MAP<STRING, INT>", '{"b":{"a":1,"b":"x"},"b":{"a":1,"\\u0061":2}}'),
        ("ARRAY<MAP<STRING, MAP<STRING, INT>>>", '[{"a":{"b":1}},null,{"a":null,"b":{"c":1,"d":2,"c":3}}]'),
        ("MAP<STRING, INT>", '{"\\ud83d":1,"?":2}'),
    ],
)
def test_a_name_that_a_map_has_twice_raises(spark: SparkSession, type: str, text: str) -> None:
    row = V(1, text, *[None] * 11)
    with pytest.raises(EvaluationError, match="comes twice in a map"):
        answer(spark, f"SELECT from_json(t, '{type}') AS c FROM v", [row])


def test_a_name_twice_in_a_map_that_is_no_part_of_the_value_does_not_raise(spark: SparkSession) -> None:
    some = [V(1, '{"a":{"a":1,"a":"x"},"c":{"a":1,"a":2}}', *[None] * 11)]
    create_view(spark, some)
    assert not value_differences(spark, some, ["from_json(t, 'a MAP<STRING, INT>, b INT')"], equal)


def texts(*values: str) -> list[V]:
    return [V(id, f'{{"a":{value}}}', *[None] * 11) for id, value in enumerate(values)]


_NUMBERS = (
    *("1", "-0", "1.0", "1e2", '"1"', '""', '" 1"', '"NaN"', '"nan"', '"-Infinity"', '"+INF"', '"INF"'),
    *("NaN", "+INF", "true", "null", "[]", "{}", "2147483648", "9223372036854775808", "1e400", "1.005"),
    *("-1.005", '"1e2"', '"1,000"', '"x"', "1E-10", '"1e1000000"', "1e-1000000", "999.995", '"٣"'),
    *('"1."', '".5"', '"."', f"0.{'1' * 50}", "1" * 38, "1" * 39, f"{'1' * 1000}", f"{'1' * 1001}"),
    *(f"1.{'5' * 1000}", '"1_0"', '"1e"'),
)
_DATES = (
    *("2020-01-02", "2020-1-2", "2020", "2020-01-02 03:04", "2020-01-02T03:04:05Z", "+2020-01-02"),
    *("0001-01-01", "x", "", " 2020-01-02 ", "2020-02-30", "2020-01-02x", "2020-01-02Tx", "1582-10-10"),
    *("-5", "+5", "5 ", "123", "GMT2020-01-01", "20GMT20", "2020-01-02GMT", "202002-30", "10001-02-29"),
    *("2147483648", "9999-12-31"),
)
_TIMES = (
    *("2020-01-02T03:04:05Z", "2020-01-02 3:4:5", "2020-01-02T03:04:05.123456789+01:00", "2020", "1"),
    *("x", "", "2020-01-02T03:04:05 Europe/Zurich", "2020-03-29T02:30:00 Europe/Zurich"),
    *("2020-01-02T03:04:05EST", "2020-10-25T02:30:00 Europe/Zurich", "2020-01-02T03:04:05 PST "),
    *("2020-01-02T03:04:05 xyz", "3:61", "3:", "2020-01-02T24:00:00", "2020-02-30 00:00:00"),
    *("2020-01-02GMT01:02:03", "2020-01-02T03:04:05GMT+01:00", "2020-01-02T03:04:05+0100"),
    *(
        "2020-01-02T03:04:05UTC+1",
        "2020-01-02T03:04Z",
        " 2020-01-02T03:04 ",
        "-0001-01-01Z",
        "2020-01-02T03:04:05z",
        " T3:4",
    ),
)


@pytest.mark.parametrize(
    ("type", "values"),
    [
        *(
            (type, _NUMBERS)
            for type in ("INT", "BIGINT", "DOUBLE", "DECIMAL(5, 2)", "DECIMAL(38, 10)", "STRING")
        ),
        ("BOOLEAN", _NUMBERS),
        ("DATE", (*(f'"{text}"' for text in _DATES), "18000", "true")),
        ("TIMESTAMP_NTZ", (*(f'"{text}"' for text in _TIMES), "1", "-1", "1.5", "true")),
        ("TIMESTAMP", (*(f'"{text}"' for text in _TIMES), "1", "-1", "1.5", "9223372036854775807", "1e3")),
    ],
)
def test_conversions_are_those_of_spark(spark: SparkSession, type: str, values: tuple[str, ...]) -> None:
    some = texts(*values)
    create_view(spark, some)
    assert not value_differences(spark, some, [f"from_json(t, 'a {type}').a"], equal)


@pytest.mark.parametrize("value", ['"12020-01-01"', '"-0001-01-01"', '"12345678"'])
def test_a_date_that_only_spark_can_hold_raises(spark: SparkSession, value: str) -> None:
    with pytest.raises(EvaluationError, match="does not fit date"):
        answer(spark, "SELECT from_json(t, 'a DATE') AS c FROM v", texts(value))


def test_a_time_of_the_current_day_raises(spark: SparkSession) -> None:
    with pytest.raises(EvaluationError, match="time of the current day"):
        answer(spark, "SELECT from_json(t, 'a TIMESTAMP') AS c FROM v", texts('"T3:04"'))


_FAILFAST = "SELECT from_json(t, 'a INT', map('mode', 'failfast')) AS c FROM v"


def test_what_does_not_fit_raises_in_the_mode_failfast(spark: SparkSession) -> None:
    assert answer(spark, _FAILFAST, texts("1", "null")) == [((1,),), ((None,),)]
    for value in ('"x"', "tru", "1.5"):
        with pytest.raises(EvaluationError, match="is no JSON of its type"):
            answer(spark, _FAILFAST, texts(value))
    of_maps = _FAILFAST.replace("a INT", "MAP<STRING, INT>")
    assert answer(spark, of_maps, texts("1", "null")) == [((("a", 1),),), ((("a", None),),)]
    for value in ('"x"', "tru", '1,"b":{}'):
        with pytest.raises(EvaluationError, match="is no JSON of its type"):
            answer(spark, of_maps, texts(value))


@pytest.mark.seeds(2, verify_from=1)
def test_written_texts_are_those_of_spark(spark: SparkSession, seed: int) -> None:
    some = rows(seed, 200)
    create_view(spark, some)
    assert not value_differences(spark, some, WRITTEN, equal)


def test_nested_texts_are_those_of_spark_at_any_depth(spark: SparkSession) -> None:
    nested = [
        *(text for depth in (1, 999, 1000, 1001, 5000) for text in ("[" * depth + "]" * depth, "[" * depth)),
        *('{"a":' * depth + "1" + "}" * depth for depth in (999, 1000, 1001, 5000)),
        f'{{"a":{"[" * 5000}',
    ]
    some = [V(id, text, *[None] * 11) for id, text in enumerate(nested)]
    create_view(spark, some)
    read = [
        "get_json_object(t, '$')",
        "get_json_object(t, '$.a')",
        # Spark recurses over `[*]`, and runs out of stack here.
        f"get_json_object(t, '${'[0]' * 100}')",
        f"get_json_object(t, '${'.a' * 100}')",
        "json_array_length(t)",
        "json_object_keys(t)",
        "from_json(t, 'a STRING')",
        "from_json(t, 'ARRAY<STRING>')",
        "to_json(from_json(t, 'a STRUCT<a: STRUCT<a: STRING>>'))",
    ]
    assert not value_differences(spark, some, read, equal)


def test_a_saved_plan_of_it_runs_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    text = (
        "SELECT from_json(t, 'a INT, b STRING') AS c, to_json(p) AS d, get_json_object(t, '$.a') AS e FROM v"
    )
    flow = hr.sql(text, tables=TABLE, spark=spark)
    hr.save_flow(flow, tmp_path / "json.plan")
    (row,) = hr.Engine(hr.load_flow(tmp_path / "json.plan")).tick(v=texts("1"))["answer"].raw
    assert row == ((1, None), None, "1", 1)


def test_the_schema_of_a_constant_text_is_a_constant(spark: SparkSession) -> None:
    text = """SELECT schema_of_json('{"a": [1, 2.5], "b": {"c": null}}') AS c FROM v"""
    assert answer(spark, text, texts("1")) == [("STRUCT<a: ARRAY<DOUBLE>, b: STRUCT<c: STRING>>",)]


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("from_json(t, 'a DATE', map('dateFormat', 'yyyy'))", "the option 'dateformat'"),
        ("to_json(map(p, 1))", "to_json does not write map"),
        ("from_json(t, 'a BINARY')", "from_json does not read bytes"),
        ("to_json(p, map('pretty', 'true'))", "to_json with the options pretty -> true"),
        (f"get_json_object(t, '${'[0]' * 101}')", "a JSON path has 101 steps"),
        ("from_json(t, name)", "Spark cannot plan"),
    ],
)
def test_what_has_no_counterpart_is_refused(spark: SparkSession, expression: str, what: str) -> None:
    with pytest.raises(HeadraceError, match=what):
        hr.sql(f"SELECT {expression} AS c FROM v", tables=TABLE, spark=spark)


TABLE = {"v": V}


def answer(spark: SparkSession, text: str, some: list[V]) -> list[tuple[Any, ...]]:
    """Rows of a flow's answer, without weights."""
    made = hr.Engine(hr.sql(text, tables=TABLE, spark=spark)).tick(v=some)["answer"].raw
    return sorted((row[:-1] for row in made for _ in range(row[-1])), key=repr)


@pytest.mark.seeds(3, verify_from=1)
@pytest.mark.parametrize("outer", ["", "OUTER "])
def test_json_tuple_makes_columns(spark: SparkSession, outer: str, seed: int) -> None:
    some = rows(seed, 400)
    create_view(spark, some)
    text = (
        f"SELECT id, one, two, three, four FROM v LATERAL VIEW {outer}json_tuple(t, 'a', name, 'é', 'a') j "
        "AS one, two, three, four"
    )
    assert answer(spark, text, some) == sorted((tuple(row) for row in spark.sql(text).collect()), key=repr)
