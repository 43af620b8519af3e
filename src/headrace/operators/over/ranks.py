"""Ranking functions: the place of a row in its partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.tree import Expr
from headrace.expr.types import FLOAT64, INT32, Field, Rows
from headrace.operators.over.partitions import (
    FunctionWriter,
    PartitionFunction,
    Peers,
    SortedPartition,
    Stretch,
    answer_of_row,
    function_source,
)
from headrace.operators.over.window_function import Frame, Over, Reach, WindowFunction

if TYPE_CHECKING:
    from headrace.expr.types import DataType, Schema


@dataclass(frozen=True, slots=True)
class _Ranking(WindowFunction):
    """Base of the functions of a row's place in its partition."""

    of: ClassVar[DataType] = INT32
    shifts: ClassVar[Reach] = Reach.PARTITION

    def arguments(self) -> tuple[Expr, ...]:
        return ()

    def reach(self, frame: Frame | None) -> Reach:
        return self.shifts

    def field(self, name: str, schema: Schema) -> Field:
        return Field(name, self.of)

    def __str__(self) -> str:
        return f"{_snake(type(self).__name__)}({', '.join(str(getattr(self, f.name)) for f in fields(self))})"


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class RowNumber(_Ranking):
    """Place of the row in its partition, from 1."""

    __slots__ = ()
    shifts: ClassVar[Reach] = Reach.BEHIND


class Rank(_Ranking):
    """One more than the number of rows before the row's peers."""

    __slots__ = ()
    shifts: ClassVar[Reach] = Reach.BEHIND


class DenseRank(_Ranking):
    """Number of different values that are ordered by, up to the row's."""

    __slots__ = ()
    shifts: ClassVar[Reach] = Reach.BEHIND


class PercentRank(_Ranking):
    """(rank - 1) / (rows - 1); 0.0 in a partition of one row."""

    __slots__ = ()
    of: ClassVar[DataType] = FLOAT64


class CumeDist(_Ranking):
    """Part of the partition's rows up to the row's last peer."""

    __slots__ = ()
    of: ClassVar[DataType] = FLOAT64


@dataclass(frozen=True, slots=True)
class Ntile(_Ranking):
    """Number of the row's part, from 1, of a partition in `parts` of equal size, larger ones first."""

    parts: int

    def is_possible(self) -> bool:
        return self.parts > 0


def row_number() -> RowNumber:
    """Place of the row in its partition, from 1."""
    return RowNumber()


def rank() -> Rank:
    """Place of the row's first peer in the partition, from 1."""
    return Rank()


def dense_rank() -> DenseRank:
    """Number of different values that are ordered by, up to the row's."""
    return DenseRank()


def percent_rank() -> PercentRank:
    """(rank - 1) / (rows - 1)."""
    return PercentRank()


def cume_dist() -> CumeDist:
    """Part of the partition's rows up to the row's last peer."""
    return CumeDist()


def ntile(parts: int) -> Ntile:
    """Number of the row's part, from 1, of a partition divided into `parts` of equal size."""
    if type(parts) is not int or not Ntile(parts).is_possible():
        raise WrongType(f"ntile of {parts!r} parts", where=[SourceLocation.of_caller()], fix="ntile(4)")
    return Ntile(parts)


# --- answers as rows change --------------------------------------------------------------------------


@dataclass(slots=True)
class RowNumberFunction(PartitionFunction):
    """Places from 1."""

    def affected(self, after: Stretch) -> tuple[int, int]:
        return after.low, after.size if after.moved else after.high

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        return range(start + 1, stop + 1)


@dataclass(slots=True)
class RankFunction(PartitionFunction):
    """Places of the first peer from 1, as part of the others if `relative`."""

    peers: Peers
    relative: bool = False

    def affected(self, after: Stretch) -> tuple[int, int]:
        if after.moved:
            return 0 if self.relative else after.low, after.size
        return after.low, self.peers.around(after)[1]

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        others, at = len(rows) - 1, start
        while at < stop:
            place, end = self.peers.first(rows, at), min(self.peers.end(rows, at), stop)
            answer: Any = (place / others if others else 0.0) if self.relative else place + 1
            yield from [answer] * (end - at)
            at = end


