"""`Flow`, the builder of a dataflow graph, and its feedback streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast, overload

from typing_extensions import TypeVar

from headrace.errors import BadFlow, SourceLocation, Step, WrongType
from headrace.expr.expression_errors import MethodGuesses, check_function
from headrace.expr.row_classes import schema_of
from headrace.expr.tree import Column
from headrace.expr.types import Schema
from headrace.flow.redefinition import Redefinitions, automatic_name, is_end
from headrace.flow.stream import Stream
from headrace.flow.stream_base import (
    Append,
    Bounded,
    Changes,
    NoOrder,
    Ordered,
    Output,
    StreamBase,
    T_co,
    Unbounded,
    check_stream,
)
from headrace.graph.node import FlowGraph, Node, Operator, inside_loops
from headrace.operators.column_arguments import check_name
from headrace.operators.endpoints import Initialize, Null, SinkOperator, SourceOperator
from headrace.operators.feedback import BagFeedback, Feedback, FeedbackOperator
from headrace.shown import Shown

if TYPE_CHECKING:
    from headrace.flow.keyed_tables import OnMisfitName
    from headrace.flow.signal import Signal
    from headrace.flow.timed_columns import Times
    from headrace.operators.signals.earlier_values import SignalSource
    from headrace.operators.time_spans import GivenSpan

T = TypeVar("T")
G = TypeVar("G", bound=Changes)
G2 = TypeVar("G2", bound=Changes)
G_co = TypeVar("G_co", bound=Changes, covariant=True)


_RUN = "run(flow, sources={...}, sinks={...}), or Engine(flow).tick(source=[rows]) for one tick"
_ELSEWHERE = {
    **dict.fromkeys(("run", "start", "execute", "collect", "tick", "feed"), _RUN),
    **dict.fromkeys(("input", "read", "read_csv", "read_parquet", "stream"), 'flow.source("name", RowClass)'),
    **dict.fromkeys(("output", "write"), 'flow.sink("name", stream)'),
    **{each: f"headrace.{each}(flow)" for each in ("draw", "explain")},
}


class Flow(MethodGuesses, Shown):
    """Dataflow under construction. Building it runs nothing.

    In a notebook, a source, sink or named operator replaces the one of its name that an earlier execution of
    a cell defined, of the same cell or of another. Operators of earlier executions that no sink depends on
    are left out. Two of one name in one execution are an error, as in a script; so are two calls of a
    widget's callback, between which no cell runs.

    name:  shown in errors, explanations and pictures.
    ticks: "any" (default): results must not depend on how the input is cut into ticks. "given": the ticks are
           part of the input, and no guards are required.
    """

    _what = "a flow"
    _elsewhere = _ELSEWHERE
    _other_fix = "sources, sinks and feedbacks are added by the flow; other operators are methods of streams"

    def __init__(self, name: str, *, ticks: Literal["any", "given"] = "any") -> None:
        self.name = name
        self._location = SourceLocation.of_caller()
        check_name("flow", name, self._location)
        self._given_ticks = ticks == "given"
        self._nodes: list[Node] = []
        self._names: set[str] = set()
        self._sources: dict[str, int] = {}
        self._sinks: dict[str, int] = {}
        self._open: dict[int, SourceLocation] = {}
        self._redefinitions = Redefinitions()
        self._graph: FlowGraph | None = None
        self.times: list[Times] = []
        """Timed columns of each node, in order of construction, as far as `event_time` has computed them."""

    def __repr__(self) -> str:
        return f"Flow({self.name!r}, {len(self._nodes)} operators)"

    if not TYPE_CHECKING:  # type checkers find it by themselves

        def __enter__(self) -> NoReturn:
            raise WrongType(
                "a flow is not a context manager",
                where=[SourceLocation.of_caller()],
                why="It opens nothing that must be closed.",
                fix=f"assign it: flow = hr.Flow({self.name!r})",
            )

        def __exit__(self, *_error: object) -> None: ...

    @overload
    def source(
        self, name: str, rows: type[T], *, bounded: Literal[False] = False
    ) -> Stream[T, Unbounded, Append, Ordered]: ...
    @overload
    def source(
        self, name: str, rows: type[T], *, bounded: Literal[True]
    ) -> Stream[T, Bounded, Append, Ordered]: ...
    def source(self, name: str, rows: type[T], *, bounded: bool = False) -> Stream[T, Any, Append, Ordered]:
        """Add a source of rows that are never retracted.

        rows:    a `NamedTuple` or dataclass, or a scalar type such as `int`.
        bounded: all of them arrive in the first tick.
        """
        return self._source(name, rows, bounded=bounded, append=True)

    def table(
        self,
        name: str,
        rows: type[T],
        *,
        key: str | Sequence[str] | None = None,
        sequence: str | None = None,
        on_misfit: OnMisfitName = "error",
        tombstones: GivenSpan | None = None,
    ) -> Stream[T, Unbounded, Changes, NoOrder]:
        """Add a source of rows that may be retracted. Each input row has a weight, unless there is a key.

        key: columns by which rows are held. The source is then given records: a row sets the row of its key
             whatever it was before, a deletion needs no more than the key, and what is delivered again
             changes nothing.
        sequence, on_misfit, tombstones: see `Stream.upsert`. Of one sequence, the record that stands later in
             files counts; elsewhere a row wins against the deletion of an older one.

        Raises `UnknownColumn` and `WrongType` for columns that cannot be a key or a sequence.
        """
        if key is None and sequence is None and on_misfit == "error" and tombstones is None:
            return self._source(name, rows, bounded=False, append=False)
        from headrace.flow.keyed_tables import add_rows, keyed_source

        location = SourceLocation.of_caller()
        self._check_source_name(name, location)
        source = keyed_source(name, schema_of(rows), key, sequence, location)
        return add_rows(self.add_source(source, location), source, on_misfit, tombstones, location)

    def signal(self, name: str, values: type[T]) -> Signal[T]:
        """Add a signal source called `name`, with at most one value per tick.

        values: type of the values: a scalar such as `float`, a row class, or `object` for any.
        """
        # Imported here, so that flows without signals do not load them.
        from headrace.flow.signal import Signal
        from headrace.operators.signals.earlier_values import SignalSource

        location = SourceLocation.of_caller()
        self._check_source_name(name, location)
        schema = schema_of(values)
        return Signal(self, self.add_source(SignalSource(name, schema), location).node_id, schema)

    def _source(self, name: str, rows: type[T], *, bounded: bool, append: bool) -> Stream[T, Any, Any, Any]:
        location = SourceLocation.of_caller()
        self._check_source_name(name, location)
        return self.add_source(SourceOperator(name, schema_of(rows), bounded, append), location)

    def _check_source_name(self, name: str, location: SourceLocation) -> None:
        check_name("source", name, location)
        if name in self._sources and not self._redefinitions.allow(self._sources[name]):
            first = self._nodes[self._sources[name]].location
            raise BadFlow(
                f"flow {self.name!r} has two sources {name!r}",
                where=[Step(first, "first"), Step(location, "second")],
                fix="give one of them another name; one source may be read by any number of operators",
            )

    def sink(self, name: str, stream: Stream[Any, Any, Any, Any] | Signal[Any]) -> None:
        """Emit the changes of `stream`, or the values of a signal, under a name."""
        location = SourceLocation.of_caller()
        check_name("sink", name, location)
        is_signal = isinstance(cast("object", stream), Output) and not isinstance(stream, StreamBase)
        if not is_signal:
            check_stream(stream, f"sink {name!r}", location)
        shown_as_is = is_signal and not stream.schema.scalar
        schema = schema_of(object) if shown_as_is else stream.schema
        self.add_sink(name, stream, schema, location)

    @overload
    def feedback(
        self,
        rows: type[T],
        *,
        changes: Literal[False] = False,
        distinct: bool = True,
        max_iterations: int = 10_000,
    ) -> FeedbackStream[T]: ...
    @overload
    def feedback(
        self,
        rows: type[T],
        *,
        changes: Literal[True],
        distinct: bool = True,
        max_iterations: int = 10_000,
    ) -> ChangingFeedbackStream[T]: ...
    def feedback(
        self,
        rows: type[T],
        *,
        changes: bool = False,
        distinct: bool = True,
        max_iterations: int = 10_000,
    ) -> FeedbackStream[T] | ChangingFeedbackStream[T]:
        """Add a stream that is read before `close` defines it, for recursion (see `operators.feedback`).

        changes: whether rows may be retracted, for type checkers only; the analysis finds out by itself.
        distinct: carry each row once; otherwise each copy of a row goes round (see `operators.feedback`).
        max_iterations: limit on the rounds within one tick.
        """
        schema, location = schema_of(rows), SourceLocation.of_caller()
        node = self._feedback(schema, max_iterations, location, distinct=distinct)
        return ChangingFeedbackStream(*node) if changes else FeedbackStream(*node)

    def changing_feedback(
        self, schema: Schema, *, distinct: bool = True, max_iterations: int = 10_000
    ) -> ChangingFeedbackStream[Any]:
        """Add a stream like `feedback`, whose rows have the given schema and may be retracted."""
        location = SourceLocation.of_caller()
        return ChangingFeedbackStream(*self._feedback(schema, max_iterations, location, distinct=distinct))

    def fixpoint(
        self,
        body: Callable[[Stream[T, Unbounded, G, NoOrder]], Stream[T, Any, G2, Any]],
        seed: Stream[T, Any, G, Any],
        *,
        max_iterations: int = 10_000,
    ) -> Stream[T, Unbounded, G | G2, NoOrder]:
        """Compute the least set that contains `seed` and is closed under `body`.

        If rows of `seed`, or of another input of `body`, are retracted, so are the rows derived only from
        them. max_iterations: limit on the rounds within one tick.
        """
        location = SourceLocation.of_caller()
        check_function("fixpoint", body, ("reached",), location)
        check_stream(seed, "fixpoint", location)
        # Whether its rows may be retracted is known only once it is closed.
        reached = self.changing_feedback(seed.schema, max_iterations=max_iterations)
        same = cast("Stream[T, Unbounded, Any, NoOrder]", reached)
        reached.close(seed.union(body(same)))
        return same

    def _feedback(
        self, schema: Schema, max_iterations: int, location: SourceLocation, *, distinct: bool = True
    ) -> tuple[Flow, int, Schema]:
        operator: FeedbackOperator = BagFeedback(max_iterations)
        if distinct:
            operator = Feedback(tuple(Column(n) for n in schema.names), max_iterations)
        return self, self.add_feedback(operator, schema, None, location).node_id, schema

    def null(self, rows: type[T], *, name: str | None = None) -> Stream[T, Bounded, Append, Ordered]:
        """Add a stream without rows (see `operators.endpoints`)."""
        return self.add(Null(swallows=False), schema_of(rows), (), name, SourceLocation.of_caller())

    def initialize(self, *, name: str | None = None) -> Stream[tuple[()], Bounded, Append, Ordered]:
        """Add a stream with one row, `()`, in the first tick of a run (see `operators.endpoints`)."""
        return self.add(Initialize(), schema_of(object), (), name, SourceLocation.of_caller())

    # -- for the stream methods -------------------------------------------------------------

    def add(
        self,
        operator: Operator,
        schema: Schema,
        inputs: Sequence[Output],
        name: str | None,
        location: SourceLocation,
    ) -> Stream[Any, Any, Any, Any]:
        """Add an operator that reads `inputs`, and return its output stream.

        Raises `BadFlow` for a stream of another flow and for a duplicate name.
        """
        for stream in inputs:
            if stream.flow is not self:
                raise self.foreign(operator.kind, stream, location)
        node_id = len(self._nodes)
        if name is not None:
            check_name(operator.kind, name, location)
        if name is None:
            name = f"{operator.kind}_{node_id}"
        elif name in self._names:
            first = next(node for node in self._nodes if node.name == name)
            if first.id in self._sources.values() or not self._redefinitions.allow(first.id):
                raise BadFlow(
                    f"flow {self.name!r} has two operators {name!r}",
                    where=[Step(first.location, "first"), Step(location, "second")],
                    fix="give one of them another name, or none",
                )
            self._nodes[first.id] = replace(first, name=automatic_name(first))
        self._redefinitions.define(node_id)
        self._names.add(name)
        self._graph = None
        ids = tuple(stream.node_id for stream in inputs)
        self._nodes.append(Node(node_id, name, operator, ids, schema, location))
        return Stream(self, node_id, schema)

    def add_source(
        self, operator: SourceOperator | SignalSource, location: SourceLocation
    ) -> Stream[Any, Any, Any, Any]:
        """Add a source under its name. Raises `BadFlow` for a duplicate, `WrongType` for an invalid name."""
        name = operator.name
        self._check_source_name(name, location)
        old = self._sources.pop(name, None)
        if old is not None and self._nodes[old].operator == operator:
            # Existing readers keep this node; its row class may differ.
            self._nodes[old] = Node(old, name, operator, (), operator.schema, location)
            self._redefinitions.define(old)
            self._sources[name], self._graph = old, None
            return Stream(self, old, operator.schema)
        stream = self.add(operator, operator.schema, (), name, location)
        self._sources[name] = stream.node_id
        if old is not None:
            self._redefinitions.replaced[old] = stream.node_id
        return stream

    def add_sink(
        self, name: str, output: Output, schema: Schema, location: SourceLocation
    ) -> Stream[Any, Any, Any, Any]:
        """Add a sink under its name. Raises `BadFlow` for a duplicate name; otherwise behaves like `add`."""
        check_name("sink", name, location)
        old = self._sinks.get(name)
        if old is not None and not self._redefinitions.allow(old):
            first = self._nodes[self._sinks[name]].location
            raise BadFlow(
                f"flow {self.name!r} has two sinks {name!r}",
                where=[Step(first, "first"), Step(location, "second")],
                fix="give one of them another name, or let union() of both streams leave",
            )
        stream = self.add(SinkOperator(name), schema, (output,), None, location)
        self._sinks[name] = stream.node_id
        if old is not None:
            self._redefinitions.replaced[old] = stream.node_id
        return stream

    def add_feedback(
        self, operator: FeedbackOperator, schema: Schema, name: str | None, location: SourceLocation
    ) -> Stream[Any, Any, Any, Any]:
        """Add a feedback, open until `close_feedback`. Raises like `add`."""
        stream = self.add(operator, schema, (), name, location)
        self._open[stream.node_id] = location
        return stream

    def foreign(self, kind: str, stream: Output, location: SourceLocation) -> BadFlow:
        """Build the error for an operator that reads a stream of another flow."""
        return BadFlow(
            f"{kind} of flow {self.name!r} reads a stream of flow {stream.flow.name!r}",
            where=[
                Step(stream.flow.node(stream.node_id).location, f"of flow {stream.flow.name!r}"),
                location,
            ],
            why="A flow is run as a whole, and for itself.",
            fix="build all of it in one flow",
        )

    def close_feedback(self, node_id: int, closing: int, location: SourceLocation) -> None:
        """Connect node `closing` to the feedback `node_id`. Raises `BadFlow` on a second call."""
        node = self._nodes[node_id]
        if node.inputs:
            raise BadFlow(
                "a feedback is closed twice",
                where=[Step(node.location, "opened here"), Step(location, "closed again here")],
                fix="close it once, with the union() of all that it shall carry",
            )
        self._nodes[node_id] = Node(node.id, node.name, node.operator, (closing,), node.schema, node.location)
        self._graph = None
        del self._open[node_id]

    def node(self, node_id: int) -> Node:
        return self._nodes[node_id]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Operators added so far, including replaced ones. An open feedback has no inputs."""
        return tuple(self._nodes)

    def current_nodes(self) -> tuple[tuple[Node, ...], dict[int, int]]:
        """Return the operators without replaced ones, and a map from old to new numbers, if any changed."""
        named = (*self._sources.values(), *self._sinks.values())
        return self._redefinitions.current_nodes(self._nodes, named)

    def graph(self) -> FlowGraph:
        """Return the flow as frozen data. Raises `BadFlow` if a feedback is open or the flow has no sink."""
        if self._graph is None:
            nodes, ids = self.current_nodes()
            if left := [place for n, place in self._open.items() if not ids or n in ids]:
                raise BadFlow(
                    "a feedback is never closed",
                    where=left,
                    why="Nothing says what it carries.",
                    fix="call .close(stream) on it, or use flow.fixpoint(...)",
                )
            if not self._sinks and not any(is_end(node.operator) for node in self._nodes):
                raise BadFlow(
                    f"flow {self.name!r} has no sink",
                    where=[n.location for n in self._nodes[-1:]] or [self._location],
                    why="A flow without a sink has no output.",
                    fix='flow.sink("name", stream)',
                )
            sources = {name: ids.get(n, n) for name, n in self._sources.items()}
            sinks = {name: ids.get(n, n) for name, n in self._sinks.items()}
            self._graph = inside_loops(
                FlowGraph(self.name, nodes, sources, sinks, self._given_ticks, renumbered=ids)
            )
        return self._graph


