"""Writes one region of a flow as one straight-line Python function.

Rows are pushed: a loop over a buffer carries the code of all that follows it,
up to where something must be remembered. A buffer is made only where a stream
has several readers, leaves the region, or enters an operator that reads whole
inputs; what would be written more than once and is long, is buffered too.
"""

from __future__ import annotations

import keyword
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.engine.loops.differential import write_nested
from penstock.engine.loops.netting import NettedStep, may_meet_what_never_was
from penstock.engine.loops.semi_naive import write_rounds
from penstock.engine.loops.step import NestedStep, nested_step_for
from penstock.engine.plan import is_delay
from penstock.engine.retraction_order import must_take_back_first
from penstock.engine.row_codegen import Only, Row, tuple_source
from penstock.engine.source_code import SourceCode
from penstock.engine.steps import step_for
from penstock.engine.steps.feedback import ClosingStep
from penstock.expr.check import check
from penstock.expr.keys import holds_floats
from penstock.expr.python import Scope, key_of, lower, predicate
from penstock.graph.node import Edge

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from penstock.analysis import Analysis
    from penstock.engine.constants import Constants
    from penstock.engine.plan import Consumers, Part
    from penstock.engine.slot import Slot
    from penstock.engine.steps import Step
    from penstock.expr.tree import Expr
    from penstock.expr.types import DataType, Schema
    from penstock.graph.node import FlowGraph, Node


# With a number behind they name something else: temporaries of expressions, buffers of nodes.
_NUMBERED_OTHERWISE = frozenset({"x", "rows", "out", "all", "news", "loop_count", "ticks", "part", "region"})

# Python nests no more than 20 loops and 100 levels in one function; each operator may add a level.
_LONGEST_RUN = 12


