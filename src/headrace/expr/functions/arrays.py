"""List functions, under Spark's names.

Elements are equal where Spark groups them as one: NaN equals itself, and the zeros are equal. Positions count
from 1, other than those of `get`.
"""

from __future__ import annotations

from datetime import date
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import EvaluationError
from headrace.expr.function_records import (
    ELEMENT,
    LIST,
    function,
    is_names,
    list_type,
    part_types,
)
from headrace.expr.spark_columns import spark_type
from headrace.expr.types import (
    BOOL,
    DATE,
    INT32,
    STR,
    DataType,
    Field,
    ListType,
    StructType,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    Mismatch,
    Signature,
    Term,
    common_type,
    is_integer,
)
from headrace.requirements import F

if TYPE_CHECKING:
    from pyspark.sql import Column


MAX_ELEMENTS = 2**31 - 16
"""Limit on the elements of a list, as in Spark."""


def _nullable_elements(arguments: Arguments) -> bool:
    return any(isinstance(a.type, ListType) and a.type.nullable for a in arguments)


def nullable_or_elements(arguments: Arguments) -> bool:
    return any(a.nullable for a in arguments) or _nullable_elements(arguments)


def _with_nulls_of_any(types: tuple[DataType, ...]) -> DataType:
    lists = [type for type in types if isinstance(type, ListType)]
    return ListType(lists[0].element, any(each.nullable for each in lists))


def _with_nulls_of_all(types: tuple[DataType, ...]) -> DataType:
    lists = [type for type in types if isinstance(type, ListType)]
    return ListType(lists[0].element, all(each.nullable for each in lists))


def joined_lists(name: str, arguments: Arguments) -> Signature:
    """Typing rule of functions that join lists into one."""
    types = part_types(name, arguments, (LIST,) * len(arguments))
    return Signature(types, _with_nulls_of_any(types))


# -- elements ----------------------------------------------------------------------------------