@dataclass(slots=True)
class DenseRankFunction(PartitionFunction):
    """Number of the group of peers, from 1."""

    peers: Peers

    def affected(self, after: Stretch) -> tuple[int, int]:
        return after.low, after.size

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        by = self.peers.by
        rank, last = (0, None) if before is None else (before, by(rows[start - 1]))
        for at in range(start, stop):
            key = by(rows[at])
            if rank == 0 or key != last:
                rank, last = rank + 1, key
            yield rank


@dataclass(slots=True)
class CumeDistFunction(PartitionFunction):
    """Part of the rows up to the last peer."""

    peers: Peers

    def affected(self, after: Stretch) -> tuple[int, int]:
        return (0, after.size) if after.moved else self.peers.around(after)

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        at = start
        while at < stop:
            end = self.peers.end(rows, at)
            yield from [end / len(rows)] * (min(end, stop) - at)
            at = end


@dataclass(slots=True)
class NtileFunction(PartitionFunction):
    """Numbers of parts of equal size, the first ones larger by one."""

    parts: int

    def affected(self, after: Stretch) -> tuple[int, int]:
        return (0, after.size) if after.moved else (after.low, after.high)

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        size, larger = divmod(len(rows), self.parts)
        border = larger * (size + 1)
        for at in range(start, stop):
            yield at // (size + 1) + 1 if at < border else (at - border) // size + larger + 1


@function_source.register(_Ranking)
def _source(function: _Ranking, frame: Frame | None, step: FunctionWriter, suffix: str) -> str:
    match function:
        case RowNumber():
            return f"{step.constant(RowNumberFunction)}()"
        case Rank():
            return f"{step.constant(RankFunction)}({step.peers()})"
        case PercentRank():
            return f"{step.constant(RankFunction)}({step.peers()}, True)"
        case DenseRank():
            return f"{step.constant(DenseRankFunction)}({step.peers()})"
        case CumeDist():
            return f"{step.constant(CumeDistFunction)}({step.peers()})"
        case Ntile():
            return f"{step.constant(NtileFunction)}({function.parts})"
        case _:
            raise NotImplementedError(type(function).__name__)


# --- reference answers -------------------------------------------------------------------------------


@answer_of_row.register(RowNumber)
def _answer_row_number(function: RowNumber, over: Over, partition: SortedPartition, at: int) -> Any:
    return at + 1


@answer_of_row.register(Rank)
def _answer_rank(function: Rank, over: Over, partition: SortedPartition, at: int) -> Any:
    return partition.peers(at)[0] + 1


@answer_of_row.register(PercentRank)
def _answer_percent_rank(function: PercentRank, over: Over, partition: SortedPartition, at: int) -> Any:
    others = len(partition.rows) - 1
    return partition.peers(at)[0] / others if others else 0.0


@answer_of_row.register(DenseRank)
def _answer_dense_rank(function: DenseRank, over: Over, partition: SortedPartition, at: int) -> Any:
    different: list[Any] = []
    for other in range(at + 1):
        if partition.by(other) not in different:
            different.append(partition.by(other))
    return len(different)


@answer_of_row.register(CumeDist)
def _answer_cume_dist(function: CumeDist, over: Over, partition: SortedPartition, at: int) -> Any:
    return (partition.peers(at)[-1] + 1) / len(partition.rows)


@answer_of_row.register(Ntile)
def _answer_ntile(function: Ntile, over: Over, partition: SortedPartition, at: int) -> Any:
    size, larger = divmod(len(partition.rows), function.parts)
    parts = [part + 1 for part in range(function.parts) for _ in range(size + (part < larger))]
    return parts[at]
