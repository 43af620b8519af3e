"""Lowering of Catalyst's expressions to expressions of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, TypeAlias, cast

from headrace.errors import UnsupportedQuery
from headrace.expr.code_runtime import NAN, float32
from headrace.expr.functions import CATALOGUE
from headrace.expr.tree import Expr, FunctionCall, Literal, Ordering
from headrace.expr.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INTEGERS,
    INTERVALS,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    ListType,
    MapType,
    StructType,
)
from headrace.expr.typing_rules import Function
from headrace.queries.catalyst_plan import (
    CONSTANT,
    ESCAPE,
    PATTERNS,
    CatalystNode,
    parse_type,
    refusals_of,
    registrar,
    same_expression,
)


@dataclass(frozen=True, slots=True)
class Scope:
    """Resolution of the attributes in an expression.

    columns:   the column of each attribute, by its id.
    computed:  expressions that are columns already, such as the keys of groups and their aggregates.
    subqueries: the column of each scalar subquery, by its id.
    variables: the variables of the functions around it, by their ids.
    """

    columns: Mapping[int, Expr]
    computed: tuple[tuple[CatalystNode, Expr], ...] = ()
    subqueries: Mapping[int, Expr] = field(default_factory=dict[int, Expr])
    variables: Mapping[int, FunctionCall] = field(default_factory=dict[int, FunctionCall])

    def lower(self, node: CatalystNode) -> Expr:
        """Lower an expression. Raises `RefusedNode` naming the function that has no lowering."""
        for known, expr in self.computed:
            if same_expression(known, node):
                return expr
        with refusals_of(node):
            lowering = _LOWERINGS.get(node.kind)
            if lowering is None:
                raise UnsupportedQuery(
                    f"the query uses {node.kind}, which has no incremental form yet",
                    fix="compute it before, in a column of the table; or express it by other functions",
                    function=node.kind,
                )
            return lowering(node, self)

    def lower_all(self, nodes: tuple[CatalystNode, ...]) -> tuple[Expr, ...]:
        return tuple(map(self.lower, nodes))


ExpressionLowering: TypeAlias = Callable[[CatalystNode, Scope], Expr]
_LOWERINGS: dict[str, ExpressionLowering] = {}
lowers = registrar(_LOWERINGS)


def _plain(kind: str, function: str) -> None:
    """Register a function whose arguments are its children, in order."""

    @lowers(kind)
    def _(node: CatalystNode, scope: Scope) -> Expr:
        return FunctionCall(function, scope.lower_all(node.children))


INVOKED: dict[str, Function] = {}
"""Functions that Catalyst calls as static methods of Spark, by these."""

for _function in CATALOGUE.values():
    for _kind in _function.catalyst:
        if "." in _kind:
            INVOKED[_kind] = _function
        else:
            _plain(_kind, _function.name)


_COMPARISONS = {
    "EqualTo": "eq",
    "EqualNullSafe": "eq_null_safe",
    "LessThan": "lt",
    "LessThanOrEqual": "le",
    "GreaterThan": "gt",
    "GreaterThanOrEqual": "ge",
    "In": "is_in",
}


@lowers(*_COMPARISONS)
def _comparison(node: CatalystNode, scope: Scope) -> Expr:
    arguments = scope.lower_all(node.children)
    if any(_has_fields(each) for child in node.children for each in child.walk()):
        # Names of fields do not matter.
        arguments = tuple(FunctionCall("by_position", (each,)) for each in arguments)
    return FunctionCall(_COMPARISONS[node.kind], arguments)


def _has_fields(node: CatalystNode) -> bool:
    return node.kind == "CreateNamedStruct" or isinstance(node.fields.get("dataType"), dict)


@lowers("Like")
def _like(node: CatalystNode, scope: Scope) -> Expr:
    text, pattern = scope.lower_all(node.children)
    return text.like(pattern, escape=node.fields.get(ESCAPE, "\\"))


_LIKES = {
    "LikeAny": ("or", False),
    "NotLikeAny": ("or", True),
    "LikeAll": ("and", False),
    "NotLikeAll": ("and", True),
}


@lowers(*_LIKES)
def _like_several(node: CatalystNode, scope: Scope) -> Expr:
    join, negated = _LIKES[node.kind]
    text = scope.lower(node.children[0])
    parts = [text.like(typed_constant(each, STR)) for each in node.fields[PATTERNS]]
    parts = [~each for each in parts] if negated else parts
    while len(parts) > 1:
        # As a tree, whose depth Python can take.
        pairs = [FunctionCall(join, tuple(pair)) for pair in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


@lowers("AttributeReference")
def _attribute(node: CatalystNode, scope: Scope) -> Expr:
    if node.expr_id not in scope.columns:
        parse_type(node.fields["dataType"])  # a table has the columns of all other types
    return scope.columns[node.expr_id]


@lowers("Alias")
def _alias(node: CatalystNode, scope: Scope) -> Expr:
    child = node.child("child")
    # A column that is nothing but an error has a type all the same.
    return _error_as_text(child, scope) if _is_error(child) else scope.lower(child)


def _is_error(node: CatalystNode) -> bool:
    """Return whether an expression can yield an error and otherwise only null."""
    if node.kind in ("CaseWhen", "If"):
        values = [*node.children[1::2], *(node.children[-1:] if len(node.children) % 2 else ())]
        return all(_is_error(value) or _is_null(value) for value in values) and any(map(_is_error, values))
    return node.kind == "RaiseError"


def _is_null(node: CatalystNode) -> bool:
    return node.kind == "Literal" and node.fields["value"] is None


def _error_as_text(node: CatalystNode, scope: Scope) -> Expr:
    if node.kind == "RaiseError":
        return FunctionCall("cast", (scope.lower(node),), (STR,))
    if not _is_error(node):
        return Literal(None) if _is_null(node) else scope.lower(node)
    return _choice(tuple(_error_as_text(child, scope) for child in node.children))


@lowers("ScalarSubquery")
def _subquery(node: CatalystNode, scope: Scope) -> Expr:
    value = scope.subqueries.get(node.expr_id)
    if value is None:
        raise UnsupportedQuery(
            "a subquery as a value in this place", fix="compute it in a SELECT below, as a column"
        )
    return value


# -- constants -----------------------------------------------------------------------------


@lowers("Literal")
def _literal(node: CatalystNode, scope: Scope) -> Expr:
    text, type = node.fields["value"], node.fields["dataType"]
    if CONSTANT in node.fields:
        return typed_constant(node.fields[CONSTANT], parse_type(type))
    return constant(text, parse_type(type))


def constant(text: str | None, type: DataType) -> Expr:
    """Parse Catalyst's text of a constant of a type."""
    if text is None:
        return FunctionCall("cast", (Literal(None),), (type,))
    read = _CONSTANTS.get(DecimalType if isinstance(type, DecimalType) else type)
    if read is None:
        raise UnsupportedQuery(
            f"a constant of type {type} in the query",
            fix="write it as a cast of text, or put it into a table",
        )
    if isinstance(type, DecimalType):
        return FunctionCall("cast", (Literal(Decimal(text)),), (type,))
    try:
        return Literal(read(text), type)
    except ValueError:  # a year beyond 9999
        raise UnsupportedQuery(f"the query has the constant {text}, which is no {type} here") from None


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


