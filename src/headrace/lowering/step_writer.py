"""Writer of generated code for the steps of one region: names, expressions and rows.

Steps write through this class and know neither each other nor how a region is composed; `RegionWriter`, which
knows both, is its only subclass in use.
"""

from __future__ import annotations

import keyword
import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from headrace.expr.check import check
from headrace.expr.compile_python import CodeScope, key_of, predicate_source, value_source
from headrace.expr.typing_rules import code_bounds
from headrace.expr.value_keys import has_representatives
from headrace.graph.node import Edge
from headrace.lowering.generated_source import SourceCode
from headrace.lowering.row_code import ChangeSelection, RowCode, tuple_source

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from headrace.expr.tree import Expr
    from headrace.expr.types import DataType, Schema
    from headrace.graph.node import Consumers, FlowGraph, Node
    from headrace.graph.operator_declarations import Facts
    from headrace.lowering.generated_source import Constants


# With a number behind they name something else: temporaries of expressions, buffers of nodes.
_NUMBERED_OTHERWISE = frozenset({"x", "rows", "out", "all", "news", "loop_count", "ticks", "part", "region"})


class AnalysedFlow(Protocol):
    """The parts of a flow's analysis that steps use (see `headrace.analysis.Analysis`)."""

    @property
    def facts(self) -> Sequence[Facts]: ...
    @property
    def loops(self) -> Sequence[tuple[int, ...]]: ...
    @property
    def zeros(self) -> NegativeZeroNormalization: ...
    def is_changing(self, loop: tuple[int, ...], /) -> bool: ...


class NegativeZeroNormalization(Protocol):
    """Nodes where -0.0 becomes 0.0, and those whose output is free of it."""

    @property
    def made(self) -> AbstractSet[int]: ...
    @property
    def one(self) -> Sequence[bool]: ...


