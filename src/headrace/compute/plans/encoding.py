"""Encoding of operators to plan messages: equal values give equal bytes in every process."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import singledispatchmethod
from typing import Any, cast

from headrace.compute.errors import BadPlan, CallableRefused, file_name
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.plans.registry import (
    CHOICE_NAMES,
    FUNCTION_NAMES,
    RECORD_NAMES,
    PlanPosition,
    record_fields,
)
from headrace.errors import Step
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import (
    ANY,
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INTEGERS,
    INTERVALS,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    Schema,
    StructType,
)
from headrace.graph.node import FlowGraph, Node, is_named, label_in_sentence
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.operators.signals.earlier_values import SignalSource

PLAIN_TYPES: dict[str, DataType] = {
    str(each): each
    for each in (
        BOOL,
        *INTEGERS,
        FLOAT32,
        FLOAT64,
        STR,
        BYTES,
        DATE,
        TIMESTAMP,
        TIMESTAMP_NTZ,
        *INTERVALS,
        ANY,
    )
}
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_CONSTANTS: tuple[type[Any], ...] = (bool, int, float, str, bytes, datetime, date, Decimal)


class ValueEncoder:
    """Encoder of values, which collects Python objects without a portable form.

    functions:   these objects, in order of occurrence; empty in a portable plan.
    row_classes: whether the row classes that functions receive are included.
    """

    def __init__(self, *, row_classes: bool = False) -> None:
        self.functions: list[object] = []
        self.position = PlanPosition()
        self._row_classes = row_classes
        self._numbers: dict[int, int] = {}

    def value(self, value: object) -> pb.Value:
        """Encode any operator value."""
        kind = cast("type[Any]", type(value))
        if kind in RECORD_NAMES:
            return pb.Value(record=self.record(value))
        if kind in CHOICE_NAMES:
            return pb.Value(choice=pb.Choice(name=CHOICE_NAMES[kind], member=cast("Enum", value).name))
        if isinstance(value, Expr):
            return pb.Value(expr=self.expr(value))
        if isinstance(value, DataType):
            return pb.Value(type=self.type(value))
        if isinstance(value, Schema):
            return pb.Value(schema=self.schema(value))
        # A subclass, such as an enum of str, may be more than it is equal to.
        write = _PLAIN.get(kind)
        if write is not None:
            return write(self, value)
        if callable(value) and _is_known(value):
            return pb.Value(known_function=FUNCTION_NAMES[value])
        return pb.Value(function=self._function(value))

    def record(self, value: object) -> pb.Record:
        """Encode a record with named fields."""
        members: list[pb.Member] = []
        for field in record_fields(type(value)):
            held = getattr(value, field.name)
            if is_default(field, held):
                continue
            with self.position.enter(field.name.replace("_", " ")):
                members.append(pb.Member(name=field.name, value=self.value(held)))
        return pb.Record(name=RECORD_NAMES[type(value)], members=members)

    def _function(self, value: object) -> int:
        at = self._numbers.get(id(value))
        if at is None:
            at = self._numbers[id(value)] = len(self.functions)
            self.functions.append(value)
        return at

    def expr(self, expr: Expr) -> pb.Expr:
        """Encode an expression in postfix order."""
        terms: list[pb.Term] = []
        waiting: list[Expr] = [expr]
        # Last arguments first, then turned round: trees may be deeper than Python's stack.
        while waiting:
            part = waiting.pop()
            terms.append(self._term(part))
            waiting.extend(part.children())
        return pb.Expr(terms=reversed(terms))

    @singledispatchmethod
    def _term(self, expr: Expr) -> pb.Term:
        raise self.position.build_error(f"{type(expr).__name__} is no expression that can travel")

    @_term.register(Column)
    def _column(self, expr: Column) -> pb.Term:
        return pb.Term(column=pb.ColumnTerm(name=self.text(expr.name), side=expr.side or ""))

    @_term.register(Literal)
    def _literal(self, expr: Literal) -> pb.Term:
        value = self.value(_constant(expr.value))
        if value.WhichOneof("kind") == "function":
            raise self.position.build_error(f"{type(expr.value).__name__} is no constant of an expression")
        if expr.type is None:
            return pb.Term(literal=pb.LiteralTerm(value=value))
        return pb.Term(literal=pb.LiteralTerm(value=value, type=self.type(expr.type)))

    @_term.register(FunctionCall)
    def _call(self, expr: FunctionCall) -> pb.Term:
        options = [self.value(option) for option in expr.options]
        call = pb.CallTerm(function=expr.function, arguments=len(expr.arguments), options=options)
        return pb.Term(call=call)

    def schema(self, schema: Schema) -> pb.Schema:
        """Encode the columns of a stream."""
        # The class of a scalar adds nothing to its column.
        row_class = 0 if schema.scalar else self._row_class(schema.row_class)
        return pb.Schema(fields=self._fields(schema.fields), scalar=schema.scalar, row_class=row_class)

    def _row_class(self, row_class: type | None) -> int:
        return 0 if row_class is None or not self._row_classes else 1 + self._function(row_class)

    def _fields(self, fields: Iterable[Field]) -> list[pb.Field]:
        return [pb.Field(name=self.text(f.name), type=self.type(f.type), nullable=f.nullable) for f in fields]

    @singledispatchmethod
    def type(self, type: DataType) -> pb.Type:
        """Encode the type of a column."""
        if PLAIN_TYPES.get(str(type)) != type:
            raise self.position.build_error(f"{type} is no type that can travel")
        return pb.Type(plain=str(type))

    @type.register(DecimalType)
    def _decimal_type(self, type: DecimalType) -> pb.Type:
        return pb.Type(decimal=pb.DecimalType(precision=type.precision, scale=type.scale))

    @type.register(StructType)
    def _struct(self, type: StructType) -> pb.Type:
        row_class = self._row_class(type.row_class)
        return pb.Type(struct=pb.StructType(fields=self._fields(type.fields), row_class=row_class))

    @type.register(ListType)
    def _list(self, type: ListType) -> pb.Type:
        return pb.Type(list=pb.ListType(element=self.type(type.element), nullable=type.nullable))

    @type.register(MapType)
    def _map(self, type: MapType) -> pb.Type:
        key, value = self.type(type.key), self.type(type.value)
        return pb.Type(map=pb.MapType(key=key, value=value, nullable=type.nullable))

    def text(self, text: str) -> str:
        """Validate text for use in a message. Raises `BadPlan` for invalid Unicode."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.position.build_error(f"{text!r} is no text that can travel") from None
        return text

    def sequence(self, items: Sequence[object]) -> pb.Values:
        return pb.Values(items=[self.value(item) for item in items])

    def set(self, items: Iterable[object]) -> pb.Values:
        written = (self.value(item) for item in items)
        return pb.Values(items=sorted(written, key=_in_order))


