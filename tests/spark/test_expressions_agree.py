"""Generated Python and Spark columns mean the same: type, nullability, value, and what raises.

Hypothesis draws the expressions and the rows; they are gathered first and then
shown to Spark many at a time. A disagreement is reported for the smallest part
of an expression that still disagrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import find, given, settings

from headrace.errors import EvaluationError, WrongType
from headrace.expr.check import check
from headrace.expr.compile_python import compile_rows
from headrace.expr.constructors import lit
from headrace.expr.function_records import FixedFunction
from headrace.expr.functions import CATALOGUE
from headrace.expr.tree import Expr, FunctionCall, columns_of
from headrace.expr.types import DataType, DateType, IntervalType, StructType, TimestampNtzType, TimestampType
from headrace.io.arrow import column_to_values, rows_to_table
from tests.expr.random_expressions import SCHEMA, Wide, calls, expressions, internal, lists, maps, rows

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.seeds]

DRAWN = {"a sample": (400, 60, 60, 1), "all": (2_000, 300, 300, 4)}
"""How many expressions, among lists, among maps, and of each function; all of them in `make verify`."""

ROWS = 60
AT_ONCE = 80
RAISING_CHECKED = 60
PATIENT = settings(max_examples=20_000)

# Spark says "nullable" of everything these make, although null comes only from null. (The fields of
# timestamps are integer division there.)
SPARK_IS_VAGUE = frozenset(
    [
        "divide",
        "div",
        "modulo",
        "bround",
        "pmod",
        "sqrt",
        "signum",
        "degrees",
        "only_row",
        "cast",
        *("mask", "to_binary", "try_eval"),
        *("try_cast", "try_add", "try_subtract", "try_multiply", "try_divide", "try_modulo"),
        "round",
        "floor",
        "ceil",
        *("round_floor", "round_ceil"),
        "split_part",
        "like",
        *("element", "element_at", "map_contains_key", "map_keys", "map_values"),
        "truncate",
        "tumble",
        "seconds_since",
        "year",
        "quarter",
        "month",
        "day",
        "day_of_week",
        "weekday",
        "day_of_year",
        "hour",
        "minute",
        "second",
        "microsecond",
        *(
            "date_format",
            "decode",
            "encode",
            "from_unixtime",
            "is_valid_utf8",
            "luhn_check",
            "make_valid_utf8",
            "make_timestamp",
            "months_between",
        ),
        *("next_day", "radians", "right", "rint", "second_with_fraction", "timestampadd", "timestampdiff"),
        *("quote", "to_json", "validate_utf8"),
        *("to_date", "to_timestamp", "unix_timestamp", "url_decode", "url_encode"),
    ]
)


@dataclass
class Raised:
    """Stands for the value of a row on which Python raised."""

    error: EvaluationError

    @property
    def is_of_python_alone(self) -> bool:
        """Years beyond 9999 (and before 1) exist in Spark's columns; no Python value can hold them."""
        return self.error.what.endswith(
            ("does not fit date", "does not fit timestamp", "which has no counterpart here")
        )


@dataclass
class Outcome:
    """What Python makes of an expression, row by row."""

    expr: Expr
    values: list[Any]

    @cached_property
    def column(self) -> SparkColumn:
        from headrace.spark.native_expressions import to_column

        return to_column(self.expr, SCHEMA)

    @property
    def bad_rows(self) -> list[int]:
        return [at for at, value in enumerate(self.values) if isinstance(value, Raised)]

    @property
    def rows_bad_everywhere(self) -> list[int]:
        return [at for at in self.bad_rows if not self.values[at].is_of_python_alone]


def evaluate(expr: Expr, some: Sequence[tuple[Any, ...]]) -> Outcome:
    compute = compile_rows((expr,), SCHEMA)

    def value(row: tuple[Any, ...]) -> Any:
        try:
            return compute(row)[0]
        except EvaluationError as error:
            return Raised(error)

    return Outcome(expr, [value(row) for row in some])


def functions_of(expr: Expr) -> set[str]:
    return {part.function for part in expr.walk() if isinstance(part, FunctionCall)}


def gather(strategy: Any, count: int) -> list[Any]:
    """`count` different examples of a strategy, with whatever Hypothesis makes of its profile."""
    found: list[Any] = []

    @settings(max_examples=count)
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found[:count]


