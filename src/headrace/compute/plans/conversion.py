"""Conversion of flows, expressions and schemas to plans and back, with all the checks of the flow API."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import DecodeError, EncodeError

from headrace.analysis import analyse
from headrace.compute.errors import BadPlan, CallableRefused, mark_remote_file
from headrace.compute.plans.encoding import (
    VERSION,
    ValueEncoder,
    encode_body,
    encode_locations,
    encode_node,
    pickle_callables,
    refuse_callables,
    unpickle_callables,
)
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.plans.operator_decoder import ValueDecoder, parse_message
from headrace.compute.plans.registry import LIMITS, PlanLimits, PlanPosition, check_size
from headrace.compute.protocol.commands import PlanBytes
from headrace.engine.program import compile_program
from headrace.errors import HeadraceError, SourceLocation
from headrace.expr.bounds import check_patterns
from headrace.expr.check import check
from headrace.expr.compile_python import compile_rows
from headrace.expr.tree import Expr
from headrace.expr.types import BOOL, Schema
from headrace.expr.typing_rules import bounded_code
from headrace.flow.flow import Flow
from headrace.flow.state_expiry import FlowContext
from headrace.flow.stream import Stream
from headrace.graph.node import Columns, Node, Operator
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.operators.feedback import FeedbackOperator
from headrace.operators.signals.earlier_values import LastRow, SignalSource, ValueRows
from headrace.operators.signals.lift import SignalOperator
from headrace.operators.union import ChainFirstN, Union


def encode(flow: Flow, *, allow_callables: bool = False, limits: PlanLimits = LIMITS) -> PlanBytes:
    """Encode a flow as a plan, byte-identical for equal flows in every process.

    Source locations, the flow's name and operators' names are not part of the body. Python functions are
    included only with `allow_callables`; plans with functions are equal only if the functions' bytes are.

    Raises `CallableRefused`; `MessageTooLarge` and `BadPlan` for a plan beyond the limits, which
    no process would accept; and the errors of `analyse` for a flow that cannot run.
    """
    analyse(flow.graph())
    try:
        octets = _octets(flow, allow_callables=allow_callables)
    except (DecodeError, EncodeError, RecursionError):
        raise BadPlan(
            f"flow {flow.name!r} holds a value or a type that is nested too deeply to travel",
            why="Messages are nested at most 100 deep.",
            fix="use columns of nested types, or flatten the type",
            part="",
        ) from None
    check_size(f"the plan of flow {flow.name!r}", len(octets), limits.size)
    plan = PlanBytes(octets, encode_locations(flow.name, flow.current_nodes()[0]))
    # What nobody could read is refused here, where something can be done about it.
    decode(plan, allow_callables=allow_callables, limits=limits)
    return plan


def _octets(flow: Flow, *, allow_callables: bool) -> bytes:
    graph, writer = flow.graph(), ValueEncoder()
    # The graph's own operators may be others, in loops; they are found again.
    nodes, _ = flow.current_nodes()
    body = encode_body(nodes, writer, given_ticks=graph.given_ticks)
    if writer.functions and not allow_callables:
        raise refuse_callables(graph, _holders(nodes))
    if writer.functions:
        writer = ValueEncoder(row_classes=True)
        body = encode_body(nodes, writer, given_ticks=graph.given_ticks)
        body.functions = pickle_callables(writer.functions)
    return body.SerializeToString(deterministic=True)


def _holders(nodes: tuple[Node, ...]) -> list[tuple[Node, str]]:
    """List the operators that hold Python objects, each with a description of its objects."""
    found: list[tuple[Node, str]] = []
    for node in nodes:
        writer = ValueEncoder()
        encode_node(node, writer)
        if writer.functions:
            names = (getattr(f, "__name__", f"a {type(f).__name__}") for f in writer.functions)
            found.append((node, ", ".join(names)))
    return found


_LONGEST = 1 << 20
_LONGEST_NAME = 200


def _printable(text: str) -> str:
    """Sanitise text for display: printable characters only, of limited length."""
    return "".join(c for c in text[:_LONGEST_NAME] if c.isprintable())


class SourceLocations:
    """Best-effort source locations of a plan; malformed ones are ignored.

    Files are shown in `<>` and never opened here, because the sender of the plan chose their names.
    """

    def __init__(self, data: bytes) -> None:
        self._message = pb.Places()
        try:
            if len(data) <= _LONGEST:
                self._message.ParseFromString(data)
        except DecodeError:
            self._message = pb.Places()

    @property
    def _count(self) -> int:
        return len(self._message.places)

    @property
    def flow(self) -> str:
        """Name of the flow."""
        return _printable(self._message.flow) or "plan"

    def location(self, node: int) -> SourceLocation:
        """Return an operator's source location."""
        if node >= self._count:
            return SourceLocation("<plan>", node)
        found = self._message.places[node]
        files = self._message.files
        file = _printable(files[found.file]) if found.file < len(files) else "plan"
        return SourceLocation(mark_remote_file(file), found.line, _printable(found.function))

    def name(self, node: int) -> str | None:
        """Return an operator's user-given name, if there is one."""
        return (_printable(self._message.places[node].name) or None) if node < self._count else None


