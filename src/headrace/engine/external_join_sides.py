"""Externally stored join sides: a join reads an index in place instead of keeping a copy.

A side of an inner join is a slot, key -> rows. If the side is an unprocessed source, joined on some of its
columns, and its rows are already indexed by exactly these columns elsewhere, the slot can be a view of that
index. The caller feeds the engine time by time: the view shows the content *before* the current time, and the
slot holds only what the join has added since, which is dropped when the time is over. A large tick takes the
index in columns, if it can be had so; until the time is over, small ticks read these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.analysis.strata import find_loops
from headrace.expr.tree import Column, Expr
from headrace.expr.types import Row
from headrace.expr.value_keys import dict_key_source
from headrace.graph.node import FlowGraph, Node
from headrace.operators.endpoints import SourceOperator
from headrace.operators.join.join import SIDES, How, Join
from headrace.operators.lifetime import Lifetime

if TYPE_CHECKING:
    from headrace.arrangement.spine import Spine
    from headrace.engine.columnar.arranged_slot import ArrangedSlot
    from headrace.engine.program import Program


There: TypeAlias = Callable[[Hashable], Collection[tuple[Row, int]]]
"""Function from a key to its rows with their multiplicities."""
InColumns: TypeAlias = "Callable[[int], Spine | None]"
"""Function from the number of a tick's rows to all rows in columns; None if that is too dear."""


@dataclass(frozen=True, slots=True)
class SourceJoinSide:
    """A side of an inner join whose input is a source.

    slot:    of the program, that keeps it.
    source:  by name. columns: that it is joined on, in order. A key is their values, in a tuple unless
             it is one.
    append:  rows of the source have no weight.
    node, port: which input of which operator it is.
    """

    slot: str
    source: str
    columns: tuple[str, ...]
    append: bool
    node: int
    port: int


def join_sides(program: Program) -> list[SourceJoinSide]:
    """Find the join sides that can be stored externally."""
    graph = program.graph
    looping = {node for loop in find_loops(graph) for node in loop}
    slots = {slot.name for slot in program.slots}
    return [
        side
        for node in graph.nodes
        if node.id not in looping
        for port in range(2)
        if (side := _side(graph, node, port, program)) is not None and side.slot in slots
    ]


def _side(graph: FlowGraph, node: Node, port: int, program: Program) -> SourceJoinSide | None:
    join = node.operator
    if not isinstance(join, Join) or join.how is not How.INNER or Lifetime.TICK in join.lifetimes:
        return None
    source = graph.nodes[node.inputs[port]].operator
    if not isinstance(source, SourceOperator):
        return None
    columns = [_plain_column(key, source) for key in (join.left_keys, join.right_keys)[port]]
    if not columns or None in columns or len(set(columns)) < len(columns):
        return None
    named = tuple(column for column in columns if column is not None)
    append = program.source_append[source.name]
    return SourceJoinSide(f"{node.id}.{SIDES[port]}", source.name, named, append, node.id, port)


def _plain_column(key: Expr, source: SourceOperator) -> str | None:
    """Return the column that serves as the key, if its values can be dict keys unchanged."""
    if not isinstance(key, Column):
        return None
    field = next(f for f in source.schema.fields if f.name == key.name)
    as_it_is = dict_key_source(field.type, field.nullable, "value", lambda name: (name, name)) == "value"
    return key.name if as_it_is else None


def join_readers(program: Program, source: str) -> frozenset[tuple[int, int]] | None:
    """Return the readers of a source as (node, port) if all are joins; else None."""
    graph = program.graph
    edges = graph.consumers()[graph.sources[source]]
    joins = all(isinstance(graph.nodes[edge.target].operator, Join) for edge in edges)
    return frozenset((edge.target, edge.port) for edge in edges) if joins else None


class SharedSide:
    """Slot of an externally stored side: rows from before the current time, plus its changes.

    It is what the code of an inner join asks of a slot, and no other mapping.

    there, in_columns: what was there before.
    arranged: all rows, of a time with a large tick.
    """

    def __init__(self, side: SourceJoinSide, there: There, in_columns: InColumns) -> None:
        self._there = there
        self._in_columns = in_columns
        self._append = side.append
        self._news: dict[Hashable, Any] = {}
        self.arranged: ArrangedSlot | None = None

    def end_time(self) -> None:
        """End the current time: from now on `there` includes its changes."""
        if self._news:
            self._news = {}
        self.arranged = None

    def arrange(self, over: Callable[[Spine], ArrangedSlot], rows: int) -> bool:
        """Load all rows into columns if that pays off for a tick of `rows` rows; return whether it does.

        over: makes a slot over them.
        """
        if self.arranged is not None:
            return True
        spine = self._in_columns(rows)
        if spine is None:
            return False
        arranged = over(spine)
        for key in self._news:
            view = self.get(key)
            arranged[key] = list(view) if self._append else dict(view.items())
        self._news, self.arranged = {}, arranged
        return True

    def get(self, key: Hashable) -> Any:
        """Return a mutable view of a key's rows; None if there are none."""
        if self.arranged is not None:
            return self.arranged.get(key)
        there, news = self._there(key), self._news.get(key)
        if not there and news is None:
            return None
        return (_Rows if self._append else _Weights)(self._news, key, there, news)

    def __setitem__(self, key: Hashable, value: Any) -> None:
        (self._news if self.arranged is None else self.arranged)[key] = value

    def __delitem__(self, key: Hashable) -> None:
        del (self._news if self.arranged is None else self.arranged)[key]


class _Rows:
    """View of a key's rows without retractions: stored ones, then new ones."""

    __slots__ = ("_all_news", "_key", "_news", "_there")

    def __init__(
        self, all_news: dict[Hashable, Any], key: Hashable, there: Iterable[tuple[Row, int]], news: Any
    ) -> None:
        self._all_news, self._key, self._there = all_news, key, there
        self._news: list[Row] | None = news

    def __iter__(self) -> Iterator[Row]:
        for row, count in self._there:
            yield from (row,) * count
        yield from self._news or ()

    def append(self, row: Row) -> None:
        if self._news is None:
            self._news = self._all_news[self._key] = []
        self._news.append(row)


class _Weights:
    """View of a key's rows with their weights.

    The join reads and changes only the new weights; `items` returns the sums.
    """

    __slots__ = ("_all_news", "_key", "_news", "_there")

    def __init__(
        self, all_news: dict[Hashable, Any], key: Hashable, there: Collection[tuple[Row, int]], news: Any
    ) -> None:
        self._all_news, self._key, self._there = all_news, key, there
        self._news: dict[Row, int] | None = news

    def items(self) -> Collection[tuple[Row, int]]:
        """Return all rows with their non-zero total weights."""
        if not self._news:
            return self._there
        weights = dict(self._there)
        for row, weight in self._news.items():
            weights[row] = weights.get(row, 0) + weight
        return [(row, weight) for row, weight in weights.items() if weight]

    def get(self, row: Row, default: int) -> int:
        return default if self._news is None else self._news.get(row, default)

    def __setitem__(self, row: Row, weight: int) -> None:
        if self._news is None:
            self._news = self._all_news[self._key] = {}
        self._news[row] = weight

    def __delitem__(self, row: Row) -> None:
        if self._news is not None:
            del self._news[row]

    def __bool__(self) -> bool:
        # What is there is not for the join to take away; news that are none are forgotten with the time.
        return True
