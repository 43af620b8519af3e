"""Lowering of functions on numbers, booleans, strings and nested values to Spark columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from headrace.expr.function_bases import FixedFunction
from headrace.expr.functions import CATALOGUE
from headrace.expr.spark_columns import spark_type
from headrace.expr.types import (
    STR,
    BytesType,
    DataType,
    IntervalType,
    ListType,
    MapType,
    StrType,
    StructType,
    parts_of,
)
from headrace.expr.typing_rules import LiteralTerm
from headrace.expr.widening import nullable_within
from headrace.spark.lowering.time_functions import CASTS as TIME_CASTS
from headrace.spark.lowering.time_functions import TRIED_CASTS, time_sum

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.expr.typing_rules import CallTerm

    Lowering = Callable[[CallTerm, tuple[Column, ...]], Column]


def _plain(function: Callable[..., Column]) -> Lowering:
    """Lower to the Spark function that takes the same arguments."""
    return lambda call, arguments: function(*arguments)


def _add(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    a, b = arguments
    moved = time_sum(call, arguments)
    if moved is not None:
        return moved
    return F.concat(a, b) if call.type == STR else a + b


def _subtract(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    a, b = arguments
    moved = time_sum(call, arguments)
    return a - b if moved is None else moved


def _tried(function: Callable[[Column, Column], Column]) -> Lowering:
    """Lower arithmetic that is null where it fails, but raises where its operands do.

    Of times and intervals, Spark makes a `TryEval` of it, in which operands are null, too: they are computed
    before, and an element of a list.
    """

    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        if not any(isinstance(each.type, IntervalType) for each in (call, *call.arguments)):
            return function(*arguments)
        moved = time_sum(call, arguments)
        if moved is not None:
            return moved
        a, b = arguments
        pairs = F.array(F.struct(a.alias("a"), b.alias("b")))
        return F.transform(pairs, lambda pair: function(pair.getField("a"), pair.getField("b")))[0]

    return lowering


def _option(call: CallTerm) -> Any:
    return call.options[0]


def _when(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    *pairs, otherwise = arguments
    cases = F.when(pairs[0], pairs[1])
    for condition, value in zip(pairs[2::2], pairs[3::2], strict=True):
        cases = cases.when(condition, value)
    return cases.otherwise(otherwise)


def _is_in(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    value, *options = arguments
    # Spark has no empty list; null in nothing is null here as in `null = x`.
    return value.isin(*options) if options else F.when(value.isNotNull(), F.lit(False))


def _length(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return (F.size if parts_of(call.arguments[0].type) else F.length)(arguments[0])


def _like(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    # Spark takes only a bare constant as the escape character.
    escapes = (F.lit(each.value) for each in call.arguments[2:] if isinstance(each, LiteralTerm))
    return F.like(*arguments[:2], *escapes)


def _struct(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return F.struct(*(value.alias(name) for value, name in zip(arguments, _option(call), strict=True)))


def _by_position(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    # Spark takes more fields for nullable than there are, and casts none of those to one that isn't.
    return arguments[0].cast(spark_type(nullable_within(call.type)))


def _only_row(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    value, count = arguments
    several = F.raise_error(F.lit("a subquery used as a value has more than one row"))
    return F.when(count > 1, several.cast(spark_type(call.type))).otherwise(value)


# -- casts -----------------------------------------------------------------------------------


def _cast(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return _casted(arguments[0], call.arguments[0].type, call.type)


def _casted(value: Column, source: DataType, target: DataType) -> Column:
    special = _CASTS.get((type(source), type(target)))
    if special is not None:
        return special(value, target)
    if isinstance(source, ListType) and isinstance(target, ListType) and _is_special(source, target):
        inside, outside = source.element, target.element
        return F.transform(value, lambda each: _casted(each, inside, outside))
    if isinstance(source, MapType) and isinstance(target, MapType) and _entries_differ(source, target):
        # A cast of a map would keep keys that become equal.
        return F.map_from_entries(F.transform(F.map_entries(value), _cast_of_entries(source, target)))
    if isinstance(source, StructType) and isinstance(target, StructType) and _is_special(source, target):
        pairs = zip(source.fields, target.fields, strict=True)
        fields = [_casted(value.getField(a.name), a.type, b.type).alias(b.name) for a, b in pairs]
        return F.when(value.isNotNull(), F.struct(*fields))
    if target == STR and (inside := _with_texts(source)) != source:
        value = _casted(value, source, inside)
    return value.cast(spark_type(target))


def _with_texts(source: DataType) -> DataType:
    """Return a type with text for what within it becomes text by a special cast."""
    if isinstance(source, ListType):
        return replace(source, element=_with_texts(source.element))
    if isinstance(source, MapType):
        return replace(source, key=_with_texts(source.key), value=_with_texts(source.value))
    if isinstance(source, StructType):
        return StructType(tuple(replace(each, type=_with_texts(each.type)) for each in source.fields))
    return STR if _is_special(source, STR) else source


def _cast_of_entries(source: MapType, target: MapType) -> Callable[[Column], Column]:
    def cast(entry: Column) -> Column:
        key = _casted(entry.getField("key"), source.key, target.key)
        value = _casted(entry.getField("value"), source.value, target.value)
        return F.struct(key.alias("key"), value.alias("value"))

    return cast


def _entries_differ(source: MapType, target: MapType) -> bool:
    return source.key != target.key or _is_special(source.value, target.value)


def _is_special(source: DataType, target: DataType) -> bool:
    if isinstance(source, MapType) and isinstance(target, MapType):
        return _entries_differ(source, target)
    if isinstance(source, ListType) and isinstance(target, ListType):
        return _is_special(source.element, target.element)
    if isinstance(source, StructType) and isinstance(target, StructType):
        return any(_is_special(a.type, b.type) for a, b in zip(source.fields, target.fields, strict=True))
    return (type(source), type(target)) in _CASTS


def _try_cast(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    source, target = call.arguments[0].type, call.type
    special = TRIED_CASTS.get((type(source), type(target)))
    return arguments[0].try_cast(spark_type(target)) if special is None else special(arguments[0])


def _raise_error(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return F.raise_error(arguments[0]).cast(spark_type(call.type))


def _try_eval(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    """Lower to a `TryEval` of Spark, which it makes for sums with dates, around a list of the value.

    Within a function of elements, Spark does not compute what occurs twice before, outside of the `TryEval`.
    """
    (value,) = arguments
    values = F.transform(F.array(F.lit(0)), lambda _: value)
    evaluated = F.try_add(F.date_from_unix_date(F.lit(0)), F.size(values)).isNotNull()
    return F.when(evaluated, value)


def _str_of_bytes(value: Column, target: DataType) -> Column:
    return F.validate_utf8(value.cast("string"))


def _of_utf8(name: str) -> Lowering:
    return lambda call, arguments: F.call_function(name, arguments[0].cast("string"))


_CASTS: dict[tuple[type[DataType], type[DataType]], Callable[[Column, DataType], Column]] = {
    (BytesType, StrType): _str_of_bytes,
    **TIME_CASTS,
}

_BY_NAME = ("concat_ws", "elt", "format_string", "pmod", "to_number", "try_to_number")
"""Functions without fixed types that are Spark's."""