_CONSTANTS: dict[Any, Callable[[str], Any]] = {
    BOOL: lambda text: text == "true",
    **dict.fromkeys(INTEGERS, int),
    FLOAT32: lambda text: float32(NAN if text == "NaN" else float(text)),
    FLOAT64: lambda text: NAN if text == "NaN" else float(text),
    STR: str,
    DATE: date.fromisoformat,
    TIMESTAMP: _moment,
    TIMESTAMP_NTZ: lambda micros: datetime(1970, 1, 1) + timedelta(microseconds=int(micros)),
    **dict.fromkeys(INTERVALS, lambda micros: timedelta(microseconds=int(micros))),
    DecimalType: Decimal,
    BYTES: bytes.fromhex,
}


# -- conditions ----------------------------------------------------------------------------


@lowers("KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", "NormalizeNaNAndZero")
def _known(node: CatalystNode, scope: Scope) -> Expr:
    return scope.lower(node.children[0])


# -- nested values -------------------------------------------------------------------------


@lowers("CreateNamedStruct")
def _named_struct(node: CatalystNode, scope: Scope) -> Expr:
    names = tuple(str(child.fields["value"]) for child in node.children[::2])
    return FunctionCall("struct", scope.lower_all(node.children[1::2]), (names,))


@lowers("GetStructField")
def _struct_field(node: CatalystNode, scope: Scope) -> Expr:
    child, at = node.child("child"), node.fields["ordinal"]
    type = child.fields.get("dataType")
    if type is not None:
        name = type["fields"][at]["name"]
    elif child.kind == "CreateNamedStruct":
        return scope.lower(child.children[2 * at + 1])
    else:
        name = node.fields["name"]
    return FunctionCall("field", (scope.lower(child),), (name,))


@lowers("GetArrayItem")
def _item(node: CatalystNode, scope: Scope) -> Expr:
    return FunctionCall("element" if node.fields["failOnError"] else "get", scope.lower_all(node.children))


@lowers("CaseWhen", "If")
def _when(node: CatalystNode, scope: Scope) -> Expr:
    return _choice(scope.lower_all(node.children))


