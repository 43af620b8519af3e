"""The example of each function on rows, on columns, as a Spark column and from SQL: Spark's own answer.

A new function is tested by its record alone. Odd values are in `scalar_spellings`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import WrongType
from headrace.expr.check import check, checked_tree
from headrace.expr.compile_python import compile_rows
from headrace.expr.functions import CATALOGUE
from headrace.expr.row_classes import to_user
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import Field, IntegerType, Schema
from tests.expr.function_examples import WITH_VALUES, arguments_of
from tests.queries.spark_answers import equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT_A_NAME_IN_SQL = {
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),  # operators
    *("second_with_fraction", "yearofweek"),  # fields of `extract`
    *("json_tuple", "raise_error"),  # a generator, an error
}


@dataclass(frozen=True)
class Example:
    """Call of a function with columns, and constants where it takes no columns. sql: the same in SQL."""

    name: str
    call: Expr
    sql: str


def _is_typed(expr: Expr, schema: Schema) -> bool:
    try:
        check(expr, schema)
    except WrongType:
        return False
    return True


def _constant(expr: Expr) -> str:
    value = expr.value if isinstance(expr, Literal) else compile_rows((expr,), Schema(()))(())[0]
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"{value}BD" if isinstance(value, Decimal) else str(value)


def _converted(name: str, arguments: tuple[Expr, ...]) -> list[Expr]:
    """Return arguments of the types that the function takes them as: Spark wants an INT for a position."""
    schema = Schema(())
    term = CATALOGUE[name].rule(tuple(checked_tree(each, schema) for each in arguments), ())
    return [
        Literal(each.value, type) if isinstance(each, Literal) and isinstance(type, IntegerType) else each
        for each, type in zip(arguments, term.arguments, strict=True)
    ]


def _with_constants(
    name: str, columns: Sequence[Expr], constants: Sequence[Expr], schema: Schema
) -> Sequence[Expr]:
    """Return columns, with constants instead where the function takes no columns."""
    places = range(len(columns))
    for some in (chosen for count in range(len(columns) + 1) for chosen in combinations(places, count)):
        given = [constants[at] if at in some else columns[at] for at in places]
        if _is_typed(FunctionCall(name, tuple(given)), schema):
            return given
    return constants


@cache
def examples() -> tuple[list[Example], Schema, tuple[Any, ...]]:
    """The examples with the schema of their columns and a row."""
    made: list[Example] = []
    fields: list[Field] = []
    row: list[Any] = []
    for name in WITH_VALUES:
        arguments = _converted(name, arguments_of(name))
        columns = [Column(f"a{len(fields) + at}") for at in range(len(arguments))]
        fields += [
            Field(column.name, check(each, Schema(())).type, nullable=False)
            for column, each in zip(columns, arguments, strict=True)
        ]
        row += compile_rows(tuple(arguments), Schema(()))(())
        given = _with_constants(name, columns, arguments, Schema(tuple(fields)))
        sql = ", ".join(each.name if isinstance(each, Column) else _constant(each) for each in given)
        if name in ("timestampadd", "timestampdiff"):
            sql = sql.replace("'", "", 2)  # the unit is a keyword
        made.append(Example(name, FunctionCall(name, tuple(given)), f"{name}({sql})"))
    return made, Schema(tuple(fields)), tuple(row)


def on_rows() -> dict[str, Any]:
    found, schema, row = examples()
    answers = compile_rows(tuple(each.call for each in found if each.name != "raise_error"), schema)(row)
    return dict(zip((each.name for each in found if each.name != "raise_error"), answers, strict=True))


def _same(a: Any, b: Any) -> bool:
    """Equal, and floats but for their last digits, which depend on the library of mathematics."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-13)
    return equal(a, b)


STAY_IN_ROWS = {"locate", "split", "to_timestamp", "try_to_timestamp"}
"""Functions whose columnar form takes other arguments than those of their example."""


@pytest.mark.parametrize(
    "name", [name for name in WITH_VALUES if CATALOGUE[name].columns and name != "raise_error"]
)
def test_the_example_means_the_same_on_columns(name: str) -> None:
    pl = pytest.importorskip("polars")
    from headrace.columns.expressions import columns_without_bounds, lower_expression
    from headrace.expr.polars_columns import NotLowered, from_series, to_series

    found, schema, row = examples()
    call = next(each.call for each in found if each.name == name)
    assert isinstance(call, FunctionCall)
    first, *others = call.arguments
    constants = arguments_of(name)
    for tried in (
        call,
        FunctionCall(name, (first, *constants[1:])),
        FunctionCall(name, (constants[0], *others)),
    ):
        try:
            lowered = lower_expression(tried, schema, columns_without_bounds(schema))
            break
        except NotLowered:
            continue
    else:
        assert name in STAY_IN_ROWS
        return
    read = {
        str(at): to_series(schema.fields[at].type, [row[at]])
        for at in range(len(row))
        if str(at) in lowered.value.meta.root_names()
    }
    frame = pl.DataFrame(read)
    type_ = check(tried, schema).type
    fails = False if lowered.fails is None else frame.select(lowered.fails).to_series().any()
    value = None if fails else from_series(type_, frame.select(lowered.value).to_series())[0]
    assert fails or _same(value, on_rows()[name])


@pytest.mark.spark
def test_examples_mean_what_spark_means(spark: SparkSession) -> None:
    from headrace.expr.spark_columns import spark_schema
    from headrace.io.arrow import rows_to_table, table_to_rows
    from headrace.queries.catalyst_plan import parse_schema
    from headrace.spark.native_expressions import to_column

    found, schema, row = examples()
    mine = on_rows()
    frame = spark.createDataFrame(rows_to_table([row], schema), spark_schema(schema))
    frame.createOrReplaceTempView("v")
    compared = [each for each in found if each.name in mine]
    named = [each for each in compared if each.name not in WITHOUT_A_NAME_IN_SQL]
    text = f"SELECT {', '.join(f'{each.sql} AS {each.name}' for each in named)} FROM v"

    def answer(found: Any) -> tuple[Any, ...]:
        return table_to_rows(found.toArrow(), parse_schema(found.schema.jsonValue()))[0]

    columns = frame.select(*(to_column(each.call, schema).alias(each.name) for each in compared))
    (change,) = (
        hr.Engine(hr.sql(text, tables={"v": schema}, spark=spark))
        .tick(v=[to_user(schema)(row)])["answer"]
        .raw
    )
    different = [
        (way, name, mine[name], its)
        for way, examples_, answers in (
            ("as a Spark column", compared, answer(columns)),
            ("on Spark", named, answer(spark.sql(text))),
            ("from SQL", named, change[:-1]),
        )
        for name, its in zip((each.name for each in examples_), answers, strict=True)
        if not _same(mine[name], its)
    ]
    assert not different