@dataclass
class Table:
    """The same rows inside and in Spark, with their number as column `row`."""

    inside: list[tuple[Any, ...]]
    frame: DataFrame

    def values(self, outcomes: Sequence[Outcome]) -> Iterator[list[Any]]:
        """Spark's values, expression by expression; null where Python raised."""
        from pyspark.sql import functions as F

        from headrace.expr.spark_columns import spark_type

        columns = []
        for at, outcome in enumerate(outcomes):
            column = outcome.column
            if len(outcome.bad_rows) == len(self.inside):
                # Spark compiles a constant pattern even if no row has it.
                column = F.lit(None).cast(spark_type(check(outcome.expr, SCHEMA).type))
            elif outcome.bad_rows:
                column = F.when(~F.col("row").isin(outcome.bad_rows), column)
            columns.append(column.alias(f"v{at}"))
        answer = self.frame.select("row", *columns).toArrow().sort_by("row")
        for at, outcome in enumerate(outcomes):
            yield list(column_to_values(answer[f"v{at}"], check(outcome.expr, SCHEMA).type))

    def disagreements(self, outcomes: Sequence[Outcome]) -> Iterator[tuple[Expr, int, Any, Any]]:
        """Expression, row, Python's value, Spark's value."""
        for outcome, values in zip(outcomes, self.values(outcomes), strict=True):
            for at, (mine, its) in enumerate(zip(outcome.values, values, strict=True)):
                if not isinstance(mine, Raised) and not same(mine, its):
                    yield outcome.expr, at, mine, its
                    break

    def raises(self, outcome: Outcome, row: int) -> bool:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            self.frame.where(f"row = {row}").select(outcome.column).toArrow()
        except (PySparkException, Py4JError):
            return True
        return False


def same(a: Any, b: Any) -> bool:
    """Equal, of one type, with the same zero, NaN equal to NaN."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Table:
    drawn: list[Wide] = gather(rows, ROWS)
    inside = internal(drawn)
    data = rows_to_table(inside, SCHEMA)
    import pyarrow as pa

    from headrace.expr.spark_columns import spark_schema

    data = data.append_column(pa.field("row", pa.int64(), nullable=False), pa.array(range(len(inside))))
    return Table(
        inside,
        spark.createDataFrame(data, spark_schema(SCHEMA).add("row", "long", False)).coalesce(1).cache(),
    )


@pytest.fixture(scope="module", params=["a sample", pytest.param("all", marks=pytest.mark.verify)])
def outcomes(table: Table, request: pytest.FixtureRequest) -> list[Outcome]:
    of_any, of_lists, of_maps, of_each = DRAWN[request.param]
    drawn: list[Expr] = gather(expressions(), of_any) + gather(lists(), of_lists) + gather(maps(), of_maps)
    for function in CATALOGUE.values():
        if isinstance(function, FixedFunction) and function.meaning:
            drawn += gather(calls(function), of_each)
    left_out = CATALOGUE.keys() - {name for expr in drawn for name in functions_of(expr)}
    for function in sorted(left_out) if request.param == "all" else ():  # minutes
        # Chance left it out; `find` fails for a function that cannot be drawn at all.
        drawn.append(find(expressions(), lambda expr, f=function: f in functions_of(expr), settings=PATIENT))
    return [evaluate(expr, table.inside) for expr in drawn]


def chunks(outcomes: Sequence[Outcome]) -> Iterator[Sequence[Outcome]]:
    for at in range(0, len(outcomes), AT_ONCE):
        yield outcomes[at : at + AT_ONCE]


def test_values_agree_where_python_does_not_raise(table: Table, outcomes: list[Outcome]) -> None:
    assert len(outcomes) >= sum(DRAWN["a sample"])
    for chunk in chunks(outcomes):
        for expr in wrong_in(table, chunk):
            if found := blame(table, expr):
                pytest.fail(found)


def wrong_in(table: Table, chunk: Sequence[Outcome]) -> list[Expr]:
    """The expressions of a chunk on which the two differ, or that make Spark raise alone."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return [
            expr
            for expr, _, mine, its in table.disagreements(chunk)
            if not splits_a_character(expr, mine, its)
        ]
    except (PySparkException, Py4JError, OverflowError):
        if len(chunk) == 1:
            expr = chunk[0].expr
            # Spark overflows in try_to_date of "-345871427" and raises, though its name says otherwise.
            known = "try_to_date" in functions_of(expr) or folds_to_error(table, expr)
            return [] if known else [expr]
        half = len(chunk) // 2
        return wrong_in(table, chunk[:half]) or wrong_in(table, chunk[half:])


def splits_a_character(expr: Expr, mine: object, its: object) -> bool:
    """Whether Spark found a match of nothing between the two UTF-16 units of a character, which become ?."""
    texts = isinstance(mine, str) and isinstance(its, str) and its.count("?") > mine.count("?")
    return texts and "regexp_replace" in functions_of(expr)