# -- recursion: streams that are read before they are defined ------------------------------------


class _OpenStream(Stream[T_co, Unbounded, G_co, NoOrder]):
    __slots__ = ()

    def _close(self, stream: Stream[Any, Any, Any, Any]) -> None:
        location = SourceLocation.of_caller()
        check_stream(stream, "feedback", location)
        if stream.flow is not self.flow:
            raise self.flow.foreign("feedback", stream, location)
        self.check_row_type("feedback", stream, location)
        for mine, closing in zip(self.schema.fields, stream.schema.fields, strict=True):
            if closing.nullable and not mine.nullable:
                raise WrongType(
                    f"column {mine.name!r} may be null in what closes the feedback, and not in the feedback",
                    where=[Step(self.flow.node(self.node_id).location, "opened here"), location],
                    fix="coalesce() it, or declare it `| None` in the row class",
                    column=mine.name,
                )
        self.flow.close_feedback(self.node_id, stream.node_id, location)


class FeedbackStream(_OpenStream[T_co, Append]):
    """Append stream that is read before `close` defines it."""

    __slots__ = ()

    def close(self, stream: Stream[T_co, Any, Append, Any]) -> None:
        """Define the contents of this stream. Must be called exactly once.

        Raises `BadFlow` on a second call and for a stream of another flow, `WrongType` if the row types
        differ.
        """
        self._close(stream)


class ChangingFeedbackStream(_OpenStream[T_co, Changes]):
    """Stream with retractions that is read before `close` defines it."""

    __slots__ = ()

    def close(self, stream: Stream[T_co, Any, Any, Any]) -> None:
        """Define the contents of this stream, like `FeedbackStream.close`."""
        self._close(stream)