def _in_order(value: pb.Value) -> bytes:
    """Return the sort key of a set member."""
    return value.SerializeToString(deterministic=True)


def is_default(field: dataclasses.Field[Any], value: object) -> bool:
    """Return whether a field has its default value."""
    default = field.default
    if default is dataclasses.MISSING or type(value) is not type(default):
        return False
    return value is default or repr(value) == repr(default)


def _is_known(value: Callable[..., object]) -> bool:
    try:
        return value in FUNCTION_NAMES
    except TypeError:  # not hashable
        return False


def _constant(value: object) -> object:
    """Convert a constant of a subclass to its base type."""
    if type(value) in _PLAIN:
        return value
    for kind in _CONSTANTS:
        if isinstance(value, kind):
            return datetime.fromisoformat(value.isoformat()) if isinstance(value, datetime) else kind(value)
    return value


def _integer(writer: ValueEncoder, value: int) -> pb.Value:
    if -(2**63) <= value < 2**63:
        return pb.Value(integer=value)
    return pb.Value(large_integer=value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _span(writer: ValueEncoder, value: timedelta) -> pb.Value:
    return pb.Value(span=pb.Span(days=value // _DAY, microseconds=(value % _DAY) // _MICROSECOND))


_PLAIN: dict[type[Any], Callable[[ValueEncoder, Any], pb.Value]] = {
    type(None): lambda writer, value: pb.Value(nothing=pb.Nothing()),
    bool: lambda writer, value: pb.Value(truth=value),
    int: _integer,
    # Of all NaNs one stands for all.
    float: lambda writer, value: pb.Value(number=value if value == value else float("nan")),
    str: lambda writer, value: pb.Value(text=writer.text(value)),
    bytes: lambda writer, value: pb.Value(octets=value),
    Decimal: lambda writer, value: pb.Value(decimal=str(value)),
    date: lambda writer, value: pb.Value(date=value.isoformat()),
    datetime: lambda writer, value: pb.Value(moment=value.isoformat()),
    timedelta: _span,
    tuple: lambda writer, value: pb.Value(sequence=writer.sequence(value)),
    frozenset: lambda writer, value: pb.Value(set=writer.set(value)),
}


VERSION = 1
"""Version of the encoding of plans."""


def encode_body(nodes: tuple[Node, ...], writer: ValueEncoder, *, given_ticks: bool) -> pb.Body:
    """Encode operators as the body of a plan; `writer` collects their Python objects."""
    return pb.Body(
        version=VERSION, given_ticks=given_ticks, nodes=[encode_node(node, writer) for node in nodes]
    )


def encode_node(node: Node, writer: ValueEncoder) -> pb.Node:
    """Encode one operator. Raises `BadPlan` for one that a plan cannot contain."""
    if type(node.operator) not in RECORD_NAMES:
        raise BadPlan(f"{node.operator.kind} is no operator that a plan can have", where=[node.location])
    with writer.position.enter(node.name):
        operator = writer.record(node.operator)
        return pb.Node(operator=operator, inputs=node.inputs, schema=writer.schema(node.schema))


def encode_locations(flow: str, nodes: Sequence[Node]) -> bytes:
    """Encode source locations and user-given names of operators. Paths of files are omitted."""
    named = [_text(file_name(node.location.file)) for node in nodes]
    files = {file: at for at, file in enumerate(dict.fromkeys(named))}
    places = [
        pb.Place(
            file=files[file],
            line=max(node.location.line, 0),
            function=_text(node.location.function),
            name=_text(_given_name(node)),
        )
        for node, file in zip(nodes, named, strict=True)
    ]
    written = pb.Places(flow=_text(flow), files=list(files), places=places)
    return written.SerializeToString(deterministic=True)


def _given_name(node: Node) -> str:
    """Return an operator's user-given name, unless the name belongs to the operator's definition."""
    own = isinstance(node.operator, SourceOperator | SignalSource | SinkOperator)
    return node.name if is_named(node) and not own else ""


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()


_SHOWN = 5


def refuse_callables(graph: FlowGraph, nodes: Sequence[tuple[Node, str]]) -> CallableRefused:
    """Create the error for operators that hold Python objects, naming the objects."""
    listed = [label_in_sentence(graph, node) for node, _ in nodes[:_SHOWN]] + ["..."] * (len(nodes) > _SHOWN)
    return CallableRefused(
        f"flow {graph.name!r} holds Python functions, which a plan does not carry: in {', '.join(listed)}",
        where=[Step(node.location, what) for node, what in nodes[:_SHOWN]],
        why="A plan is data that anybody may read; a function is code that would be run by the reader.",
        fix="use expressions: filter(hr.col.price > 10), select(double=hr.col.price * 2);\n"
        "or allow functions on both sides, allow_callables=True or --allow-callables",
        operators=tuple(node.name for node, _ in nodes),
    )


def pickle_callables(objects: Sequence[object]) -> bytes:
    """Pickle Python objects, by value if they are defined in the user's own modules.

    Raises `CallableRefused` if the pickler is not installed, or fails.
    """
    if not objects:
        return b""
    cloudpickle = _cloudpickle()
    from headrace.spark.ticks.plan import by_value

    try:
        with by_value(cloudpickle):
            return cast("bytes", cloudpickle.dumps(list(objects), protocol=5))
    except (pickle.PicklingError, TypeError, ValueError, AttributeError) as error:
        raise CallableRefused(
            f"a function of the flow cannot travel: {error}",
            why="Something that it holds (a lock, an open file, a connection) lives in this process alone.",
            fix="let it make what it needs when it is called",
            operators=(),
        ) from None


def unpickle_callables(data: bytes) -> list[object]:
    """Unpickle a plan's objects. This runs the sender's code, so it requires that callables are allowed.

    Raises `BadPlan` for invalid bytes.
    """
    if not data:
        return []
    _cloudpickle()
    try:
        objects: Any = pickle.loads(data)
    except Exception as error:
        raise BadPlan(
            f"the functions of the plan cannot be loaded: {error}",
            why="They need the same Python, and the packages that they import.",
            fix="install the packages that they import in the environment of this process",
            part="functions",
        ) from None
    if not isinstance(objects, list):
        raise BadPlan("the functions of the plan are no list", part="functions")
    return cast("list[object]", objects)


def _cloudpickle() -> Any:
    try:
        from pyspark import cloudpickle
    except ImportError:
        pass
    else:
        return cloudpickle
    try:
        import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise CallableRefused(
            "functions cannot travel: there is nothing here that makes them portable",
            why="Functions of your own modules and lambdas are pickled by value, which plain pickle cannot.",
            fix="pip install cloudpickle, or headrace[spark], which brings it",
            operators=(),
        ) from None
    return cloudpickle