def decode(plan: PlanBytes, *, allow_callables: bool = False, limits: PlanLimits = LIMITS) -> Flow:
    """Decode a plan to a runnable flow, with all the checks of the flow API.

    Raises `BadPlan` naming the invalid part, `MessageTooLarge`, and `CallableRefused` for functions in the
    plan that are not allowed. No code of a plan runs unless functions are allowed; then loading them runs
    arbitrary code of the sender.
    """
    body = pb.Body()
    parse_message(body, plan.body, "the plan", limits)
    if body.version != VERSION:
        raise BadPlan(
            f"the plan is of version {body.version}, and version {VERSION} is understood here",
            fix="run the same version of Headrace on both sides",
            part="version",
        )
    if body.functions and not allow_callables:
        raise CallableRefused(
            "the plan carries Python functions, and they are not allowed here",
            why="A function is code, which would be run here.",
            fix="use expressions, or allow functions on both sides,\n"
            "allow_callables=True or --allow-callables",
            operators=(),
        )
    functions = unpickle_callables(body.functions)
    flow = _Building(body, SourceLocations(plan.places), ValueDecoder(limits, functions), limits).flow()
    _check_form(body, plan.body, flow, functions)
    return flow


def _check_form(body: pb.Body, given: bytes, flow: Flow, functions: Sequence[object]) -> None:
    """Raise `BadPlan` for a non-canonical plan: a flow has exactly one encoding, and one hash."""
    writer = ValueEncoder(row_classes=bool(functions))
    again = encode_body(flow.nodes, writer, given_ticks=body.given_ticks)
    again.functions = body.functions
    same_objects = all(a is b for a, b in zip(writer.functions, functions, strict=False))
    complete = len(writer.functions) == len(functions)
    if again.SerializeToString(deterministic=True) != given or not same_objects or not complete:
        raise BadPlan(
            "the plan is not in the form that plans have",
            why="It says more than the flow that it describes, or says it in another way.",
            fix="encode plans with the same version of headrace.compute.plans",
            part="",
        )


class _PlanContext(FlowContext):
    """Context for adding an operator of a plan. position: in the plan, for errors."""

    def __init__(
        self,
        streams: Sequence[Stream[Any, Any, Any, Any]],
        output: Schema,
        location: SourceLocation,
        position: PlanPosition,
    ) -> None:
        super().__init__(streams, output, location)
        self._position = position

    def unbuildable_error(self, what: str) -> BadPlan:
        return self._position.build_error(what)

    def check_name(self, name: str) -> None:
        self._position.check_name(name)

    def agree(self, columns: Columns) -> None:
        """Raise `BadPlan` if the columns declared by the plan do not match the operator's output.

        A row class may declare a column nullable that is not, but not the reverse.
        """
        if columns is None:
            return
        given = self.output.fields
        same = [(f.name, f.type) for f in columns] == [(f.name, f.type) for f in given]
        loose = same and all(g.nullable or not c.nullable for c, g in zip(columns, given, strict=True))
        self.require(loose, f"the output has not the columns {self.output}; it has {Schema(columns)}")

    def check_closing(self) -> None:
        """Raise `BadPlan` if the input that closes a feedback has other columns."""
        closing, fields = self.input.fields, self.output.fields
        self.require(not isinstance(self.upstream(0), SignalOperator), "a feedback is closed by a signal")
        mine = [(f.name, f.type) for f in fields]
        self.require(mine == [(f.name, f.type) for f in closing], "a feedback is closed by other rows")
        nulls = any(c.nullable and not f.nullable for f, c in zip(fields, closing, strict=True))
        self.require(not nulls, "null may be in what closes a feedback, and not in the feedback")


