"""Functions of lists in their Spark spelling: a query's answer is Spark's own, on random rows with nulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.expr.constructors import lambda_of, variable
from headrace.expr.types import Int32
from tests.queries.array_spellings import EXPRESSIONS, V, rows
from tests.queries.spark_answers import create_view, equal, value_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("group", EXPRESSIONS)
@pytest.mark.seeds(2, verify_from=1)
def test_values_are_those_of_spark(spark: SparkSession, group: str, seed: int) -> None:
    drawn = rows(seed)
    create_view(spark, drawn)
    assert not value_differences(spark, drawn, EXPRESSIONS[group], equal)


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("shuffle(ns)", "otherwise each time"),
        ("sequence(date'2024-01-25', day, INTERVAL 1 MONTH)", "no days"),
        ("try_cast(ss AS ARRAY<INT>)", "try_cast of a list"),
    ],
)
def test_what_has_no_counterpart_is_refused(spark: SparkSession, expression: str, what: str) -> None:
    with pytest.raises(HeadraceError, match=what):
        hr.sql(f"SELECT {expression} AS c FROM v", tables={"v": V}, spark=spark)


def test_arguments_out_of_range_raise() -> None:
    f, engine = hr.functions, compiled
    for expr in (
        f.element_at(hr.col.ks, 0),
        f.element_at(hr.col.ks, 9),
        f.array_insert(hr.col.ks, 0, 1),
        f.slice(hr.col.ks, 0, 1),
        f.slice(hr.col.ks, 1, -1),
        f.sequence(1, 5, -1),
        f.sequence(1, 2**40),
        f.array_sort(hr.col.ks, lambda a, b: hr.lit(None, Int32)),
    ):
        with pytest.raises(HeadraceError, match="P020"):
            engine(expr)(((1, 2),))


def compiled(expr: hr.Expr) -> Callable[[tuple[Any, ...]], Any]:
    from headrace.expr.compile_python import compile_rows
    from headrace.expr.types import INT32, Field, ListType, Schema

    return compile_rows((expr,), Schema((Field("ks", ListType(INT32)),)))


def test_variables_of_functions_within_functions_stay_apart() -> None:
    f = hr.functions

    def plus_size(values: Any) -> Any:
        return f.transform(values, lambda x: x + f.size(values))

    nested = f.transform(hr.array(hr.col.ks, hr.col.ks), lambda x: plus_size(x))
    assert compiled(nested)(((1, 2),)) == (((3, 4), (3, 4)),)


def test_a_variable_outside_of_its_function_is_refused() -> None:
    kept: list[Any] = []
    hr.functions.transform(hr.col.ks, lambda x: kept.append(x) or x)
    with pytest.raises(HeadraceError, match="used outside of its function"):
        compiled(kept[0] + 1)


def test_functions_with_wrong_parameters_are_refused() -> None:
    f = hr.functions
    with pytest.raises(HeadraceError, match="a function of 1 to 2 arguments"):
        f.transform(hr.col.ks, lambda a, b, c: a)
    of_two = f.exists(hr.col.ks, lambda_of(variable("a") > variable("b"), ("a", "b")))
    with pytest.raises(HeadraceError, match="exists calls a function with 1 arguments, not 2"):
        compiled(of_two)
    with pytest.raises(HeadraceError, match="the function of filter gives int32, not bool"):
        compiled(f.filter(hr.col.ks, lambda x: x))
    with pytest.raises(HeadraceError, match="aggregate needs a function of 2 arguments"):
        compiled(f.aggregate(hr.col.ks, hr.lit(0), lambda total: total + 1))
    with pytest.raises(HeadraceError, match="transform needs a function"):
        f.transform(hr.col.ks, max)
    for names in ((), ("a", "a")):
        with pytest.raises(HeadraceError, match="transform calls a function with"):
            compiled(f.transform(hr.col.ks, lambda_of(hr.lit(1), names)))


def test_a_parameter_with_a_default_is_no_variable() -> None:
    made = [hr.functions.transform(hr.col.ks, lambda x, k=k: x * k) for k in (10, 100)]
    assert [compiled(each)(((1, 2),)) for each in made] == [((10, 20),), ((100, 200),)]