VALUES: dict[str, Lowering] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _plain(lambda a, b: a * b),
    "divide": _plain(lambda a, b: a / b),
    "div": _plain(lambda a, b: F.call_function("div", a, b)),
    "modulo": _plain(lambda a, b: a % b),
    "negate": _plain(lambda a: -a),
    "abs": _plain(F.abs),
    "round": lambda call, arguments: F.round(arguments[0], _option(call)),
    "floor": _plain(F.floor),
    "ceil": _plain(F.ceil),
    "round_floor": lambda call, arguments: F.floor(arguments[0], F.lit(_option(call))),
    "round_ceil": lambda call, arguments: F.ceil(arguments[0], F.lit(_option(call))),
    "least": _plain(F.least),
    "greatest": _plain(F.greatest),
    "eq": _plain(lambda a, b: a == b),
    "ne": _plain(lambda a, b: a != b),
    "lt": _plain(lambda a, b: a < b),
    "le": _plain(lambda a, b: a <= b),
    "gt": _plain(lambda a, b: a > b),
    "ge": _plain(lambda a, b: a >= b),
    "eq_null_safe": _plain(lambda a, b: a.eqNullSafe(b)),
    "is_in": _is_in,
    "and": _plain(lambda a, b: a & b),
    "or": _plain(lambda a, b: a | b),
    "not": _plain(lambda a: ~a),
    "is_null": _plain(lambda a: a.isNull()),
    "is_not_null": _plain(lambda a: a.isNotNull()),
    "is_nan": _plain(F.isnan),
    "coalesce": _plain(F.coalesce),
    "when": _when,
    "upper": _plain(F.upper),
    "lower": _plain(F.lower),
    "trim": _plain(F.trim),
    "length": _length,
    "concat": _plain(F.concat),
    "contains": _plain(lambda a, b: a.contains(b)),
    "starts_with": _plain(lambda a, b: a.startswith(b)),
    "ends_with": _plain(lambda a, b: a.endswith(b)),
    "like": _like,
    "substring": _plain(F.substring),
    "replace": _plain(F.replace),
    "reverse": _plain(F.reverse),
    "split_part": _plain(F.split_part),
    "hash": _plain(F.xxhash64),
    "murmur3": _plain(F.hash),
    "struct": _struct,
    "array": _plain(F.array),
    "field": lambda call, arguments: arguments[0].getField(_option(call)),
    "element": _plain(lambda a, at: a[at]),
    "array_repeat": _plain(F.array_repeat),
    "by_position": _by_position,
    "only_row": _only_row,
    "cast": _cast,
    "try_cast": _try_cast,
    "try_eval": _try_eval,
    "raise_error": _raise_error,
    "try_add": _tried(F.try_add),
    "try_subtract": _tried(F.try_subtract),
    "try_multiply": _tried(F.try_multiply),
    "try_divide": _tried(F.try_divide),
    "try_modulo": _plain(F.try_mod),
    "ltrim_of": _plain(lambda a, b: F.ltrim(a, b)),
    "rtrim_of": _plain(lambda a, b: F.rtrim(a, b)),
    "btrim": _plain(lambda a, b: F.btrim(a, b)),
    "bitwise_and": _plain(lambda a, b: a.bitwiseAND(b)),
    "bitwise_or": _plain(lambda a, b: a.bitwiseOR(b)),
    "bitwise_xor": _plain(lambda a, b: a.bitwiseXOR(b)),
    "bitwise_not": _plain(F.bitwise_not),
    **{
        name: _plain(partial(F.call_function, name))
        for name, function in CATALOGUE.items()
        if isinstance(function, FixedFunction) and not name.startswith(("btrim", "bitwise"))
    },
    **{
        name: _of_utf8(name)
        for name in ("is_valid_utf8", "make_valid_utf8", "try_validate_utf8", "validate_utf8")
    },
    "mask": lambda call, arguments: F.mask(arguments[0], *map(F.lit, call.options)),
    "bround": lambda call, arguments: F.bround(arguments[0], _option(call)),
    **{name: _plain(partial(F.call_function, name)) for name in _BY_NAME},
}
