"""Window functions of single rows: the value of another row by its position, and the position of a row."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.tree import Expr, operand
from headrace.expr.types import FLOAT64, INT32, Field, Rows
from headrace.lowering.reference import function_of
from headrace.operators.over.frames import FramedFunction, bounds_source, rows_of_frame
from headrace.operators.over.partitions import (
    ChangedRange,
    FunctionWriter,
    Key,
    PartitionFunction,
    Peers,
    SortedPartition,
    answer_of_row,
    function_source,
)
from headrace.operators.over.window_function import Over, RecomputeScope, WindowFrame, WindowFunction

if TYPE_CHECKING:
    from headrace.expr.types import DataType, Schema


@dataclass(frozen=True, slots=True)
class Lag(WindowFunction):
    """Value of `expr` `offset` rows before, or after if negative; `default` if there is no such row.

    ignore_nulls: count only rows in which it is not null.
    """

    expr: Expr
    offset: int = 1
    default: Expr | None = None
    ignore_nulls: bool = False

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,) if self.default is None else (self.expr, self.default)

    def reach(self, frame: WindowFrame | None) -> RecomputeScope:
        if not self.ignore_nulls:
            return RecomputeScope.NEAR
        return RecomputeScope.BEHIND if self.offset > 0 else RecomputeScope.PARTITION

    def field(self, name: str, schema: Schema) -> Field:
        typed = check(self.expr, schema)
        if self.default is None:
            return Field(name, typed.type, True)
        other = check(self.default, schema)
        if other.type != typed.type:
            raise WrongType(
                f"lag of {typed.type} has a default of {other.type}",
                where=[SourceLocation.of_caller()],
                fix="cast the default",
            )
        return Field(name, typed.type, typed.nullable or other.nullable)

    def __str__(self) -> str:
        name = "lag" if self.offset >= 0 else "lead"
        return f"{name}({self.expr}, {abs(self.offset)})"


@dataclass(frozen=True, slots=True)
class NthValue(WindowFunction):
    """Value of `expr` in the `n`-th row of the frame, from 1, or from the end if `n` is negative.

    Null where the frame has no such row. ignore_nulls: count only rows in which it is not null.
    """

    framed: ClassVar[bool] = True
    ordered: ClassVar[bool] = False
    expr: Expr
    n: int
    ignore_nulls: bool = False

    def is_possible(self) -> bool:
        return self.n != 0

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def field(self, name: str, schema: Schema) -> Field:
        typed = check(self.expr, schema)
        return Field(name, typed.type, typed.nullable or abs(self.n) != 1)

    def __str__(self) -> str:
        name = {1: "first_value", -1: "last_value"}.get(self.n)
        return f"nth_value({self.expr}, {self.n})" if name is None else f"{name}({self.expr})"


def lead(expr: Expr, offset: int = 1, default: object = None, *, ignore_nulls: bool = False) -> Lag:
    """Value of an expression `offset` rows after; `default` if there is no such row."""
    ahead: Any = -offset if type(offset) is int else offset
    return lagged(expr, ahead, default, ignore_nulls=ignore_nulls)


def lagged(expr: Expr, offset: int = 1, default: object = None, *, ignore_nulls: bool = False) -> Lag:
    """Value of an expression `offset` rows before; `default` if there is no such row."""
    if type(offset) is not int:
        raise WrongType(f"lag by {offset!r} rows", where=[SourceLocation.of_caller()], fix="lag(x, 2)")
    return Lag(operand(expr), offset, None if default is None else operand(default), ignore_nulls)


def first_value(expr: Expr, *, ignore_nulls: bool = False) -> NthValue:
    """Value of an expression in the first row of the frame."""
    return NthValue(operand(expr), 1, ignore_nulls)


def last_value(expr: Expr, *, ignore_nulls: bool = False) -> NthValue:
    """Value of an expression in the last row of the frame."""
    return NthValue(operand(expr), -1, ignore_nulls)


def nth_value(expr: Expr, n: int, *, ignore_nulls: bool = False) -> NthValue:
    """Value of an expression in the `n`-th row of the frame, from 1."""
    if type(n) is not int or n < 1:
        raise WrongType(f"nth_value of row {n!r}", where=[SourceLocation.of_caller()], fix="nth_value(x, 2)")
    return NthValue(operand(expr), n, ignore_nulls)


# --- answers as rows change --------------------------------------------------------------------------


@dataclass(slots=True)
class LagFunction(PartitionFunction):
    """Values some rows before, or after.

    value: of a row. default: for a row without another.
    """

    value: Key
    default: Key
    offset: int
    ignore_nulls: bool

    @property
    def is_local(self) -> bool:  # type: ignore[override]
        return not self.ignore_nulls

    def affected(self, after: ChangedRange) -> tuple[int, int]:
        if self.ignore_nulls:
            return (after.low, after.size) if self.offset > 0 else (0, after.high)
        if self.offset > 0:
            return after.low, min(after.size, after.high + self.offset)
        return max(0, after.low + self.offset), after.high

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        value, default = self.value, self.default
        if self.ignore_nulls and self.offset:
            for at, found in enumerate(self._non_nulls(rows, start, stop), start):
                yield default(rows[at]) if found is None else found
            return
        for at in range(start, stop):
            other = at - self.offset
            yield value(rows[other]) if 0 <= other < len(rows) else default(rows[at])

    def _non_nulls(self, rows: Rows, start: int, stop: int) -> Iterator[Any]:
        places, size = range(start, stop), len(rows)
        frames = ((0, at) for at in places) if self.offset > 0 else ((at + 1, size) for at in places)
        return nth_non_nulls(rows, self.value, -self.offset, frames)


@dataclass(slots=True)
class NthValueFunction(FramedFunction):
    """Values of the n-th rows of frames, from the end if `n` is negative."""

    value: Key
    n: int
    ignore_nulls: bool

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        value, n, frames = self.value, self.n, self.bounds.of(rows, start, stop)
        if self.ignore_nulls:
            yield from nth_non_nulls(rows, value, n, frames)
            return
        for first, last in frames:
            at = first + n - 1 if n > 0 else last + n
            yield value(rows[at]) if first <= at < last else None


def nth_non_nulls(rows: Rows, value: Key, n: int, frames: Iterable[tuple[int, int]]) -> Iterator[Any]:
    """Yield the n-th non-null value of each frame, from the end if `n` is negative; None if there is none.

    The bounds of frames must not fall from one frame to the next: each row is looked at once.
    """
    return _from_the_start(rows, value, n, frames) if n > 0 else _from_the_end(rows, value, -n, frames)


def _from_the_start(rows: Rows, value: Key, n: int, frames: Iterable[tuple[int, int]]) -> Iterator[Any]:
    found: deque[tuple[int, Any]] = deque()  # the first non-nulls of the frame, with their places
    seen = 0
    for first, last in frames:
        while found and found[0][0] < first:
            found.popleft()
        seen = max(seen, first)
        while len(found) < n and seen < last:
            if (present := value(rows[seen])) is not None:
                found.append((seen, present))
            seen += 1
        yield found[-1][1] if len(found) == n else None


def _from_the_end(rows: Rows, value: Key, n: int, frames: Iterable[tuple[int, int]]) -> Iterator[Any]:
    found: deque[tuple[int, Any]] = deque()  # the last non-nulls before the frame's end, with their places
    seen = None
    for first, last in frames:
        if seen is None:
            # The first frame may be long, and its last rows tell: later ones do not begin before it.
            for at in range(last - 1, first - 1, -1):
                if (present := value(rows[at])) is not None:
                    found.appendleft((at, present))
                    if len(found) == n:
                        break
        else:
            for at in range(max(seen, first), last):
                if (present := value(rows[at])) is not None:
                    found.append((at, present))
                    if len(found) > n:
                        found.popleft()
        seen = last
        yield found[0][1] if len(found) == n and found[0][0] >= first else None


@function_source.register(Lag)
def _lag_source(function: Lag, frame: WindowFrame | None, step: FunctionWriter, suffix: str) -> str:
    value = step.value_function(f"value_{suffix}", function.expr)
    default = step.row_function(f"default_{suffix}", ["None"])
    if function.default is not None:
        default = step.value_function(f"default_{suffix}", function.default)
    return f"{step.constant(LagFunction)}({value}, {default}, {function.offset}, {function.ignore_nulls})"


@function_source.register(NthValue)
def _nth_value_source(
    function: NthValue, frame: WindowFrame | None, step: FunctionWriter, suffix: str
) -> str:
    assert frame is not None
    value = step.value_function(f"value_{suffix}", function.expr)
    made, bounds = step.constant(NthValueFunction), bounds_source(frame, step)
    return f"{made}({bounds}, {value}, {function.n}, {function.ignore_nulls})"


# --- reference answers -------------------------------------------------------------------------------


@answer_of_row.register(Lag)
def _answer_lag(function: Lag, over: Over, partition: SortedPartition, at: int) -> Any:
    value = function_of(function.expr, partition.schema)
    before = list(range(at - 1, -1, -1)) if function.offset > 0 else list(range(at + 1, len(partition.rows)))
    if not function.offset:
        return value(partition.rows[at])
    if function.ignore_nulls:
        before = [other for other in before if value(partition.rows[other]) is not None]
    if abs(function.offset) <= len(before):
        return value(partition.rows[before[abs(function.offset) - 1]])
    return (
        None
        if function.default is None
        else function_of(function.default, partition.schema)(partition.rows[at])
    )


@answer_of_row.register(NthValue)
def _answer_nth_value(function: NthValue, over: Over, partition: SortedPartition, at: int) -> Any:
    value = function_of(function.expr, partition.schema)
    found = [value(row) for row in rows_of_frame(over, partition, at)]
    if function.ignore_nulls:
        found = [each for each in found if each is not None]
    if function.n < 0:
        found.reverse()
    return found[abs(function.n) - 1] if abs(function.n) <= len(found) else None


@dataclass(frozen=True, slots=True)
class _Ranking(WindowFunction):
    """Base of the functions that rank a row in its partition."""

    of: ClassVar[DataType] = INT32
    shifts: ClassVar[RecomputeScope] = RecomputeScope.PARTITION

    def arguments(self) -> tuple[Expr, ...]:
        return ()

    def reach(self, frame: WindowFrame | None) -> RecomputeScope:
        return self.shifts

    def field(self, name: str, schema: Schema) -> Field:
        return Field(name, self.of)

    def __str__(self) -> str:
        return f"{_snake(type(self).__name__)}({', '.join(str(getattr(self, f.name)) for f in fields(self))})"


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class RowNumber(_Ranking):
    """Position of the row in its partition, from 1."""

    __slots__ = ()
    shifts: ClassVar[RecomputeScope] = RecomputeScope.BEHIND


class Rank(_Ranking):
    """One more than the number of rows before the row's peers."""

    __slots__ = ()
    shifts: ClassVar[RecomputeScope] = RecomputeScope.BEHIND


