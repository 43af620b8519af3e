"""Decoding of plans, with all the checks of the flow API, and the encoding that confirms their form."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.message import DecodeError

from headrace.compute.errors import BadPlan, CallableRefused
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.plans.limits import LIMITS, PlanLimits
from headrace.compute.plans.operator_decoder import ValueDecoder, parse_message
from headrace.compute.plans.operator_encoder import ValueEncoder
from headrace.compute.plans.registry import RECORD_NAMES
from headrace.compute.problem_conversion import file_name, mark_remote_file
from headrace.compute.protocol.dataflow import Plan
from headrace.engine.program import compile_program
from headrace.errors import HeadraceError, SourceLocation, Step
from headrace.expr.types import Schema
from headrace.flow.flow import Flow
from headrace.flow.stream import Stream
from headrace.flow.stream_context import FlowContext
from headrace.graph.node import FlowGraph, Node, Operator, is_named, label_in_sentence
from headrace.operators.endpoints import Sink, Source
from headrace.operators.feedback import FeedbackOperator
from headrace.operators.signals.earlier_values import LastRow, SignalSource, ValueRows
from headrace.operators.signals.lift import SignalOperator
from headrace.operators.union import ChainFirstN, Union

if TYPE_CHECKING:
    from headrace.compute.plans.limits import PlanPosition
    from headrace.graph.node import Columns


# --- Python functions ---------------------------------------------------------------


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


# --- source locations ---------------------------------------------------------------


_LONGEST = 1 << 20
_LONGEST_NAME = 200


def encode_locations(flow: str, nodes: Sequence[Node]) -> bytes:
    """Encode source locations and user-given names of operators. Of files, only the names travel."""
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
    own = isinstance(node.operator, Source | SignalSource | Sink)
    return node.name if is_named(node) and not own else ""


def _printable(text: str) -> str:
    """Sanitise text for display: printable characters only, of limited length."""
    return "".join(c for c in text[:_LONGEST_NAME] if c.isprintable())


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()


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


VERSION = 1
"""Version of the encoding of plans."""


def encode_body(nodes: tuple[Node, ...], writer: ValueEncoder, *, given_ticks: bool) -> pb.Body:
    """Encode operators as the body of a plan; `writer` collects their Python objects."""
    return pb.Body(
        version=VERSION, given_ticks=given_ticks, nodes=[encode_node(node, writer) for node in nodes]
    )


def encode_node(node: Node, writer: ValueEncoder) -> pb.Node:
    """Encode one operator. Raises `BadPlan` for one that no plan can have."""
    if type(node.operator) not in RECORD_NAMES:
        raise BadPlan(f"{node.operator.kind} is no operator that a plan can have", where=[node.location])
    with writer.position.enter(node.name):
        operator = writer.record(node.operator)
        return pb.Node(operator=operator, inputs=node.inputs, schema=writer.schema(node.schema))


def decode(plan: Plan, *, allow_callables: bool = False, limits: PlanLimits = LIMITS) -> Flow:
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
        """Raise `BadPlan` if the plan declares other columns than the operator's output has.

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
            case Source() | SignalSource():
                return flow.add_source(operator, context.location)
            case Sink():
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
    if isinstance(operator, Sink):
        return
    wants = isinstance(operator, ValueRows) or (
        isinstance(operator, SignalOperator) and not isinstance(operator, LastRow)
    )
    for port in range(len(context.streams)):
        gives = isinstance(context.upstream(port), SignalOperator)
        context.require(gives == wants, f"input {port} is {'a signal' if gives else 'a stream'}")