def folds_to_error(table: Table, expr: Expr) -> bool:
    """Return whether a part that is constant raises. Spark computes it even if no row reads it."""
    for part in expr.walk():
        if isinstance(part, FunctionCall) and part.function == "like":
            # A constant pattern is compiled even if no row has a text for it.
            part = FunctionCall("like", (lit(""), *part.arguments[1:]))
        if isinstance(part, FunctionCall) and not columns_of(part):
            try:
                if evaluate(part, table.inside[:1]).bad_rows:
                    return True
            except (WrongType, KeyError):  # a bare null, a variable
                continue
    return False


def blame(table: Table, expr: Expr) -> str:
    """The smallest part of a wrong expression that is wrong.

    Empty if a part is a time outside the years 1 to 9999 on Spark: functions that try have null for it here.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for part in expr.walk():
        try:
            outcome = evaluate(part, table.inside)
        except WrongType:  # a bare null has no type of its own
            continue
        if isinstance(check(part, SCHEMA).type, StructType):  # cannot be fetched whole where it is null
            continue
        try:
            found = next(table.disagreements([outcome]), None)
        except OverflowError:
            return ""
        except (PySparkException, Py4JError) as error:
            return (
                f"{part}\nraises on Spark alone: {str(error)[:600]}\nPython: {outcome.values}\nwhole: {expr}"
            )
        if found is not None:
            _, row, mine, its = found
            return f"{part}\nPython: {mine!r}\nSpark:  {its!r}\nrow: {table.inside[row]}\nwhole: {expr}"
    return f"{expr}: only the whole is wrong"


def converts_times(expr: Expr) -> bool:
    """Whether times meet those of another kind, or intervals: Spark says "nullable" of it, as of casts."""
    calls = (set(map(type_of, part.arguments)) for part in expr.walk() if isinstance(part, FunctionCall))
    return any(len(types & {DateType, TimestampType, TimestampNtzType, IntervalType}) > 1 for types in calls)


def type_of(expr: Expr) -> type[DataType] | None:
    try:
        return type(check(expr, SCHEMA).type)
    except WrongType:  # a bare null has no type of its own
        return None


def test_types_and_nullability_agree(table: Table, outcomes: list[Outcome]) -> None:
    from headrace.expr.spark_columns import nullable_type, spark_type

    for chunk in chunks(outcomes):
        # By names of their own: one of another column would be taken for that column.
        fields = table.frame.select(*(o.column.alias(f"c{at}") for at, o in enumerate(chunk))).schema.fields
        for outcome, field in zip(chunk, fields, strict=True):
            typed = check(outcome.expr, SCHEMA)
            its, mine = field.dataType, spark_type(typed.type)
            vague = functions_of(outcome.expr) & SPARK_IS_VAGUE or converts_times(outcome.expr)
            if vague:
                its, mine = nullable_type(its), nullable_type(mine)
            assert its == mine, str(outcome.expr)
            # Spark looks into array(...) for element_at.
            knows = field.nullable or not typed.nullable or "element_at" in functions_of(outcome.expr)
            assert knows, f"Spark knows that it is never null: {outcome.expr}"
            if field.nullable and not typed.nullable:
                assert vague, f"Spark says it can be null: {outcome.expr}"
            if not typed.nullable:
                assert None not in outcome.values, str(outcome.expr)


@pytest.fixture
def unoptimized(spark: SparkSession) -> Iterator[None]:
    """Lets Spark evaluate everything: the optimizer leaves out what cannot change an answer, errors too."""
    rules = "BooleanSimplification ConstantFolding ConvertToLocalRelation NullPropagation OptimizeIn"
    rules += " PushFoldableIntoBranches ReorderAssociativeOperator SimplifyBinaryComparison"
    rules += " SimplifyConditionals SimplifyExtractValueOps"
    package, option = "org.apache.spark.sql.catalyst.optimizer", "spark.sql.optimizer.excludedRules"
    before = spark.conf.get(option)
    spark.conf.set(option, ",".join(f"{package}.{r}" for r in rules.split()))
    yield
    spark.conf.set(option, before)


@pytest.mark.usefixtures("unoptimized")
def test_what_raises_in_python_raises_on_spark(table: Table, outcomes: list[Outcome]) -> None:
    raising = [(o, o.rows_bad_everywhere[0]) for o in outcomes if o.rows_bad_everywhere]
    step = max(1, len(raising) // RAISING_CHECKED)
    checked = raising[::step][:RAISING_CHECKED]
    assert checked
    for outcome, row in checked:
        assert table.raises(outcome, row), f"{outcome.expr}\nrow: {table.inside[row]}"


def test_every_function_of_the_catalogue_is_drawn(
    outcomes: list[Outcome], request: pytest.FixtureRequest
) -> None:
    drawn = {name for outcome in outcomes for name in functions_of(outcome.expr)}
    is_sample = request.node.callspec.params["outcomes"] == "a sample"
    assert drawn < set(CATALOGUE) if is_sample else drawn == set(CATALOGUE)