class DenseRank(_Ranking):
    """Number of distinct ordering values up to the row's."""

    __slots__ = ()
    shifts: ClassVar[RecomputeScope] = RecomputeScope.BEHIND


class PercentRank(_Ranking):
    """(rank - 1) / (rows - 1); 0.0 in a partition of one row."""

    __slots__ = ()
    of: ClassVar[DataType] = FLOAT64


class CumeDist(_Ranking):
    """Fraction of the partition's rows up to the row's last peer."""

    __slots__ = ()
    of: ClassVar[DataType] = FLOAT64


@dataclass(frozen=True, slots=True)
class Ntile(_Ranking):
    """Number, from 1, of the row's part in a partition of `parts` equal parts, larger ones first."""

    parts: int

    def is_possible(self) -> bool:
        return self.parts > 0


def row_number() -> RowNumber:
    """Position of the row in its partition, from 1."""
    return RowNumber()


def rank() -> Rank:
    """Position of the row's first peer in the partition, from 1."""
    return Rank()


def dense_rank() -> DenseRank:
    """Number of distinct ordering values up to the row's."""
    return DenseRank()


def percent_rank() -> PercentRank:
    """(rank - 1) / (rows - 1)."""
    return PercentRank()


def cume_dist() -> CumeDist:
    """Fraction of the partition's rows up to the row's last peer."""
    return CumeDist()


