"""Execution of one part in a large tick: columnar nodes on frames, then the row-wise ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.columns.column_stream import ColumnStream, build_stream, empty_stream, with_one_zero
from headrace.columns.columns import ColumnarDeclined, Columns, rows_to_columns
from headrace.engine.columnar.arranged_slot import COLUMNS
from headrace.engine.columnar.loop_rounds import DECLINES, ColumnarLoop, NarrowLoop, RoundSlots
from headrace.expr.types import Rows
from headrace.lowering.forms import apply_operator

if TYPE_CHECKING:
    from headrace.analysis import Analysis
    from headrace.engine.columnar.arranged_slot import ArrangedSlots
    from headrace.engine.columnar.columnar_plan import ColumnarPlan
    from headrace.engine.columnar.loop_rounds import LoopPlan
    from headrace.engine.runtime_library import TickBudget
    from headrace.graph.node import FlowGraph
    from headrace.lowering.forms import ArrangedOperator


Given = Rows | Columns
Function: TypeAlias = Callable[..., tuple[Rows, ...]]


_MORE = 4
"""Times as many rows as in a tick whose loop was too narrow for columns, in one that tries again."""


class FrameResults(NamedTuple):
    """Results of a tick on frames, before any state changes.

    leaving: rows of columnar nodes. feeds: what the rest reads.
    """

    leaving: dict[int, Given]
    feeds: list[Rows]


class ArrangedNode(NamedTuple):
    """Columnar node with state."""

    slots: ArrangedSlots
    operator: ArrangedOperator


class PartRunner:
    """A part that takes and returns rows or columns.

    function: the part in rows. rest: what its shape leaves to rows.
    arranged: the columnar nodes with state.
    least:    with fewer rows the part runs in rows.
    always:   run on frames even if all rows come as rows.
    wanted_as_rows: outputs that must be rows. unread: columns of sources that nobody reads.
    limit:    on the rows that a tick makes; None for no limit. What might exceed it runs in rows.
    loops:    the generated code of loops that run on frames, by their first node, for small rounds.
    most_rounds: limit on the rounds of all loops.
    """

    def __init__(
        self,
        graph: FlowGraph,
        analysis: Analysis,
        shape: ColumnarPlan,
        function: Function,
        rest: Function,
        arranged: Mapping[int, ArrangedNode],
        *,
        least: int,
        always: bool,
        wanted_as_rows: frozenset[int],
        unread: Mapping[int, frozenset[str]],
        limit: TickBudget | None,
        loops: Mapping[int, Function],
        most_rounds: int,
    ) -> None:
        self._graph = graph
        self._append = {n: analysis.facts[n].append for n in (*shape.part.inputs, *shape.part.nodes)}
        self._one_zero = analysis.zeros.made
        self._shape = shape
        self._function = function
        self._rest = rest
        self._least = least
        self._always = always
        self._wanted_as_rows = wanted_as_rows
        self._unread = unread
        self._limit = limit
        self.arranged = arranged
        self._shared = self._read_often()
        self._without_rows: dict[int, ColumnStream] = {}
        self._made = 0
        self._least_new = 0
        self.loops = {
            first: self._loop(plan, loops[first], most_rounds) for first, plan in shape.loops.items()
        }
        self._in_loop = frozenset(n for plan in shape.loops.values() for n in plan.nodes)

    def _loop(self, plan: LoopPlan, in_rows: Function, most_rounds: int) -> ColumnarLoop:
        every = [self.arranged[n].slots for n in plan.nodes if n in self.arranged]
        slots = [each for each in every if isinstance(each, RoundSlots)]

        def least() -> int:
            return min(self._least, *(each.least for each in slots), COLUMNS)

        return ColumnarLoop(
            self._graph,
            plan,
            self._nothing,
            self._applied,
            slots,
            in_rows,
            least=least,
            most_rounds=min(most_rounds, plan.most_rounds),
            limit=self._limit,
            count=self._count,
            always=self._always,
        )

    def __call__(self, *inputs: Given) -> tuple[Given, ...]:
        made: FrameResults | None = None
        try:
            if self._is_worth_it(inputs):
                made = self._on_frames(inputs)
        except DECLINES as why:
            # Nothing else has changed so far; in rows, what fails fails as ever.
            if isinstance(why, NarrowLoop):
                self._least_new = _MORE * sum(map(len, inputs))
            for node in self.arranged.values():
                node.slots.undo()
        if made is None:
            return self._function(*[as_rows(given) for given in inputs])
        # From here on nothing is declined: state changes, and users' functions are called.
        for node in self.arranged.values():
            node.slots.add()
        part = self._shape.part
        outputs = [n for n in part.outputs if n in self._shape.rest]
        leaving = {**made.leaving, **dict(zip(outputs, self._rest(*made.feeds), strict=True))}
        return tuple(leaving[n] for n in part.outputs)

    @property
    def is_arranged(self) -> bool:
        """Return whether all columnar state of the part is arranged."""
        kept = [node.slots for node in self.arranged.values() if node.slots.forms]
        return bool(kept) and all(slots.are_arranged for slots in kept)

    @property
    def least(self) -> int:
        """Number of rows from which the part runs on frames."""
        if not self.is_arranged:
            return max(self._least, 1)
        kept = (node.slots for node in self.arranged.values())
        return min(self._least, *(slots.least for slots in kept if slots.forms))

    def _is_worth_it(self, inputs: Sequence[Given]) -> bool:
        shape, count = self._shape, sum(map(len, inputs))
        arranged = self.is_arranged
        if count < self.least or not shape.uses_frames:
            return False
        in_frames = sum(len(given) for given in inputs if isinstance(given, Columns))
        if not self._always and not arranged and (in_frames * 2 < count or count < self._least_new):
            return False
        slots = [node.slots for node in self.arranged.values()]
        # Before any is arranged: all of them are needed.
        if not all(each.pays(count) for each in slots):
            return False
        for each in slots:
            each.arrange()
        return True

    def _on_frames(self, inputs: Sequence[Given]) -> FrameResults:
        shape, part = self._shape, self._shape.part
        given = dict(zip(part.inputs, inputs, strict=True))
        streams: dict[int, ColumnStream] = {}

        def stream(node: int) -> ColumnStream:
            if node not in streams:
                taken = build_stream(self._as_columns(node, given[node]))
                # A table's rows are as they were given to its source.
                streams[node] = taken if self._append[node] else with_one_zero(taken)
            return streams[node]

        self._made = 0
        for node_id in shape.columnar:
            if node_id in self.loops:
                entering = {source: stream(source) for source in shape.loops[node_id].entering}
                if any(each.most for each in entering.values()):
                    streams.update(self.loops[node_id].answer(entering))
                else:
                    streams.update((n, self._nothing(n)) for n in shape.loops[node_id].leaving)
            elif node_id not in self._in_loop:
                read = [stream(source) for source in self._graph.nodes[node_id].inputs]
                streams[node_id] = self._applied(node_id, read)
        left: dict[int, Given] = {n: self._leaving(n, stream(n)) for n in part.outputs if n in shape.columnar}
        feeds = [
            feed.reduction.reduce_rows(stream(feed.source))
            if feed.reduction is not None
            else self._as_fed(feed.source, given, left, stream)
            for feed in shape.feeds
        ]
        return FrameResults(left, feeds)

    def _applied(self, node_id: int, read: Sequence[ColumnStream]) -> ColumnStream:
        """Return a node's output for its inputs."""
        node = self._graph.nodes[node_id]
        if not any(each.most for each in read) and not self._acts_alone(node_id):
            return self._nothing(node_id)
        if node_id in self.arranged:
            made = self.arranged[node_id].operator.answer(read)
        else:
            made = apply_operator(node.operator, node.schema, self._append[node_id], read)
        if node_id in self._one_zero:
            made = with_one_zero(made)
        self._count(made.most)
        return made.kept() if node_id in self._shared else made

    def _count(self, rows: int) -> None:
        self._made += rows
        if self._limit is not None and self._made > self._limit.rows:
            raise ColumnarDeclined

    def _acts_alone(self, node: int) -> bool:
        return node in self.arranged and self.arranged[node].slots.alone

    def _nothing(self, node: int) -> ColumnStream:
        """Return the empty output stream of a node."""
        found = self._without_rows.get(node)
        if found is None:
            made = empty_stream(self._graph.nodes[node].schema, self._append[node]).kept()
            found = self._without_rows[node] = made
        return found

    def _as_columns(self, node: int, given: Given) -> Columns:
        if isinstance(given, Columns):
            return given
        unread = self._unread.get(node, frozenset())
        return rows_to_columns(self._graph.nodes[node].schema, self._append[node], given, unread=unread)

    def _leaving(self, node: int, stream: ColumnStream) -> Given:
        columns = Columns(stream.schema, stream.append, stream.collected())
        return columns.rows() if node in self._wanted_as_rows else columns

    def _as_fed(
        self,
        source: int,
        given: dict[int, Given],
        left: dict[int, Given],
        stream: Callable[[int], ColumnStream],
    ) -> Rows:
        if source in given:
            return as_rows(given[source])
        if source not in left:
            left[source] = self._leaving(source, stream(source))
        return as_rows(left[source])

    def _read_often(self) -> frozenset[int]:
        """Columnar nodes with several readers, in the part or outside."""
        readers = dict.fromkeys(self._shape.columnar, 0)
        for node_id in self._shape.columnar:
            for source in self._graph.nodes[node_id].inputs:
                if source in readers:
                    readers[source] += 1
        for source in (*(feed.source for feed in self._shape.feeds), *self._shape.part.outputs):
            if source in readers:
                readers[source] += 1
        return frozenset(node for node, count in readers.items() if count > 1)


def as_rows(given: Given) -> Rows:
    """Convert to rows if needed."""
    return given.rows() if isinstance(given, Columns) else given