def array_remove(values: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return tuple(each for each in values if each is not value and each != value)


def array_min(values: tuple[Any, ...], key: Any) -> Any:
    return min((each for each in values if each is not None), key=key, default=None)


def array_max(values: tuple[Any, ...], key: Any) -> Any:
    return max((each for each in values if each is not None), key=key, default=None)


def array_join(values: tuple[str | None, ...], separator: str, instead: str | None = None) -> str:
    if instead is None:
        return separator.join(each for each in values if each is not None)
    return separator.join(instead if each is None else each for each in values)


# -- lists -------------------------------------------------------------------------------------


def array_except(values: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    gone = set(others)
    return tuple(each for each in dict.fromkeys(values) if each not in gone)


def array_intersect(values: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    kept = set(others)
    return tuple(each for each in dict.fromkeys(values) if each in kept)


def arrays_overlap(values: tuple[Any, ...], others: tuple[Any, ...]) -> bool | None:
    common = set(values) & set(others)
    if common - {None}:
        return True
    return None if values and others and (None in values or None in others) else False


def flatten(lists: tuple[tuple[Any, ...] | None, ...]) -> tuple[Any, ...] | None:
    return None if None in lists else tuple(chain.from_iterable(cast("tuple[tuple[Any, ...], ...]", lists)))


def array_compact(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each for each in values if each is not None)


def check_size(count: int) -> None:
    if count > MAX_ELEMENTS:
        raise EvaluationError(f"a list of {count} elements is too long")


def sequence(start: int, stop: int, step: int | None = None) -> tuple[int, ...]:
    """Return the numbers from `start` to `stop` by `step`. Raises if `step` leads away from `stop`."""
    step = (1 if start <= stop else -1) if step is None else step
    if (step == 0 and start != stop) or (stop - start) * step < 0:
        raise EvaluationError(f"a sequence from {start} to {stop} cannot have steps of {step}")
    if step == 0:
        return (start,)
    check_size(abs(stop - start) // abs(step) + 1)
    return tuple(range(start, stop + (1 if step > 0 else -1), step))


def sequence_of_days(start: date, stop: date, step: int | None = None) -> tuple[date, ...]:
    numbers = sequence(start.toordinal(), stop.toordinal(), step)
    return tuple(map(date.fromordinal, numbers))


def _zip_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    names = cast("tuple[str, ...]", options[0])
    if len(names) != len(arguments) or len(set(names)) != len(names):
        raise Mismatch("arrays_zip needs a name of its own for each list")
    lists = [list_type("arrays_zip", each) for each in arguments]
    fields = tuple(Field(name, each.element, True) for name, each in zip(names, lists, strict=True))
    return Signature(tuple(lists), ListType(StructType(fields), False))


def _join_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    values = list_type("array_join", arguments[0])
    for text in (Term(values.element, True), *arguments[1:]):
        if text.type not in (STR, NULL):
            raise Mismatch(f"array_join needs texts, got {text.type}", fix="cast them: .cast(str)")
    return Signature((values, *(STR for _ in arguments[1:])), STR)


def _flatten_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    outer = list_type("flatten", arguments[0])
    inner = list_type("flatten", Term(outer.element, outer.nullable))
    return Signature((outer,), inner, arguments[0].nullable or outer.nullable)


def _sequence_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    common, step = common_type(arguments[:2]), arguments[2:]
    if common == DATE and all(is_integer(each.type) for each in step):
        return Signature((DATE, DATE, *(INT32 for _ in step)), ListType(DATE, False))
    common = common_type(arguments)
    if not is_integer(common):
        raise Mismatch(f"sequence needs integers, or dates and a number of days, got {common}")
    return Signature((common,) * len(arguments), ListType(common, False))


def _sequence(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    name = "x_sequence_of_days" if call.arguments[0].type == DATE else "x_sequence"
    return f"{name}({', '.join(operands)})"


# -- on columns -------------------------------------------------------------------------------


# -- on Spark ---------------------------------------------------------------------------------


def _zipped_spark(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    # Spark names the fields after columns where the lists are some; casts go by position.
    return F.arrays_zip(*arguments).cast(spark_type(call.type))


def _sequence_spark(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    start, stop, *step = arguments
    if call.arguments[0].type == DATE:
        step = [F.make_dt_interval(days=each) for each in step]
    return F.sequence(start, stop, *step)


NAMES: dict[str, Any] = {
    "x_array_max": array_max,
    "x_array_min": array_min,
    "x_sequence": sequence,
    "x_sequence_of_days": sequence_of_days,
    "x_zip_longest": zip_longest,
}


FUNCTIONS: tuple[Function, ...] = (
    function(
        "array_remove",
        "The list without the elements equal to the value.",
        (LIST, ELEMENT),
        LIST,
        array_remove,
        shown_parameters="list, value",
        example="array(1, 2, 1), 1",
        catalyst="ArrayRemove",
        keeps_size=True,
    ),
    function(
        "array_distinct",
        "The distinct elements, in order of first occurrence.",
        (LIST,),
        LIST,
        "tuple(dict.fromkeys({0}))",
        one_zero=True,
        shown_parameters="list",
        example="array(1, 2, 1)",
        catalyst="ArrayDistinct",
        keeps_size=True,
    ),
    function(
        "array_union",
        "The distinct elements of both lists.",
        (LIST, LIST),
        _with_nulls_of_any,
        "tuple(dict.fromkeys({0} + {1}))",
        one_zero=True,
        shown_parameters="list, list",
        example="array(1, 2), array(2, 3)",
        catalyst="ArrayUnion",
    ),
    function(
        "array_intersect",
        "The distinct elements that both lists contain.",
        (LIST, LIST),
        _with_nulls_of_all,
        array_intersect,
        one_zero=True,
        shown_parameters="list, list",
        example="array(1, 2), array(2, 3)",
        catalyst="ArrayIntersect",
        keeps_size=True,
    ),
    function(
        "array_except",
        "The distinct elements that the second list doesn't contain.",
        (LIST, LIST),
        LIST,
        array_except,
        one_zero=True,
        shown_parameters="list, list",
        example="array(1, 2), array(2)",
        catalyst="ArrayExcept",
        keeps_size=True,
    ),
    function(
        "arrays_overlap",
        "Whether the lists share an element; null if they don't but have nulls.",
        (LIST, LIST),
        BOOL,
        arrays_overlap,
        nullable=nullable_or_elements,
        shown_parameters="list, list",
        example="array(1, 2), array(2)",
        catalyst="ArraysOverlap",
    ),
    function(
        "array_min",
        "The least non-null element.",
        (LIST,),
        ELEMENT,
        "x_array_min({0}, {key})",
        nullable=True,
        shown_parameters="list",
        example="array(2, 1)",
        catalyst="ArrayMin",
        keeps_size=True,
    ),
    function(
        "array_max",
        "The greatest non-null element.",
        (LIST,),
        ELEMENT,
        "x_array_max({0}, {key})",
        nullable=True,
        shown_parameters="list",
        example="array(1, 3, 2)",
        catalyst="ArrayMax",
        keeps_size=True,
    ),
    function(
        "sort_array",
        "The list, ascending (nulls first) or descending (nulls last).",
        (LIST, BOOL),
        LIST,
        "tuple(sorted({0}, key={key}, reverse=not {1}))",
        constant=(1,),
        shown_parameters="list, ascending",
        defaults=(True,),
        example="array(1, 3, 2), lit(False)",
        catalyst="SortArray",
        keeps_size=True,
    ),
    function(
        "array_compact",
        "The list without nulls.",
        (LIST,),
        lambda types: ListType(cast("ListType", types[0]).element, False),
        array_compact,
        compares=False,
        shown_parameters="list",
        example="array(1, None, 2)",
        keeps_size=True,
    ),
    function(
        "array_join",
        "The elements joined by a separator; nulls are skipped, or replaced by `null_text`.",
        types=_join_rule,
        rows=array_join,
        arity=(2, 3),
        shown_parameters="list, separator, null_text",
        example="array('a', 'b'), '-'",
        catalyst="ArrayJoin",
        keeps_size=True,
    ),
    function(
        "flatten",
        "The elements of the inner lists; null if one of these is null.",
        types=_flatten_rule,
        rows=flatten,
        nullable=True,
        arity=(1, 1),
        shown_parameters="list",
        example="array(array(1), array(2, 3))",
        catalyst="Flatten",
        keeps_size=True,
    ),
    function(
        "sequence",
        "Integers from first to last by steps, or dates by days.",
        types=_sequence_rule,
        code=_sequence,
        fallible=True,
        arity=(2, 3),
        shown_parameters="first, last, step",
        example="1, 7, 3",
        spark=_sequence_spark,
        keeps_size=True,
    ),
    function(
        "arrays_zip",
        types=_zip_rule,
        rows="tuple(x_zip_longest({all}))",
        arity=(1, None),
        options=(is_names,),
        spark=_zipped_spark,
    ),
)