class _Building:
    """Flow under construction from a plan."""

    def __init__(
        self, body: pb.Body, locations: SourceLocations, reader: ValueDecoder, limits: PlanLimits
    ) -> None:
        if len(body.nodes) > limits.nodes:
            raise BadPlan(f"the plan has more than {limits.nodes} operators", part="nodes")
        if sum(len(node.inputs) for node in body.nodes) > limits.inputs:
            raise BadPlan(f"the plan has more than {limits.inputs} inputs of operators", part="nodes")
        self._body = body
        self._locations = locations
        self._reader = reader
        self._position = reader.position
        self._flow = Flow(locations.flow, ticks="given" if body.given_ticks else "any")
        self._streams: list[Stream[object]] = []

    def flow(self) -> Flow:
        """Build and analyse the whole flow. Raises `BadPlan`."""
        try:
            for at, node in enumerate(self._body.nodes):
                with self._position.enter(f"operator {at}"):
                    self._add(at, node)
            for at, node in enumerate(self._body.nodes):
                with self._position.enter(f"operator {at}"):
                    self._close(at, node)
            self._compile()
        except BadPlan:
            raise
        except HeadraceError as error:
            raise BadPlan(
                f"the plan is no flow that could be built: {error.what}",
                where=error.where,
                why=error.why,
                fix=error.fix,
                part=str(self._position),
            ) from error
        except RecursionError:
            raise self._position.build_error("something is nested too deeply") from None
        return self._flow

    def _compile(self) -> None:
        """Raise `BadPlan` for a flow that does not compile."""
        try:
            compile_program(self._flow.graph())
        except (SyntaxError, MemoryError, ValueError) as error:
            # Python's own bounds on what it compiles.
            raise self._position.build_error(
                "the flow is too deeply nested to be compiled", str(error)
            ) from None

    def _add(self, at: int, node: pb.Node) -> None:
        operator = self._operator(node)
        loops = isinstance(operator, FeedbackOperator)
        if len(node.inputs) != _number_of_ports(operator):
            raise self._position.build_error(f"{operator.kind} has not the inputs that it needs")
        if any(source >= (len(self._body.nodes) if loops else at) for source in node.inputs):
            raise self._position.build_error("an input is none of the operators before")
        streams = () if loops else tuple(self._streams[source] for source in node.inputs)
        with self._position.enter("columns"):
            schema = self._reader.schema(node.schema)
        context = _PlanContext(streams, schema, self._locations.location(at), self._position)
        _check_ports(operator, context)
        reason = getattr(operator, "nondet", None)
        context.require(reason is None or bool(reason.strip()), "a reason is empty")
        context.agree(operator.output(context))
        self._streams.append(self._added(at, operator, context))

    def _operator(self, node: pb.Node) -> Operator:
        operator = self._reader.record(node.operator)
        if not isinstance(operator, Operator):
            raise self._position.build_error(f"{node.operator.name!r} is no operator")
        return operator

    def _added(self, at: int, operator: Operator, context: _PlanContext) -> Stream[object]:
        flow, name = self._flow, self._locations.name(at)
        match operator:
            case SourceOperator() | SignalSource():
                return flow.add_source(operator, context.location)
            case SinkOperator():
                return flow.add_sink(operator.name, context.streams[0], context.output, context.location)
            case FeedbackOperator():
                return flow.add_feedback(operator, context.output, name, context.location)
            case _:
                return flow.add(operator, context.output, context.streams, name, context.location)

    def _close(self, at: int, node: pb.Node) -> None:
        feedback = self._flow.node(at)
        if not isinstance(feedback.operator, FeedbackOperator):
            return
        (closing,) = node.inputs
        stream = self._streams[closing]
        context = _PlanContext((stream,), feedback.schema, feedback.location, self._position)
        context.check_closing()
        self._flow.close_feedback(at, closing, feedback.location)


