"""Execution of one part in a large tick: columnar nodes on frames, then the row-wise ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from penstock.engine.columnar.columns import ColumnarDeclined, Columns, rows_to_columns
from penstock.engine.columnar.join import ColumnarJoinState
from penstock.engine.columnar.stream import Stream, apply_operator, build_stream, with_one_zero
from penstock.engine.steps.joins import SIDES
from penstock.flow.operators.sink import Sink

if TYPE_CHECKING:
    from penstock.analysis import Analysis
    from penstock.engine.columnar.columnar_plan import ColumnarPlan
    from penstock.engine.slot import SlotMapping
    from penstock.graph.node import FlowGraph

Rows = list[tuple[Any, ...]]
Given = Rows | Columns
Function = Callable[..., tuple[Rows, ...]]


class FrameResults(NamedTuple):
    """Results of a tick on frames, before any state changes.

    leaving: rows of columnar nodes. feeds: what the rest reads. news: what joins are to remember.
    """

    leaving: dict[int, Given]
    feeds: list[Rows]
    news: dict[int, list[pl.DataFrame | None]]


class PartRunner:
    """A part that takes and returns rows or columns.

    function: the part in rows. rest: what its shape leaves to rows.
    slot:     the mapping of a slot, by name, as it is at the time.
    least:    with fewer rows the part runs in rows.
    always:   run on frames even if all rows come as rows.
    lazily:   the state of joins may stay in frames from tick to tick.
    wanted_as_rows: outputs that must be rows.
    """

    def __init__(
        self,
        graph: FlowGraph,
        analysis: Analysis,
        shape: ColumnarPlan,
        function: Function,
        rest: Function,
        slot: Callable[[str], SlotMapping],
        *,
        least: int,
        always: bool,
        lazily: bool,
        wanted_as_rows: frozenset[int],
    ) -> None:
        self._graph = graph
        self._append = {n: analysis.facts[n].append for n in (*shape.part.inputs, *shape.part.nodes)}
        self._one_zero = analysis.zeros.made
        self._shape = shape
        self._function = function
        self._rest = rest
        self._least = least
        self._always = always
        self._lazily = lazily or always
        self._wanted_as_rows = wanted_as_rows
        self.joins = {
            node: ColumnarJoinState(plan, lambda port, node=node: slot(f"{node}.{SIDES[port]}"))
            for node, plan in shape.joins.items()
        }
        self._shared = self._read_often()
        self._computed_on = {
            source
            for node in (*shape.columnar, *shape.rest)
            for source in graph.nodes[node].inputs
            if not isinstance(graph.nodes[node].operator, Sink)
        }

    def __call__(self, *inputs: Given) -> tuple[Given, ...]:
        made: FrameResults | None = None
        try:
            if self._is_worth_it(inputs):
                made = self._on_frames(inputs)
        except (ColumnarDeclined, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            # Nothing has changed so far; in rows, what fails fails as ever.
            pass
        if made is None:
            self.move_state_to_slots()
            return self._function(*[as_rows(given) for given in inputs])
        # From here on nothing is declined: state changes, and users' functions are called.
        for node, frames in made.news.items():
            self.joins[node].add(frames)
        part = self._shape.part
        outputs = [n for n in part.outputs if n in self._shape.rest]
        leaving = {**made.leaving, **dict(zip(outputs, self._rest(*made.feeds), strict=True))}
        return tuple(leaving[n] for n in part.outputs)

    def move_state_to_slots(self) -> None:
        """Move all state into slots."""
        for join in self.joins.values():
            join.move_to_slots()

    def _is_worth_it(self, inputs: Sequence[Given]) -> bool:
        shape, count = self._shape, sum(map(len, inputs))
        if count < max(self._least, 1) or not shape.uses_frames:
            return False
        in_frames = sum(len(given) for given in inputs if isinstance(given, Columns))
        if not self._always and in_frames * 2 < count:
            return False
        return all(join.move_to_frames(count, lazily=self._lazily) for join in self.joins.values())

    def _on_frames(self, inputs: Sequence[Given]) -> FrameResults:
        shape, part = self._shape, self._shape.part
        given = dict(zip(part.inputs, inputs, strict=True))
        streams: dict[int, Stream] = {}
        news: dict[int, list[pl.DataFrame | None]] = {}

        def stream(node: int) -> Stream:
            if node not in streams:
                taken = build_stream(self._as_columns(node, given[node]))
                # A table's rows are as they were given to its source.
                streams[node] = taken if self._append[node] else with_one_zero(taken)
            return streams[node]

        for node_id in shape.columnar:
            node = self._graph.nodes[node_id]
            read = [stream(source) for source in node.inputs]
            if node_id in self.joins:
                news[node_id] = [self._new_rows(node_id, port, side) for port, side in enumerate(read)]
                made = self.joins[node_id].answer(news[node_id], computed_on=node_id in self._computed_on)
            else:
                made = apply_operator(node.operator, node.schema, self._append[node_id], read)
            if node_id in self._one_zero:
                made = with_one_zero(made)
            streams[node_id] = made.kept() if node_id in self._shared else made
        left: dict[int, Given] = {n: self._leaving(n, stream(n)) for n in part.outputs if n in shape.columnar}
        feeds = [
            feed.reduction.reduce_rows(stream(feed.source))
            if feed.reduction is not None
            else self._as_fed(feed.source, given, left, stream)
            for feed in shape.feeds
        ]
        return FrameResults(left, feeds, news)

    def _new_rows(self, node: int, port: int, side: Stream) -> pl.DataFrame | None:
        frame = self._shape.joins[node].add_keys(port, side).collected()
        return frame if frame.height else None

    def _as_columns(self, node: int, given: Given) -> Columns:
        if isinstance(given, Columns):
            return given
        return rows_to_columns(self._graph.nodes[node].schema, self._append[node], given)

    def _leaving(self, node: int, stream: Stream) -> Given:
        columns = Columns(stream.schema, stream.append, stream.collected())
        return columns.rows() if node in self._wanted_as_rows else columns

    def _as_fed(
        self,
        source: int,
        given: dict[int, Given],
        left: dict[int, Given],
        stream: Callable[[int], Stream],
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