def ntile(parts: int) -> Ntile:
    """Number, from 1, of the row's part of a partition divided into `parts` parts of equal size."""
    if type(parts) is not int or not Ntile(parts).is_possible():
        raise WrongType(f"ntile of {parts!r} parts", where=[SourceLocation.of_caller()], fix="ntile(4)")
    return Ntile(parts)


# --- answers as rows change --------------------------------------------------------------------------


@dataclass(slots=True)
class RowNumberFunction(PartitionFunction):
    """Positions of rows, from 1."""

    def affected(self, after: ChangedRange) -> tuple[int, int]:
        return after.low, after.size if after.moved else after.high

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        return range(start + 1, stop + 1)


@dataclass(slots=True)
class RankFunction(PartitionFunction):
    """Positions of the first peer, from 1; if `relative`, as a fraction of the other rows."""

    peers: Peers
    relative: bool = False

    def affected(self, after: ChangedRange) -> tuple[int, int]:
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

    def affected(self, after: ChangedRange) -> tuple[int, int]:
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
    """Fraction of the rows up to the last peer."""

    peers: Peers

    def affected(self, after: ChangedRange) -> tuple[int, int]:
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

    def affected(self, after: ChangedRange) -> tuple[int, int]:
        return (0, after.size) if after.moved else (after.low, after.high)

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        size, larger = divmod(len(rows), self.parts)
        border = larger * (size + 1)
        for at in range(start, stop):
            yield at // (size + 1) + 1 if at < border else (at - border) // size + larger + 1


@function_source.register(_Ranking)
def _source(function: _Ranking, frame: WindowFrame | None, step: FunctionWriter, suffix: str) -> str:
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