class StepWriter(ABC):
    """Writer of a part's code, which also provides its steps with information about their context.

    code: what has been written. functions: module-level functions that it calls.
    at: source of the round in which the rows are there that are worked on, in a loop whose rows may
        be retracted.
    counting: write, too, what counts per operator the ticks in which rows reached it.
    """

    def __init__(
        self,
        graph: FlowGraph,
        analysis: AnalysedFlow,
        nodes: Sequence[int],
        consumers: Consumers,
        constants: Constants,
        *,
        counting: bool,
    ) -> None:
        self.graph = graph
        self.analysis = analysis
        self.code = SourceCode()
        self.functions = SourceCode()
        self.at = ""
        self.bounds = code_bounds()
        self._constants = constants
        self._counting = counting
        self._fresh = 0
        self._functions: set[str] = set()
        self._members = frozenset(nodes)
        self.consumers = consumers
        self._loop_of = {n: loop for loop in analysis.loops for n in loop if n in self._members}
        self._nested = {n for n, loop in self._loop_of.items() if analysis.is_changing(loop)}

    # -- other steps -------------------------------------------------------------------------------

    @abstractmethod
    def emit(self, node: int, row: RowCode) -> None:
        """Write the code for one row of a node's output: the consumer's code, or an append to a buffer."""

    @abstractmethod
    def inlined_edge(self, node: int) -> Edge | None:
        """Edge to the reader inlined at a node's output, if there is one."""

    @abstractmethod
    def is_consolidated(self, node: int) -> bool:
        """Return whether a node's rows of a tick are known to be distinct."""

    @abstractmethod
    def merges_equal_rows(self, node: int) -> bool:
        """Return whether a node merges equal input rows even if none is retracted."""

    # -- the place of a node -----------------------------------------------------------------------

    def is_append(self, node: int) -> bool:
        """Return whether a node's stream carries plain rows, without weights."""
        return self.analysis.facts[node].append

    def is_in_loop(self, node: int) -> bool:
        """Return whether a node's rows may return to it within a tick."""
        return node in self._loop_of

    def loop(self, node: int) -> tuple[int, ...]:
        """Return the loop that contains a node."""
        return self._loop_of[node]

    def loops_apart(self, one: int, other: int) -> bool:
        """Return whether two nodes, at least one of them in a loop, are not in the same loop."""
        return self._loop_of.get(one) != self._loop_of.get(other)

    def reads_buffer(self, edge: Edge) -> bool:
        """Return whether an edge's rows are buffered because its target is not inlined."""
        return self.inlined_edge(edge.source) != edge

    def is_buffered(self, node: int) -> bool:
        """Return whether a node's rows are buffered for other readers."""
        return any(self.reads_buffer(edge) for edge in self.consumers[node])

    def entries(self, node: int) -> tuple[Edge, ...]:
        """Return the edges that enter a node, in port order."""
        return tuple(Edge(s, node, port) for port, s in enumerate(self.graph.nodes[node].inputs))

    def readers(self, node: int, among: Sequence[int]) -> list[Edge]:
        """Return the edges from a node to any of the given nodes."""
        return [e for e in self.consumers[node] if e.target in among]

    def is_read_outside(self, node: int, loop: Sequence[int]) -> bool:
        """Return whether a node's rows are read outside `loop`."""
        return any(e.target not in loop for e in self.consumers[node])

    def round_variable(self, node: int) -> str:
        """Return the variable with the current round, from 0, of a node's loop."""
        return f"round_{self._loop_of[node][0]}"

    def next_round(self, node: int) -> str:
        """Return the variable with the next round, in a loop with retractions."""
        return f"next_{self._loop_of[node][0]}"

    def round_heap(self, node: int) -> str:
        """Return the variable with the heap of future rounds, in a loop with retractions."""
        return f"times_{self._loop_of[node][0]}"

    @contextmanager
    def at_round(self, source: str) -> Generator[None]:
        """Set `at` to the round given by `source` inside this block."""
        before, self.at = self.at, source
        yield
        self.at = before

    @contextmanager
    def at_later(self, one: str, other: str) -> Generator[None]:
        """Open a block for rows of the later of two rounds."""
        at = self.fresh("at")
        self.code.line(f"{at} = {one} if {one} > {other} else {other}")
        with self.at_round(at):
            yield

    @contextmanager
    def in_first_round(self, node: int) -> Generator[None]:
        """Open a block that runs once per tick, even if the node is in a loop."""
        if not self.is_in_loop(node):
            yield
            return
        with self.code.block(f"if not {self.round_variable(node)}:"):
            yield

    def input_schema(self, node: Node, port: int) -> Schema:
        return self.graph.nodes[node.inputs[port]].schema

    def constant(self, name: str, value: object) -> str:
        """Return the name of a constant used by generated code."""
        return self._constants.name(name, value)

    def fresh(self, name: str) -> str:
        """New variable name, unique in the region."""
        self._fresh += 1
        # Letters of other scripts: not all that count as letters may stand in a name of Python.
        clean = re.sub(r"\W", "_", name, flags=re.ASCII)
        if not clean[:1].isalpha() or keyword.iskeyword(clean) or clean in _NUMBERED_OTHERWISE:
            clean = f"v_{clean}"
        return f"{clean}_{self._fresh}"

    def node_variable(self, what: str, node: int) -> str:
        """Return the variable of a node for `what`."""
        return f"{what}_of_{node}"

    def function(self, header: str, *body: str) -> None:
        """Write a module-level function once."""
        if header.split("(")[0] in self._functions:
            return
        self._functions.add(header.split("(")[0])
        with self.functions.block(header):
            for line in body:
                self.functions.line(line)

    @contextmanager
    def function_body(self, node: int, header: str) -> Generator[None]:
        """Write a module-level function for a node. Code written inside this block is its body."""
        before, self.code = self.code, self.functions
        with self.code.attribute_lines(node), self.code.block(header):
            yield
        self.code = before

    def slot(self, node: int, what: str) -> str:
        return f"slot_{node}_{what}"

    def slot_get(self, node: int, what: str) -> str:
        return f"get_{node}_{what}"

    def most_rounds(self, limits: Iterable[int]) -> int:
        """Return the limit on the rounds of a loop, given those of its feedbacks."""
        most = min(limits)
        return most if self.bounds is None else min(most, self.bounds.rounds)

    def write_count(self, *rows: str) -> None:
        """Write code that counts rows against the limit of a tick, if the code is bounded. rows: lists."""
        if self.bounds is not None:
            self.code.line(f"x_made({' + '.join(f'len({each})' for each in rows)})")

    def buffer(self, node: int) -> str:
        """Return the variable with a node's rows of this tick or, in a loop, of this round."""
        return f"rows_{node}"

    def result_variable(self, node: int) -> str:
        """Return the variable with the rows that leave the region at a node."""
        return f"out_{node}"

    def feedback_variable(self, node: int) -> str:
        """Return the variable with a feedback's rows for the next round."""
        return f"news_{node}"

    # -- expressions -------------------------------------------------------------------------------

    def _scope(self, schema: Schema, columns: tuple[str, ...]) -> CodeScope:
        return CodeScope(schema, columns, self._constants.values)

    def value(self, expr: Expr, schema: Schema, columns: tuple[str, ...]) -> str:
        return value_source(expr, self._scope(schema, columns))

    def predicate(self, expr: Expr, schema: Schema, columns: tuple[str, ...]) -> str:
        return predicate_source(expr, self._scope(schema, columns))

    def key_source(self, dtype: DataType, source: str) -> str:
        """Return the source of a non-null value as a dict key."""
        return key_of(dtype, False, source)

    def is_own_key(self, dtype: DataType) -> bool:
        """Return whether values of a type can be dict keys unchanged, with equal values interchangeable."""
        return key_of(dtype, False, "value") == "value"

    def assign_key(
        self, name: str, exprs: Sequence[Expr], schema: Schema, columns: tuple[str, ...]
    ) -> list[int]:
        """Assign the key of a row to `name`; return the positions of the nullable parts.

        The key of one expression is its value, of none `()`, of several a tuple.
        """
        scope = self._scope(schema, columns)
        typed = [check(e, schema) for e in exprs]
        parts = [
            key_of(t.type, t.nullable, value_source(e, scope)) for e, t in zip(exprs, typed, strict=True)
        ]
        self.code.line(f"{name} = {parts[0] if len(parts) == 1 else tuple_source(parts) if parts else '()'}")
        return [i for i, t in enumerate(typed) if t.nullable]

    def key(self, name: str, exprs: Sequence[Expr], schema: Schema, columns: tuple[str, ...]) -> str:
        """Return the variable with a row's key: the column itself if that is the key, else a new variable."""
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
        """Return a test for a null part of the key; None if none can be null."""
        schema = self.input_schema(node, port)
        scope = self._scope(schema, columns)
        tests = [f"{value_source(e, scope)} is None" for e in exprs if check(e, schema).nullable]
        return " or ".join(tests) if tests else None

    def row_key(self, schema: Schema, columns: tuple[str, ...]) -> str:
        """Return the source of the row as a tuple usable as a dict key."""
        pairs = zip(schema.fields, columns, strict=True)
        return tuple_source([key_of(f.type, f.nullable, c) for f, c in pairs])

    def entry(self, schema: Schema, columns: tuple[str, ...]) -> str:
        """Return the source of the row as a dict key among rows of one schema; a single column is the key."""
        if len(columns) == 1:
            (field,) = schema.fields
            return key_of(field.type, field.nullable, columns[0])
        return self.row_key(schema, columns)

    def representative(self, expr: Expr, schema: Schema, columns: tuple[str, ...]) -> str:
        """Return the source of the representative of all values equal to that of `expr`."""
        typed, source = check(expr, schema), self.value(expr, schema, columns)
        return key_of(typed.type, typed.nullable, source) if has_representatives(typed.type) else source

    # -- rows --------------------------------------------------------------------------------------

    def unpack(self, schema: Schema, row: str) -> tuple[str, ...]:
        """Assign the columns of the tuple `row` to variables."""
        names = tuple(self.fresh(f.name) for f in schema.fields)
        self.code.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {row}")
        return names

    def consolidate_inputs(self, node: Node) -> None:
        """Write code that consolidates the buffers of an operator's table inputs."""
        for source in dict.fromkeys(node.inputs):
            if not self.is_append(source) and not self.is_consolidated(source):
                self.code.line(f"{self.buffer(source)} = x_consolidate({self.buffer(source)})")

    @contextmanager
    def each_row(
        self, node: Node, port: int, only: ChangeSelection = ChangeSelection.ALL
    ) -> Generator[RowCode]:
        """Open a loop over an input's buffer, or over its insertions or retractions."""
        source = node.inputs[port]
        edge = Edge(source, node.id, port)
        schema = self.graph.nodes[source].schema
        buffer = self.buffer(source)
        if self.is_append(source):
            row, at = self.fresh("row"), len(self.code.lines)
            with self.code.block(f"for {row} in {buffer}:"):
                columns = self.unpack(schema, row)
                yield self._as_taken(edge, RowCode(columns, row))
            names = ", ".join(columns) + "," * (len(columns) == 1)
            self.code.replace_unused_loop_header(at, row, f"for {names} in {buffer}:")
            return
        names = tuple(self.fresh(f.name) for f in schema.fields)
        weight = self.fresh("weight")
        if source in self._nested and node.id in self._loop_of[source]:
            at = self.fresh("at")
            with self.code.block(f"for {', '.join((*names, weight, at))} in {buffer}:"), self.at_round(at):
                yield self._as_taken(edge, RowCode(names, None, weight))
            return
        with self.code.block(f"for {', '.join((*names, weight))} in {buffer}:"):
            if only is ChangeSelection.ALL:
                yield self._as_taken(edge, RowCode(names, None, weight))
            else:
                with self.code.block(f"if {weight} {only.value} 0:"):
                    yield self._as_taken(edge, RowCode(names, None, weight))

    def _as_taken(self, edge: Edge, row: RowCode) -> RowCode:
        """Replace -0.0 with 0.0 in a row if the reader of its edge merges equal rows."""
        merged = self.merges_equal_rows(edge.target) and not self.analysis.zeros.one[edge.source]
        if not merged and not self.is_as_given(edge.source):
            return row
        return self._with_one_zero(self.graph.nodes[edge.source].schema, row)

    def is_as_given(self, node: int) -> bool:
        """Return whether a node's rows arrive unprocessed from a table source."""
        if not self.graph.nodes[node].inputs:
            return node in self.analysis.zeros.made
        return self.graph.nodes[node].is_delay and self.is_as_given(self.graph.nodes[node].inputs[0])

    def _with_one_zero(self, schema: Schema, row: RowCode) -> RowCode:
        columns = list(row.columns)
        for at, field in enumerate(schema.fields):
            if has_representatives(field.type):
                name = self.fresh(field.name)
                self.code.line(f"{name} = {key_of(field.type, field.nullable, columns[at])}")
                columns[at] = name
        return row if columns == list(row.columns) else RowCode(tuple(columns), None, row.weight)

    def as_whole(self, row: RowCode) -> RowCode:
        """Make a row available as a tuple too, in a variable."""
        if row.whole is not None:
            return row
        name = self.fresh("row")
        self.code.line(f"{name} = {tuple_source(row.columns)}")
        return RowCode(row.columns, name, row.weight)

    def emit_copies(self, node: int, row: RowCode) -> None:
        """Emit a row with a variable weight; on an append edge, as that many plain rows."""
        if not self.is_append(node) or row.weight is None:
            self.emit(node, row)
            return
        with self.code.block(f"for _ in range({row.weight}):"):
            self.emit(node, RowCode(row.columns, row.whole))

    # -- activations -------------------------------------------------------------------------------

    def count_activations(self, node: int, sources: Sequence[int]) -> None:
        """Write code that counts an activation of a node if any buffer it reads has rows."""
        if self._counting and sources:
            with self.code.block(f"if {' or '.join(map(self.buffer, sources))}:"):
                self.count_activation(node)

    def count_activation(self, node: int) -> None:
        """Write code that counts an activation of a node."""
        if self._counting:
            self.code.line(f"{self.node_variable('ran', node)} = True")