def _choice(parts: tuple[Expr, ...]) -> Expr:
    """Build a conditional from alternating conditions and values, and an optional default value."""
    return FunctionCall("when", parts if len(parts) % 2 else (*parts, Literal(None)))


# -- casts and numbers -----------------------------------------------------------------------


@lowers("Cast", "TryCast")
def _cast(node: CatalystNode, scope: Scope) -> Expr:
    name = "cast" if node.kind == "Cast" else "try_cast"
    return FunctionCall(name, (scope.lower(node.child("child")),), (parse_type(node.fields["dataType"]),))


@lowers("Round")
def _round(node: CatalystNode, scope: Scope) -> Expr:
    return rounded(node, scope, lambda value, digits: value.round(digits))


def rounded(node: CatalystNode, scope: Scope, make: Callable[[Expr, int], Expr]) -> Expr:
    """Lower a rounding to a constant number of digits, which may be null. make: from a value and a number."""
    value, digits = node.children
    if digits.kind != "Literal":
        raise UnsupportedQuery(
            f"{node.kind} to a number of digits that is no constant", function=node.kind.lower()
        )
    count = digits.fields["value"]
    if count is None:
        return FunctionCall("when", (Literal(False), make(scope.lower(value), 0), Literal(None)))
    return make(scope.lower(value), int(count))


# -- text and time -----------------------------------------------------------------------------


@lowers("StringTrim")
def _trim(node: CatalystNode, scope: Scope) -> Expr:
    arguments = scope.lower_all(node.children)
    return FunctionCall("btrim" if len(arguments) > 1 else "trim", arguments)


@lowers("StringTrimLeft", "StringTrimRight")
def _trim_one_end(node: CatalystNode, scope: Scope) -> Expr:
    arguments, name = scope.lower_all(node.children), "ltrim" if node.kind == "StringTrimLeft" else "rtrim"
    return FunctionCall(f"{name}_of" if len(arguments) > 1 else name, arguments)


@lowers("Levenshtein")
def _levenshtein(node: CatalystNode, scope: Scope) -> Expr:
    one, other, *most = scope.lower_all(node.children)
    distance = FunctionCall("levenshtein", (one, other))
    if not most:
        return distance
    # Beyond a given distance it is -1.
    far = FunctionCall("gt", (distance, most[0]))
    near = FunctionCall("when", (most[0].is_not_null(), distance, Literal(None)))
    return FunctionCall("when", (far, typed_constant(-1, INT32), near))


def orderings(orders: Iterable[CatalystNode], lower: Callable[[CatalystNode], Expr]) -> Iterator[Ordering]:
    """Yield the lowered orderings of `SortOrder`s."""
    for order in orders:
        expr, descending = lower(order.child("child")), order.setting("direction") == "Descending"
        nulls_first = order.setting("nullOrdering") == "NullsFirst"
        if nulls_first == descending:
            # Nulls come first ascending and last descending, unless asked for otherwise.
            yield Ordering(expr.is_null(), descending=nulls_first)
        yield Ordering(expr, descending)


def typed_constant(value: object, type: DataType) -> Expr:
    """Return an internal value as a constant of a type."""
    if isinstance(type, StructType) and isinstance(value, tuple):
        parts = zip(cast("tuple[object, ...]", value), type.fields, strict=True)
        names = tuple(field.name for field in type.fields)
        return FunctionCall(
            "struct", tuple(typed_constant(part, field.type) for part, field in parts), (names,)
        )
    if isinstance(type, ListType) and isinstance(value, tuple):
        elements = [typed_constant(each, type.element) for each in cast("tuple[object, ...]", value)]
        nothing = FunctionCall("array_repeat", (typed_constant(None, type.element), Literal(0)))
        return FunctionCall("array", tuple(elements)) if elements else nothing
    if isinstance(type, MapType) and isinstance(value, tuple):
        entries = cast("tuple[tuple[object, object], ...]", value)
        parts = ((typed_constant(k, type.key), typed_constant(v, type.value)) for k, v in entries)
        nothing = (typed_constant((), ListType(each)) for each in (type.key, type.value))
        return (
            FunctionCall("map", tuple(chain(*parts)))
            if entries
            else FunctionCall("map_from_arrays", tuple(nothing))
        )
    if value is None or isinstance(type, DecimalType):
        return FunctionCall("cast", (Literal(value),), (type,))
    return Literal(value, type)


def zero_of(type: DataType) -> Expr | None:
    """Return an arbitrary constant of a type; None for types without constants."""
    if isinstance(type, DecimalType):
        return constant("0", type)
    text = {BOOL: "false", STR: "", DATE: "1970-01-01", TIMESTAMP: "1970-01-01 00:00:00", BYTES: ""}
    return constant(text.get(type, "0"), type) if type in _CONSTANTS else None
