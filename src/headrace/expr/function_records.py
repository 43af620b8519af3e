"""Records of SQL functions: name, types, Python, Polars and Spark forms, documentation and example.

The catalogue, `hr.functions`, the map from Catalyst's classes, the signatures that plans are checked against,
the page of functions and the tests by example are made from the records in `headrace.expr.functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.errors import EvaluationError
from headrace.expr.tree import MAX_DIGITS
from headrace.expr.types import (
    FLOAT64,
    INTERVAL,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    fits_interval,
    holds_maps,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    LiteralTerm,
    Mismatch,
    Rule,
    Signature,
    SparkForm,
    Term,
    TypeAndNullability,
    common_type,
    is_float,
    is_number,
)
from headrace.expr.value_keys import has_representatives, order_key
from headrace.requirements import F

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.expr.polars_columns import Lowering

StrictCode: TypeAlias = Callable[[Emitter, CallTerm, tuple[str, ...]], str]
"""Generator of the source of a value from non-null operands."""
LazyCode: TypeAlias = Callable[[Emitter, CallTerm], GuardedSource]
"""Generator of the source of a call, which evaluates its arguments itself."""


@dataclass(frozen=True, slots=True)
class StrictFunction(Function):
    """Function that is null if an argument is.

    nullable: whether it can also be None for arguments that are not, for all calls or for a given one.
    python:   source of the value from non-null operands, each an atom or in brackets;
              `Emitter.name_value` binds one that is used twice.
    fallible: whether it can raise for some row, for all calls or for a given one.
    keeps_nan: whether floats in the result are as canonical as those of the arguments.
    last_first: whether the last argument is evaluated first (Spark checks divisors of numbers first), for all
        calls or for a given one.
    """

    python: StrictCode
    fallible: bool | Callable[[CallTerm], bool] = False
    keeps_nan: bool = False
    last_first: bool | Callable[[CallTerm], bool] = False
    nullable: bool | Callable[[CallTerm], bool] = False


Parameter: TypeAlias = DataType | type[DecimalType] | tuple["DataType | type[DecimalType]", ...]
"""Type that an argument converts to, or several of which it has one; `DecimalType` is any decimal."""


@dataclass(frozen=True, slots=True)
class FixedFunction(StrictFunction):
    """Strict function of fixed types.

    takes: the argument types; parameters of integers accept those of any width, float64 ones any number.
    result: None: the type of the first argument.
    prepared: by position, how a value becomes what the function works with, such as a compiled pattern: once
              for a constant, for a row's value if that was not seen lately. Raises `EvaluationError`.
    constant: positions of arguments that must be constants.
    approximate: whether its last digit depends on the library of mathematics.
    """

    takes: tuple[Parameter, ...] = ()
    result: DataType | None = STR
    prepared: Mapping[int, Callable[[Any], object]] = field(
        default_factory=dict[int, Callable[[Any], object]], compare=False
    )
    constant: tuple[int, ...] = ()
    approximate: bool = False


@dataclass(frozen=True, slots=True)
class LazyFunction(Function):
    """Function that handles nulls itself, or does not evaluate all arguments.

    python: code of the value. true, false: source that is truthy exactly if the call is true, or false; None
    to use the value.
    """

    python: LazyCode
    true: Callable[[Emitter, CallTerm], str] | None = None
    false: Callable[[Emitter, CallTerm], str] | None = None
    fallible: bool = False


@dataclass(frozen=True, slots=True)
class HigherOrderFunction(LazyFunction):
    """Function with lambdas among its arguments, which `headrace.expr.constructors` builds.

    parameters: of the next function, by the arguments before it; it may take fewer of them.
    most_variables: the largest number of them.
    """

    parameters: Callable[[Arguments], tuple[TypeAndNullability, ...]] = field(kw_only=True)
    most_variables: int = field(default=2, kw_only=True)


def holds_for(fact: bool | Callable[[CallTerm], bool], call: CallTerm) -> bool:
    """Return whether a fact of a function, constant or decided per call, holds for a call."""
    return fact if isinstance(fact, bool) else fact(call)


def may_raise(term: Term) -> bool:
    """Return whether evaluating a term can raise for some row: overflow, division by zero, a bad cast."""
    if not isinstance(term, CallTerm):
        return False
    own = term.function.fallible if isinstance(term.function, StrictFunction | LazyFunction) else False
    return holds_for(own, term) or any(may_raise(a) for a in term.arguments)


# -- parameters ------------------------------------------------------------------------------------


class _Part(DataType):
    """Parameter whose type depends on the list and map arguments of a call."""

    __slots__ = ()


class _List(_Part):
    __slots__ = ()


class _Element(_Part):
    __slots__ = ()


class _Map(_Part):
    __slots__ = ()


class _Key(_Part):
    __slots__ = ()


LIST, ELEMENT = _List(), _Element()
"""A list, and a value of the type of its elements. All lists of a call have one type of elements."""

MAP, KEY = _Map(), _Key()
"""A map, and a value of the type of its keys. All maps of a call have one type of keys, and one of values."""


def fitting_type(name: str, found: DataType, parameter: Parameter) -> DataType:
    """Return the type that an argument converts to. Raises `Mismatch` if it fits no parameter type."""
    wanted = parameter if isinstance(parameter, tuple) else (parameter,)
    if found in wanted:
        return found
    if found == NULL:
        first = wanted[0]
        return first if isinstance(first, DataType) else DecimalType(38, 18)
    if DecimalType in wanted and isinstance(found, DecimalType):
        return found
    for want in wanted:
        if isinstance(want, IntegerType) and isinstance(found, IntegerType):
            widths = sorted((w for w in wanted if isinstance(w, IntegerType)), key=lambda width: width.bits)
            return next((width for width in widths if width.bits >= found.bits), widths[-1])
        if want == TIMESTAMP and found == TIMESTAMP_NTZ:
            return TIMESTAMP
        if want == INTERVAL and isinstance(found, IntervalType):
            return INTERVAL
        if (want == FLOAT64 or isinstance(want, DecimalType)) and is_number(found):
            assert isinstance(want, DataType)
            return want
    names = " or ".join("decimal" if want is DecimalType else str(want) for want in wanted)
    raise Mismatch(f"{name} needs {names}, got {found}", fix=f"cast it: .cast({wanted[0]})")


def list_type(name: str, argument: Term) -> ListType:
    """Return the type of a list argument. Raises `Mismatch` for any other type."""
    if not isinstance(argument.type, ListType):
        raise Mismatch(f"{name} needs a list, got {argument.type}")
    return argument.type


def map_type(name: str, argument: Term) -> MapType:
    """Return the type of a map argument. Raises `Mismatch` for any other type."""
    if not isinstance(argument.type, MapType):
        raise Mismatch(f"{name} needs a map, got {argument.type}")
    return argument.type


def known_type(name: str, what: str, terms: list[Term]) -> DataType:
    """Return the narrowest common type of all terms. Raises `Mismatch` if all are null."""
    common = common_type(terms)
    if common == NULL:
        raise Mismatch(f"the type of the {what} of {name} is not known", fix="give them one: lit(None, int)")
    return common


def key_type(name: str, terms: list[Term]) -> DataType:
    """Return the narrowest common type of all keys. Raises `Mismatch` if it is unknown or contains maps."""
    common = known_type(name, "keys", terms)
    if holds_maps(common):
        raise Mismatch(f"{name} cannot have the keys {common}", why="A map is never part of a key.")
    return common


def refuse_maps(name: str, compared: DataType) -> None:
    """Raise `Mismatch` for values that are or contain maps, which cannot be compared."""
    if holds_maps(compared):
        raise Mismatch(
            f"{name} cannot compare {compared}",
            why="Maps have no order, and Spark compares none.",
            fix="compare their sorted entries: array_sort(map_entries(col.m))",
        )


def part_types(
    name: str, arguments: Arguments, takes: tuple[Parameter, ...], *, compares: bool = False
) -> tuple[DataType, ...]:
    """Return the types that arguments convert to. List and map parts get their narrowest common type.

    compares: whether elements are compared, so that they cannot be maps.
    """
    elements: list[Term] = []
    keys: list[Term] = []
    values: list[Term] = []
    for argument, parameter in zip(arguments, takes, strict=False):
        if parameter == LIST and argument.type != NULL:
            found = list_type(name, argument)
            elements.append(Term(found.element, found.nullable))
        elif parameter == ELEMENT:
            elements.append(argument)
        elif parameter == MAP and argument.type != NULL:
            entries = map_type(name, argument)
            keys.append(Term(entries.key, False))
            values.append(Term(entries.value, entries.nullable))
        elif parameter == KEY:
            keys.append(argument)
    element = known_type(name, "elements", elements) if LIST in takes else NULL
    key = known_type(name, "keys", keys) if MAP in takes else NULL
    value = known_type(name, "values", values) if MAP in takes else NULL
    if compares:
        refuse_maps(name, element)

    def wanted(argument: Term, parameter: Parameter) -> DataType:
        nullable = isinstance(argument.type, ListType | MapType) and argument.type.nullable
        if parameter == LIST:
            return ListType(element, nullable)
        if parameter == MAP:
            return MapType(key, value, nullable)
        if parameter == ELEMENT:
            return element
        return key if parameter == KEY else fitting_type(name, argument.type, parameter)

    return tuple(wanted(a, p) for a, p in zip(arguments, takes, strict=False))


# -- records ---------------------------------------------------------------------------------------

Result: TypeAlias = DataType | Callable[[tuple[DataType, ...]], DataType] | None


def function(
    name: str,
    meaning: str = "",
    takes: tuple[Parameter, ...] | None = None,
    result: Result = None,
    rows: str | Callable[..., Any] = "",
    *,
    types: Rule | None = None,
    code: StrictCode | None = None,
    lazy: LazyCode | None = None,
    true: Callable[[Emitter, CallTerm], str] | None = None,
    false: Callable[[Emitter, CallTerm], str] | None = None,
    parameters: Callable[[Arguments], tuple[TypeAndNullability, ...]] | None = None,
    most_variables: int = 2,
    fallible: bool | Callable[[CallTerm], bool] = False,
    nullable: bool | Callable[[Any], bool] = False,
    keeps_nan: bool = False,
    last_first: bool | Callable[[CallTerm], bool] = False,
    approximate: bool = False,
    prepared: Mapping[int, Callable[[Any], object]] | None = None,
    constant: tuple[int, ...] = (),
    compares: bool = True,
    one_zero: bool = False,
    arity: tuple[int, int | None] | None = None,
    catalyst: str | tuple[str, ...] = (),
    columns: Lowering | None = None,
    spark: str | SparkForm | None = None,
    names: Mapping[str, Any] | None = None,
    **known: Any,
) -> Function:
    """Build the record of a function.

    takes: types of its parameters, or LIST, ELEMENT, MAP and KEY, which depend on each other. types: a typing
        rule instead, or beside them.
    result: None: the type of the first argument, as LIST or MAP; ELEMENT: that of its elements; or computed
        from the types of the arguments.
    rows: a Python function of non-null values, or source of the value with the operands as {0}, {1} ..., all
        of them as {all}; {bits} is the width of an integer result, {key} the key that sorts elements.
    code: generator of such source. lazy: that of a function which handles nulls itself, with true and false.
    parameters, most_variables: of a function of functions, see `HigherOrderFunction`.
    fallible, keeps_nan, last_first, prepared, constant, approximate: see `StrictFunction`, `FixedFunction`.
    nullable: whether the value can be null where no argument is.
    compares: whether elements are compared, so that they cannot be maps. one_zero: whether elements of the
        value have one zero, and so have those of the lists.
    spark: the name in Spark's SQL, if it is another one, or the column for a call.
    names: other names that the source uses.
    known: other fields of `FunctionRecord`.
    """
    source, runtime = rows, dict(names or {})
    if callable(source):
        runtime[f"x_{name}"] = source
        source = f"x_{name}({{all}})"
    of_parts = takes is not None and any(isinstance(each, _Part) for each in takes)
    if takes is not None:
        arity = (len(takes), len(takes))
        types = types or rule_of(name, takes, result, nullable, prepared, constant, compares=compares)
    assert types is not None, f"{name} needs a typing rule"
    assert arity is not None, f"{name} needs a number of arguments"
    facts: dict[str, Any] = {
        **known,
        "arity": arity,
        "meaning": meaning,
        "columns": columns,
        "catalyst": (catalyst,) if isinstance(catalyst, str) else catalyst,
        "runtime": runtime,
        "spark": spark if callable(spark) else _call_of_spark(spark or name),
    }
    if parameters is not None and lazy is not None:
        facts |= {"parameters": parameters, "most_variables": most_variables}
        if not callable(spark):  # the Python API alone takes functions of columns
            facts["spark"] = _python_call_of_spark(name)
        return HigherOrderFunction(name, types, lazy, fallible=bool(fallible), **facts)
    if lazy is not None:
        return LazyFunction(name, types, lazy, true, false, bool(fallible), **facts)
    code = code or _code_of(source, prepared or {}, of_parts=of_parts, one_zero=one_zero)
    facts |= {
        "keeps_nan": keeps_nan or of_parts,
        "last_first": last_first,
        "nullable": bool(nullable) if takes else nullable,
    }
    if prepared:
        fallible = _fallible_unless_constant(tuple(prepared), bool(fallible))
        facts["prepared"] = prepared
    if takes is None or of_parts:
        return StrictFunction(name, types, code, fallible, **facts)
    facts |= {"takes": takes, "result": result, "constant": constant, "approximate": approximate}
    return FixedFunction(name, types, code, fallible, **facts)


def rule_of(
    name: str,
    takes: tuple[Parameter, ...],
    result: Result,
    nullable: bool | Callable[[Arguments], bool] = False,
    prepared: Mapping[int, Callable[[Any], object]] | None = None,
    constant: tuple[int, ...] = (),
    *,
    compares: bool = True,
) -> Rule:
    """Return the typing rule of a function with arguments of these types (see `function`)."""
    of_parts = any(isinstance(each, _Part) for each in takes)

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        if len(arguments) != len(takes):
            raise Mismatch(f"{name} takes {len(takes)} arguments, got {len(arguments)}")
        if of_parts:
            types = part_types(name, arguments, takes, compares=compares)
        else:
            types = tuple(fitting_type(name, a.type, want) for a, want in zip(arguments, takes, strict=True))
        for at in constant:
            if not isinstance(arguments[at], LiteralTerm):
                raise Mismatch(f"argument {at + 1} of {name} must be a constant")
        for at, make in (prepared or {}).items():
            given = arguments[at]
            if isinstance(given, LiteralTerm) and given.value is not None:
                try:
                    make(given.value)
                except EvaluationError as error:
                    raise Mismatch(f"{name}: {error.what}", why=error.why, fix=error.fix) from error
        may_be_null = nullable(arguments) if callable(nullable) else nullable or None
        return Signature(types, _result_of(result, types), may_be_null)

    return rule


def _result_of(result: Result, types: tuple[DataType, ...]) -> DataType:
    if result is None or result in (LIST, MAP):
        return types[0]
    if not isinstance(result, DataType):
        return result(types)
    if result == ELEMENT:
        assert isinstance(types[0], ListType)
        return types[0].element
    return result


def _code_of(
    source: str, prepared: Mapping[int, Callable[[Any], object]], *, of_parts: bool, one_zero: bool
) -> StrictCode:
    def code(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        found = list(operands)
        if of_parts:
            found = [
                emitter.canonical(GuardedSource(operand, (), False)) if is_float(argument.type) else operand
                for operand, argument in zip(operands, call.arguments, strict=True)
            ]
        if one_zero and has_representatives(call.arguments[0].type):
            found = [f"x_key({operand})" for operand in found]
        for at, usual in prepared.items():
            given, make = call.arguments[at], emitter.prepare(usual)
            if isinstance(given, LiteralTerm) and given.value is not None:
                found[at] = emitter.constant(make(given.value))
            else:
                found[at] = f"{emitter.constant(make)}({found[at]})"
        key, values = "None", call.arguments[0].type if call.arguments else NULL
        if "{key}" in source and isinstance(values, ListType):
            key = emitter.constant(order_key(values.element, values.nullable))
        bits = call.type.bits if isinstance(call.type, IntegerType) else 64
        return source.format(*found, all=", ".join(found), bits=bits, key=key)

    return code


def _fallible_unless_constant(prepared: tuple[int, ...], fallible: bool) -> Callable[[CallTerm], bool]:
    def may_fail(call: CallTerm) -> bool:
        return fallible or any(not isinstance(call.arguments[at], LiteralTerm) for at in prepared)

    return may_fail


def _call_of_spark(name: str) -> SparkForm:
    return lambda call, arguments: F.call_function(name, *arguments)


def _python_call_of_spark(name: str) -> SparkForm:
    return lambda call, arguments: getattr(F, name)(*arguments)


def of_spark_column(function: Callable[[Column], Column]) -> SparkForm:
    """Return the Spark form of a function that needs only the column of its argument."""
    return lambda call, arguments: function(*arguments)


def of_spark_columns(function: Callable[[Column, Column], Column]) -> SparkForm:
    """Return the Spark form of a function that needs only the columns of its two arguments."""
    return lambda call, arguments: function(*arguments)


# -- tests of options -------------------------------------------------------------------------------


def is_type(option: object) -> bool:
    return isinstance(option, DataType)


def is_text(option: object) -> bool:
    return type(option) is str


def is_names(option: object) -> bool:
    return type(option) is tuple and all(map(is_text, cast("tuple[object, ...]", option)))


def is_span(option: object) -> bool:
    return type(option) is timedelta and fits_interval(option)


def is_digits(option: object) -> bool:
    return type(option) is int and -MAX_DIGITS <= option <= MAX_DIGITS