class RegionWriter:
    """Code of one part of a plan.

    code: what has been written. slots: state of the operators in it.
    counting: write, too, what counts per operator the ticks in which rows reached it.
    """

    def __init__(
        self,
        graph: FlowGraph,
        analysis: Analysis,
        part: Part,
        consumers: Consumers,
        constants: Constants,
        *,
        counting: bool = False,
    ) -> None:
        self.graph = graph
        self.analysis = analysis
        self.part = part
        self.code = SourceCode()
        self.functions = SourceCode()
        self._constants = constants
        self._counting = counting
        self._fresh = 0
        self._members = frozenset(part.nodes)
        self._consumers = consumers
        self._loop_of = {n: loop for loop in analysis.loops for n in loop if n in self._members}
        self._nested = {n for n, loop in self._loop_of.items() if analysis.is_changing(loop)}
        self.at = ""
        self._steps = {n: self._step_for(graph.nodes[n]) for n in part.nodes}
        self._inlined = self._find_inlined()
        self._functions: set[str] = set()

    # -- what steps ask ----------------------------------------------------------------------------

    def is_append(self, node: int) -> bool:
        """Whether the stream of a node carries plain rows, without weights."""
        return self.analysis.facts[node].append

    def is_consolidated(self, node: int) -> bool:
        """Whether a node's rows of a tick are known to differ from each other already."""
        return node in self._steps and self._steps[node].consolidates

    def is_in_loop(self, node: int) -> bool:
        """Whether a node's rows may come back to it within a tick."""
        return node in self._loop_of

    def step(self, node: int) -> Step:
        """The step of a node of this region."""
        return self._steps[node]

    def _step_for(self, node: Node) -> Step:
        if node.id in self._nested:
            loop = self._loop_of[node.id]
            varies = [source in loop for source in node.inputs]
            step = nested_step_for(node.operator, node, self, varies)
            return NettedStep(step, varies) if may_meet_what_never_was(self, node, loop) else step
        return step_for(node.operator, node, self)

    def reads_buffer(self, edge: Edge) -> bool:
        """Whether an edge's rows stand in a buffer: its target's code is not written where they are made."""
        return self._inlined.get(edge.source) != edge

    def loop(self, node: int) -> tuple[int, ...]:
        """The loop that a node is in."""
        return self._loop_of[node]

    def loops_apart(self, one: int, other: int) -> bool:
        """Whether two nodes, of which at least one is in a loop, are not in the same."""
        return self._loop_of.get(one) != self._loop_of.get(other)

    def handed_on(self, node: int) -> Edge | None:
        """The edge to the node whose code is written where a node's rows are made, if there is one."""
        return self._inlined.get(node)

    def entries(self, node: int) -> tuple[Edge, ...]:
        """The edges that enter a node, in the order of its ports."""
        return tuple(Edge(s, node, port) for port, s in enumerate(self.graph.nodes[node].inputs))

    def readers(self, node: int, among: Sequence[int]) -> list[Edge]:
        """The edges that leave a node for one of some others."""
        return [e for e in self._consumers[node] if e.target in among]

    def leaves(self, node: int, loop: Sequence[int]) -> bool:
        """Whether a node's rows are read outside of `loop`."""
        return any(e.target not in loop for e in self._consumers[node])

    def round(self, node: int) -> str:
        """The variable with the number of the round, from 0, of the loop that a node is in."""
        return f"round_{self._loop_of[node][0]}"

    def next_round(self, node: int) -> str:
        """The variable with the number of the next round, in a loop whose rows may be taken back."""
        return f"next_{self._loop_of[node][0]}"

    def times(self, node: int) -> str:
        """The variable with the heap of the rounds that are still to come, likewise."""
        return f"times_{self._loop_of[node][0]}"

    @contextmanager
    def at_round(self, source: str) -> Generator[None]:
        """What is written inside works on rows that are there in the round `source`: `at` tells it."""
        before, self.at = self.at, source
        yield
        self.at = before

    @contextmanager
    def in_first_round(self, node: int) -> Generator[None]:
        """What is written inside runs once per tick, also where the node is in a loop."""
        if not self.is_in_loop(node):
            yield
            return
        with self.code.block(f"if not {self.round(node)}:"):
            yield

    def input_schema(self, node: Node, port: int) -> Schema:
        return self.graph.nodes[node.inputs[port]].schema

    def constant(self, name: str, value: object) -> str:
        """A name for a value that generated code needs."""
        return self._constants.name(name, value)

    def fresh(self, name: str) -> str:
        """A variable name that is used nowhere else in the region."""
        self._fresh += 1
        # Letters of other scripts: not all that count as letters may stand in a name of Python.
        clean = re.sub(r"\W", "_", name, flags=re.ASCII)
        if not clean[:1].isalpha() or keyword.iskeyword(clean) or clean in _NUMBERED_OTHERWISE:
            clean = f"v_{clean}"
        return f"{clean}_{self._fresh}"

    def named(self, what: str, node: int) -> str:
        """The variable of a node for `what`."""
        return f"{what}_of_{node}"

    def function(self, header: str, *body: str) -> None:
        """Write a module-level function once."""
        if header.split("(")[0] in self._functions:
            return
        self._functions.add(header.split("(")[0])
        with self.functions.block(header):
            for line in body:
                self.functions.line(line)

    def slot(self, node: int, what: str) -> str:
        return f"slot_{node}_{what}"

    def slot_get(self, node: int, what: str) -> str:
        return f"get_{node}_{what}"

    def buffer(self, node: int) -> str:
        """The variable with a node's rows of this tick (in a loop: of this round)."""
        return f"rows_{node}"

    def result(self, node: int) -> str:
        """The variable with what leaves the region at a node."""
        return f"out_{node}"

    def news(self, node: int) -> str:
        """The variable with a feedback's rows for the next round."""
        return f"news_{node}"

    # -- expressions -------------------------------------------------------------------------------

    def _scope(self, schema: Schema, columns: tuple[str, ...]) -> Scope:
        return Scope(schema, columns, self._constants.values)

    def value(self, expr: Expr, schema: Schema, columns: tuple[str, ...]) -> str:
        return lower(expr, self._scope(schema, columns))

    def predicate(self, expr: Expr, schema: Schema, columns: tuple[str, ...]) -> str:
        return predicate(expr, self._scope(schema, columns))

    def key_source(self, dtype: DataType, source: str) -> str:
        """`source`, which is not null, in the form in which it is a dict key."""
        return key_of(dtype, False, source)

    def is_own_key(self, dtype: DataType) -> bool:
        """Whether a value of a type, as it stands in a row, is a dict key: no two that are equal differ."""
        return key_of(dtype, False, "value") == "value"

    def assign_key(
        self, name: str, exprs: Sequence[Expr], schema: Schema, columns: tuple[str, ...]
    ) -> list[int]:
        """Assign the key of a row to `name`; positions of the parts that may be null.

        One expression: its value. None: `()`. Several: a tuple.
        """
        scope = self._scope(schema, columns)
        typed = [check(e, schema) for e in exprs]
        parts = [key_of(t.type, t.nullable, lower(e, scope)) for e, t in zip(exprs, typed, strict=True)]
        self.code.line(f"{name} = {parts[0] if len(parts) == 1 else tuple_source(parts) if parts else '()'}")
        return [i for i, t in enumerate(typed) if t.nullable]

    def key(self, name: str, exprs: Sequence[Expr], schema: Schema, columns: tuple[str, ...]) -> str:
        """A variable with the key of a row: that of a column which is the key as it stands, or a new one."""
        if len(exprs) == 1:
            typed, source = check(exprs[0], schema), self.value(exprs[0], schema, columns)
            if source.isidentifier() and self.key_source(typed.type, source) == source and not typed.nullable:
                return source
        key = self.fresh(name)
        self.assign_key(key, exprs, schema, columns)
        return key

    def null_key_test(
        self, exprs: Sequence[Expr], node: Node, port: int, columns: tuple[str, ...]
    ) -> str | None:
        """Source of whether a part of the key is null; None where none can be."""
        schema = self.input_schema(node, port)
        scope = self._scope(schema, columns)
        tests = [f"{lower(e, scope)} is None" for e in exprs if check(e, schema).nullable]
        return " or ".join(tests) if tests else None

    def row_key(self, schema: Schema, columns: tuple[str, ...]) -> str:
        """Source of the row as a tuple in the form in which it is a dict key."""
        pairs = zip(schema.fields, columns, strict=True)
        return tuple_source([key_of(f.type, f.nullable, c) for f, c in pairs])

    def entry(self, schema: Schema, columns: tuple[str, ...]) -> str:
        """Source of the row as a dict key where nothing else is one: of one column, its value."""
        if len(columns) == 1:
            (field,) = schema.fields
            return key_of(field.type, field.nullable, columns[0])
        return self.row_key(schema, columns)

    # -- rows --------------------------------------------------------------------------------------

    def unpack(self, schema: Schema, row: str) -> tuple[str, ...]:
        """Assign the columns of the tuple `row` to variables."""
        names = tuple(self.fresh(f.name) for f in schema.fields)
        self.code.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {row}")
        return names

    def must_take_back_first(self, node: Node) -> bool:
        """Whether what goes must go before what comes (see `transients`)."""
        appends = tuple(self.is_append(source) for source in node.inputs)
        return must_take_back_first(self.graph, self._consumers, appends, node)

    def consolidate_inputs(self, node: Node) -> None:
        """Write the consolidation of the buffers of an operator's table inputs."""
        for source in dict.fromkeys(node.inputs):
            if not self.is_append(source) and not self.is_consolidated(source):
                self.code.line(f"{self.buffer(source)} = x_consolidate({self.buffer(source)})")

    @contextmanager
    def each_row(self, node: Node, port: int, only: Only = Only.ALL) -> Generator[Row]:
        """Loop over the buffer of an input, or what goes or comes of it; the body is written inside."""
        source = node.inputs[port]
        edge = Edge(source, node.id, port)
        schema = self.graph.nodes[source].schema
        buffer = self.buffer(source)
        if self.is_append(source):
            row, at = self.fresh("row"), len(self.code.lines)
            with self.code.block(f"for {row} in {buffer}:"):
                columns = self.unpack(schema, row)
                yield self._as_taken(edge, Row(columns, row))
            names = ", ".join(columns) + "," * (len(columns) == 1)
            self.code.drop_unused(at, row, f"for {names} in {buffer}:")
            return
        names = tuple(self.fresh(f.name) for f in schema.fields)
        weight = self.fresh("weight")
        if source in self._nested and node.id in self._loop_of[source]:
            at = self.fresh("at")
            with self.code.block(f"for {', '.join((*names, weight, at))} in {buffer}:"), self.at_round(at):
                yield self._as_taken(edge, Row(names, None, weight))
            return
        with self.code.block(f"for {', '.join((*names, weight))} in {buffer}:"):
            if only is Only.ALL:
                yield self._as_taken(edge, Row(names, None, weight))
            else:
                with self.code.block(f"if {weight} {only.value} 0:"):
                    yield self._as_taken(edge, Row(names, None, weight))

    def _as_taken(self, edge: Edge, row: Row) -> Row:
        """A row that comes over an edge, with 0.0 for -0.0 where its reader makes one of equal rows."""
        merged = self._steps[edge.target].merges and not self.analysis.zeros.one[edge.source]
        if not merged and not self.is_as_given(edge.source):
            return row
        return self._with_one_zero(self.graph.nodes[edge.source].schema, row)

    def is_as_given(self, node: int) -> bool:
        """Whether rows of a node are those that a table source was given, and no step has seen them yet."""
        if not self.graph.nodes[node].inputs:
            return node in self.analysis.zeros.made
        return is_delay(self.graph.nodes[node]) and self.is_as_given(self.graph.nodes[node].inputs[0])

    def _with_one_zero(self, schema: Schema, row: Row) -> Row:
        columns = list(row.columns)
        for at, field in enumerate(schema.fields):
            if holds_floats(field.type):
                name = self.fresh(field.name)
                self.code.line(f"{name} = {key_of(field.type, field.nullable, columns[at])}")
                columns[at] = name
        return row if columns == list(row.columns) else Row(tuple(columns), None, row.weight)

    def add_weight(self, slot: str, get: str, key: str, row: Row) -> None:
        """Write `slot[key][row] += weight`, without entries of weight 0 or empty dicts."""
        code = self.code
        own = self.fresh("own")
        code.line(f"{own} = {get}({key})")
        with code.block(f"if {own} is None:"):
            code.line(f"{slot}[{key}] = {{{row.whole}: {row.copies}}}")
        with code.block("else:"):
            total = self.fresh("n")
            code.line(f"{total} = {own}.get({row.whole}, 0) + {row.copies}")
            with code.block(f"if {total}:"):
                code.line(f"{own}[{row.whole}] = {total}")
            with code.block("else:"):
                code.line(f"del {own}[{row.whole}]")
                with code.block(f"if not {own}:"):
                    code.line(f"del {slot}[{key}]")

    def emit(self, node: int, row: Row) -> None:
        """Write what is done with one row of a node's output: its consumer's code, or a buffer."""
        if node in self.analysis.zeros.made:
            row = self._with_one_zero(self.graph.nodes[node].schema, row)
        edge = self._inlined.get(node)
        if edge is not None:
            self._note_activation(edge.target)
            row = self._as_taken(edge, row)
            with self.code.working_for(edge.target, row.columns):
                self._steps[edge.target].consume(edge.port, row)
        elif node in self._nested:
            self.code.line(f"{self.buffer(node)}.append({tuple_source((*row.columns, row.copies, self.at))})")
        else:
            self.code.line(f"{self.buffer(node)}.append({row.flat(append=self.is_append(node))})")

    def emit_copies(self, node: int, row: Row) -> None:
        """Emit a row whose weight is a variable; on an append edge as so many plain rows."""
        if not self.is_append(node) or row.weight is None:
            self.emit(node, row)
            return
        with self.code.block(f"for _ in range({row.weight}):"):
            self.emit(node, Row(row.columns, row.whole))

    # -- the function ------------------------------------------------------------------------------

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(slot for step in self._steps.values() for slot in step.slots())

    def write(self) -> None:
        """Write the region as a function from lists of rows to lists of rows."""
        inputs = ", ".join(self.buffer(n) for n in self.part.inputs)
        with self.code.block(f"def {self.part.function}({inputs}):"):
            self._write_body()
            results = [self._outcome(n) for n in self.part.outputs]
            self.code.line(f"return {tuple_source(results) if results else '()'}")

    def write_tick(self, sources: Mapping[int, str], sinks: Mapping[int, str]) -> None:
        """Write the region, which is the whole flow, as `tick(inputs)`: rows by source to rows by sink."""
        with self.code.block("def tick(inputs):"):
            for node in self.part.inputs:
                self.code.line(f"{self.buffer(node)} = inputs.get({sources[node]!r}, ())")
            self._write_body()
            self.code.line("made = {}")
            for node in self.part.outputs:
                with self.code.block(f"if {self._outcome(node)}:"):
                    self.code.line(f"made[{sinks[node]!r}] = {self._outcome(node)}")
            self.code.line("return made")

    def _write_body(self) -> None:
        self._begin()
        for group in self._in_turn():
            if len(group) == 1 and group[0] not in self._loop_of:
                self.write_node(group[0])
            else:
                write_loop = write_nested if group[0] in self._nested else write_rounds
                write_loop(self, group)
        if self._counting:
            for node in self.part.nodes:
                self.code.line(f"x_activations[{node}] += {self.named('ran', node)}")

    def _note_activation(self, node: int) -> None:
        if self._counting:
            self.code.line(f"{self.named('ran', node)} = True")

    def _outcome(self, node: int) -> str:
        return self.result(node) if self._steps[node].has_result else self.buffer(node)

    def _begin(self) -> None:
        for node in self.part.nodes:
            with self.code.working_for(node):
                if self._counting:
                    restless = self.graph.nodes[node].operator.runs_each_tick
                    self.code.line(f"{self.named('ran', node)} = {restless}")
                # In a loop, both are done for each round.
                if node not in self._loop_of:
                    self.begin_node(node)

    def begin_node(self, node: int) -> None:
        """Write what stands before the loops that may make a node's rows."""
        if self.has_buffer(node):
            self.code.line(f"{self.buffer(node)} = []")
        self._steps[node].begin()

    def _in_turn(self) -> Iterator[tuple[int, ...]]:
        """Nodes one by one, the nodes of a loop together."""
        done: set[int] = set()
        for node in self.part.nodes:
            if node not in done:
                group = tuple(self._loop_of.get(node, (node,)))
                done.update(group)
                yield group

    def write_node(self, node_id: int) -> None:
        """Write what a node does with its inputs' buffers."""
        step = self._steps[node_id]
        with self.code.working_for(node_id):
            buffered = [edge for edge in self.entries(node_id) if self.reads_buffer(edge)]
            self.note_activations(node_id, [edge.source for edge in buffered])
            if step.takes_rows:
                for edge in buffered:
                    self.consume_buffer(node_id, edge.port)
            step.finish()

    def note_activations(self, node: int, sources: Sequence[int]) -> None:
        """Write that a node was activated if a buffer that it reads has rows."""
        if self._counting and sources:
            with self.code.block(f"if {' or '.join(map(self.buffer, sources))}:"):
                self._note_activation(node)

    def consume_buffer(self, node_id: int, port: int) -> None:
        """Write what a node does with each row of an input that stands in a buffer."""
        with (
            self.each_row(self.graph.nodes[node_id], port) as row,
            self.code.working_for(node_id, row.columns),
        ):
            self._steps[node_id].consume(port, row)

    def has_buffer(self, node: int) -> bool:
        """Whether a node's rows stand in a buffer, for others to read."""
        return any(self.reads_buffer(edge) for edge in self._consumers[node])

    # -- what is inlined ---------------------------------------------------------------------------

    def _find_inlined(self) -> dict[int, Edge]:
        """Nodes whose only consumer's code is written where their rows are made, with the edge to it."""
        inlined: dict[int, Edge] = {}
        ends_heavy: dict[int, bool] = {}
        run: dict[int, int] = {}
        for node in reversed(self.part.nodes):
            edges = self._handed_on(node)
            if len(edges) != 1 or not self._may_inline(edges[0]):
                continue
            target = self._steps[edges[0].target]
            heavy = target.heavy or ends_heavy.get(edges[0].target, False)
            if heavy and self._steps[node].sites > 1:
                continue
            length = 1 + run.get(edges[0].target, 0)
            if length > _LONGEST_RUN:
                continue
            run[node] = length
            inlined[node] = edges[0]
            # A stateful consumer emits elsewhere, or is itself the heavy code.
            ends_heavy[node] = target.heavy or (
                not target.keeps_state and ends_heavy.get(edges[0].target, False)
            )
        return inlined

    def _handed_on(self, node: int) -> Sequence[Edge]:
        """The edges over which a node's rows go where they are made."""
        step = self._steps[node]
        if isinstance(step, NestedStep) and step.makes_set:
            # Outside of the loop its change is known when the last round is over.
            return self.readers(node, self._loop_of[node])
        return self._consumers[node]

    def _may_inline(self, edge: Edge) -> bool:
        if edge.source not in self._members or edge.target not in self._members:
            return False
        # A feedback hands its rows out round by round, so they stand in a buffer.
        if isinstance(self._steps[edge.source], ClosingStep):
            return False
        if self._loop_of.get(edge.source) != self._loop_of.get(edge.target):
            return False
        return self._steps[edge.target].takes_where_made(edge.port)