def _number_of_ports(operator: Operator) -> int:
    match operator:
        case Union(count=count) | ChainFirstN(inputs=count):
            # Not believed enough to make so many.
            return count
        case _:
            return len(operator.ports())


def _check_ports(operator: Operator, context: _PlanContext) -> None:
    """Raise `BadPlan` if an operator on rows reads a signal, or one on signals reads rows."""
    if isinstance(operator, SinkOperator):
        return
    wants = isinstance(operator, ValueRows) or (
        isinstance(operator, SignalOperator) and not isinstance(operator, LastRow)
    )
    for port in range(len(context.streams)):
        gives = isinstance(context.upstream(port), SignalOperator)
        context.require(gives == wants, f"input {port} is {'a signal' if gives else 'a stream'}")


def encode_expr(expr: Expr, schema: Schema, *, limits: PlanLimits = LIMITS) -> bytes:
    """Encode an expression over rows of `schema`; equal expressions give equal bytes.

    Raises the errors of `headrace.expr.check.check`, and `MessageTooLarge`.
    """
    check(expr, schema)
    data = ValueEncoder().expr(expr).SerializeToString(deterministic=True)
    check_size("the expression", len(data), limits.size)
    return data


def decode_expr(data: bytes, schema: Schema, *, limits: PlanLimits = LIMITS) -> Expr:
    """Decode an expression and check it against the schema. Raises `BadPlan` and `MessageTooLarge`."""
    message = pb.Expr()
    parse_message(message, data, "the expression", limits)
    with _refused("the expression"):
        expr = ValueDecoder(limits).expr(message)
        check(expr, schema)
        if ValueEncoder().expr(expr).SerializeToString(deterministic=True) != data:
            raise BadPlan("the expression is not in the form that expressions have", part="")
    return expr


def predicate_of(
    data: bytes, schema: Schema, *, limits: PlanLimits = LIMITS
) -> Callable[[tuple[Any, ...]], bool | None]:
    """Compile an encoded condition to a predicate on rows of `schema`, with None for null.

    The function raises `EvaluationError` for a row on which the condition fails to evaluate, and
    `LimitExceeded` for one that is too large for it.
    Raises `BadPlan` for anything but a condition over such rows, and `MessageTooLarge`.
    """
    expr = decode_expr(data, schema, limits=limits)
    with _refused("the condition"):
        if check(expr, schema).type != BOOL:
            raise BadPlan(f"the condition is not true or false: {expr}", part="")
        check_patterns(expr)
        with bounded_code():
            compute: Callable[[tuple[Any, ...]], tuple[bool | None]] = compile_rows((expr,), schema)
    return lambda row: compute(row)[0]


def schema_to_bytes(schema: Schema) -> bytes:
    """Encode a schema, without its row class. Raises `BadPlan`."""
    return ValueEncoder().schema(schema).SerializeToString(deterministic=True)


def schema_from_bytes(data: bytes, *, limits: PlanLimits = LIMITS) -> Schema:
    """Decode a schema encoded by `schema_to_bytes`. Raises `BadPlan` and `MessageTooLarge`."""
    message = pb.Schema()
    parse_message(message, data, "the schema", limits)
    with _refused("the schema"):
        schema = ValueDecoder(limits).schema(message)
        if schema_to_bytes(schema) != data:
            raise BadPlan("the schema is not in the form that schemas have", part="")
    return schema


@contextmanager
def _refused(what: str) -> Generator[None]:
    """Convert any error inside this block to `BadPlan`."""
    try:
        yield
    except BadPlan:
        raise
    except HeadraceError as error:
        raise BadPlan(
            f"{what} does not fit the rows: {error.what}", why=error.why, fix=error.fix, part=""
        ) from error
    except RecursionError:
        raise BadPlan(f"{what} is nested too deeply", part="") from None
