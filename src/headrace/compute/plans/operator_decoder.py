"""Decoding of plan messages to operator values: input is untrusted, and names resolve in registries only."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from headrace.compute.errors import BadPlan
from headrace.compute.plans.encoding import PLAIN_TYPES
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.plans.registry import (
    CHOICE_NAMES,
    CHOICES,
    FUNCTIONS,
    RECORD_NAMES,
    RECORDS,
    PlanLimits,
    PlanPosition,
    check_size,
    record_fields,
    record_type_hints,
)
from headrace.expr.functions import CATALOGUE
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import (
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    Schema,
    StructType,
    holds_any,
    holds_maps,
)

_UNIONS = (typing.Union, types.UnionType)


def matches_annotation(value: object, hint: Any) -> bool:
    """Return whether a value has exactly the annotated type; subclasses of numbers and text do not count."""
    if hint is object:
        return _is_plain(value)
    if hint is None or hint is type(None):
        return value is None
    origin = typing.get_origin(hint)
    if origin in _UNIONS:
        return any(matches_annotation(value, option) for option in typing.get_args(hint))
    if origin is tuple:
        return type(value) is tuple and _items_fit(cast("tuple[object, ...]", value), typing.get_args(hint))
    if origin is Callable:
        return callable(value)
    if isinstance(hint, type) and issubclass(hint, Expr | DataType | Enum):
        return isinstance(value, hint)
    # A base such as `Aggregation` stands for all that is registered of it.
    return type(value) is hint or (type(value) in RECORD_NAMES and isinstance(value, hint))


def _items_fit(value: tuple[object, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(matches_annotation(item, hints[0]) for item in value)
    return len(value) == len(hints) and all(map(matches_annotation, value, hints))


def _is_plain(value: object) -> bool:
    """Return whether a value is user data rather than part of an operator."""
    if isinstance(value, tuple | frozenset):
        return all(map(_is_plain, cast("tuple[object, ...]", value)))
    parts = type(value) in RECORD_NAMES or type(value) in CHOICE_NAMES
    return not parts and not isinstance(value, Expr | DataType | Schema)


_Number = TypeVar("_Number", int, Decimal)

_SIDES = {"": None, "left": "left", "right": "right"}
_MAX_DIGITS = 38
_MAX_OF_ONE_HASH = 50
"""Limit on numbers with the same hash. Number hashes are predictable, so thousands of colliding numbers in
one set could keep the decoder busy for minutes."""


def parse_message(message: Message, data: bytes, what: str, limits: PlanLimits) -> None:
    """Parse a protobuf message from bytes.

    Raises `MessageTooLarge`, and `BadPlan` for invalid bytes.
    """
    check_size(what, len(data), limits.size)
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadPlan(
            f"{what} cannot be read",
            why=f"The bytes are no protobuf message of that kind: {error}.",
            fix="encode it with the same version of headrace.compute.plans",
            part="",
        ) from None


class ValueDecoder:
    """Decoder of values. Raises `BadPlan` for an invalid value, naming the part.

    functions: the plan's opaque objects.
    """

    def __init__(self, limits: PlanLimits, functions: Sequence[object] = ()) -> None:
        self.position = PlanPosition()
        self._limits = limits
        self._functions = functions
        self._terms = 0
        self._by_hash: dict[int, set[int | Decimal]] = {}

    def value(self, value: pb.Value) -> Any:
        """Decode any operator value."""
        kind = value.WhichOneof("kind")
        if kind is None:
            raise self.position.build_error("a value is missing")
        return _READ[kind](self, getattr(value, kind))

    def record(self, record: pb.Record) -> Any:
        """Decode a record, whose fields must have their declared types."""
        cls = RECORDS.get(record.name)
        if cls is None:
            raise self.position.build_error(f"{record.name!r} is not known")
        fields = {field.name: field for field in record_fields(cls)}
        hints = record_type_hints(cls)
        given: dict[str, Any] = {}
        for member in record.members:
            if member.name not in fields or member.name in given:
                twice = "is there twice" if member.name in given else "is no field of it"
                raise self.position.build_error(f"{member.name!r} {twice}")
            with self.position.enter(member.name.replace("_", " ")):
                given[member.name] = self.value(member.value)
                if not matches_annotation(given[member.name], hints[member.name]):
                    raise self.position.build_error("there is a value of another kind than belongs there")
        for name, field in fields.items():
            if name not in given and field.default is dataclasses.MISSING:
                raise self.position.build_error(f"{name!r} is missing")
        return cls(**given)

    def _choice(self, choice: pb.Choice) -> Any:
        members = CHOICES.get(choice.name)
        if members is None or choice.member not in members.__members__:
            raise self.position.build_error(f"there is no {choice.name!r} that is {choice.member!r}")
        return members[choice.member]

    def _known_function(self, name: str) -> Callable[..., object]:
        if name not in FUNCTIONS:
            raise self.position.build_error(f"there is no function {name!r}")
        return FUNCTIONS[name]

    def _function(self, at: int) -> object:
        if at >= len(self._functions):
            raise self.position.build_error(f"there is no function number {at}")
        return self._functions[at]

    def _large_integer(self, octets: bytes) -> int:
        # Three bits and a bit make a digit.
        if len(octets) * 8 > self._limits.digits * 3:
            raise self.position.build_error(f"a number of {len(octets)} bytes is too large")
        return self._spread(int.from_bytes(octets, "big", signed=True))

    def _decimal(self, text: str) -> Decimal:
        if len(text) > self._limits.digits:
            raise self.position.build_error("a decimal is too long")
        try:
            value = Decimal(text)
        except InvalidOperation:
            raise self.position.build_error(f"{text!r} is no decimal") from None
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and abs(exponent) > self._limits.digits:
            raise self.position.build_error(f"the decimal {text!r} is too large or too small")
        return self._spread(value) if value.is_finite() else value

    def _spread(self, value: _Number) -> _Number:
        same = self._by_hash.setdefault(hash(value), set())
        same.add(value)
        if len(same) > _MAX_OF_ONE_HASH:
            raise self.position.build_error(f"more than {_MAX_OF_ONE_HASH} numbers have one hash")
        return value

    def _date(self, text: str) -> date:
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise self.position.build_error(f"{text!r} is no date") from None

    def _moment(self, text: str) -> datetime:
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise self.position.build_error(f"{text!r} is no moment") from None

    def _span(self, span: pb.Span) -> timedelta:
        try:
            return timedelta(days=span.days, microseconds=span.microseconds)
        except OverflowError:
            raise self.position.build_error("a span of time is too long") from None

    def sequence(self, values: pb.Values) -> tuple[Any, ...]:
        return tuple(self.value(item) for item in values.items)

    def _set(self, values: pb.Values) -> frozenset[Any]:
        try:
            return frozenset(self.sequence(values))
        except TypeError:
            raise self.position.build_error("a member of a set cannot be one") from None

    def expr(self, expr: pb.Expr) -> Expr:
        """Decode a well-formed expression; its types are checked against a schema later."""
        self._terms += len(expr.terms)
        if self._terms > self._limits.terms:
            raise self.position.build_error(f"there are more than {self._limits.terms} terms of expressions")
        done: list[tuple[Expr, int]] = []
        for term in expr.terms:
            made, depth = self._term(term, done)
            if depth > self._limits.depth:
                raise self.position.build_error(f"an expression is more than {self._limits.depth} deep")
            done.append((made, depth))
        if len(done) != 1:
            raise self.position.build_error("terms do not make one expression")
        return done[0][0]

    def _term(self, term: pb.Term, done: list[tuple[Expr, int]]) -> tuple[Expr, int]:
        kind = term.WhichOneof("kind")
        if kind == "column":
            if term.column.side not in _SIDES:
                raise self.position.build_error(f"a column is on the side {term.column.side!r}")
            return Column(self.position.check_name(term.column.name), _SIDES[term.column.side]), 1
        if kind == "literal":
            return self._literal(term.literal), 1
        if kind == "call":
            return self._call(term.call, done)
        raise self.position.build_error("a term is missing")

    def _literal(self, literal: pb.LiteralTerm) -> Literal:
        if literal.value.WhichOneof("kind") not in _CONSTANTS:
            raise self.position.build_error("a constant is of a kind that no column has")
        value = self.value(literal.value)
        return Literal(value, self.type(literal.type) if literal.HasField("type") else None)

    def _call(self, call: pb.CallTerm, done: list[tuple[Expr, int]]) -> tuple[Expr, int]:
        function = CATALOGUE.get(call.function)
        if function is None:
            raise self.position.build_error(f"there is no function {call.function!r}")
        options = tuple(self.value(option) for option in call.options)
        if call.arguments > len(done) or not function.accepts(call.arguments, options):
            raise self.position.build_error(f"{call.function!r} has not the arguments that it needs")
        first = len(done) - call.arguments
        arguments = done[first:]
        del done[first:]
        made = FunctionCall(call.function, tuple(expr for expr, _ in arguments), options)
        return made, 1 + max((depth for _, depth in arguments), default=0)

    def schema(self, schema: pb.Schema) -> Schema:
        """Decode the columns of a stream."""
        fields = self._fields(schema.fields, 0)
        if schema.scalar and len(fields) != 1:
            raise self.position.build_error("rows that are single values have not one column")
        if schema.scalar and schema.row_class:
            raise self.position.build_error("rows that are single values have a class")
        return Schema(fields, self._row_class(schema.row_class), schema.scalar)

    def _row_class(self, given: int) -> type[Any] | None:
        if not given:
            return None
        found = self._function(given - 1)
        if not isinstance(found, type):
            raise self.position.build_error(f"function number {given - 1} is no class of rows")
        return found

    def _fields(self, fields: Iterable[pb.Field], nesting: int) -> tuple[Field, ...]:
        listed = list(fields)
        if len(listed) > self._limits.columns:
            raise self.position.build_error(f"there are more than {self._limits.columns} columns")
        read = tuple(
            Field(self.position.check_name(f.name), self.type(f.type, nesting), f.nullable) for f in listed
        )
        if len({f.name for f in read}) < len(read):
            raise self.position.build_error("two columns have one name")
        return read

    def type(self, type: pb.Type, nesting: int = 0) -> DataType:
        """Decode the type of a column."""
        if nesting > self._limits.nesting:
            raise self.position.build_error(f"types are nested more than {self._limits.nesting} deep")
        kind = type.WhichOneof("kind")
        if kind == "plain" and type.plain in PLAIN_TYPES:
            return PLAIN_TYPES[type.plain]
        if kind == "decimal":
            precision, scale = type.decimal.precision, type.decimal.scale
            if 1 <= precision <= _MAX_DIGITS and scale <= precision:
                return DecimalType(precision, scale)
        if kind == "struct":
            fields = self._fields(type.struct.fields, nesting + 1)
            if fields:
                return StructType(fields, self._row_class(type.struct.row_class))
        if kind == "list":
            return ListType(self.type(type.list.element, nesting + 1), type.list.nullable)
        if kind == "map":
            key, value = self.type(type.map.key, nesting + 1), self.type(type.map.value, nesting + 1)
            if not holds_maps(key) and not holds_any(key):
                return MapType(key, value, type.map.nullable)
        raise self.position.build_error("a type is none that there is")


_NUMBERS = ("truth", "integer", "large_integer", "number", "decimal")
_CONSTANTS = frozenset((*_NUMBERS, "nothing", "text", "octets", "date", "moment", "span"))
_OWN = ("large_integer", "decimal", "date", "moment", "span", "set", "choice", "known_function", "function")

_READ: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda reader, _: None,
    **dict.fromkeys(("truth", "integer", "number", "text", "octets"), lambda reader, value: value),
    **{kind: getattr(ValueDecoder, f"_{kind}") for kind in _OWN},
    "sequence": ValueDecoder.sequence,
    "record": ValueDecoder.record,
    "expr": ValueDecoder.expr,
    "type": ValueDecoder.type,
    "schema": ValueDecoder.schema,
}
