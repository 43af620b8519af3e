"""Navigation functions: the value of another row of the partition, by its place."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.tree import Expr, operand
from headrace.expr.types import Field, Rows
from headrace.lowering.reference import function_of
from headrace.operators.over.frames import FramedFunction, bounds_source, rows_of_frame
from headrace.operators.over.partitions import (
    FunctionWriter,
    Key,
    PartitionFunction,
    SortedPartition,
    Stretch,
    answer_of_row,
    function_source,
)
from headrace.operators.over.window_function import Frame, Over, Reach, WindowFunction

if TYPE_CHECKING:
    from headrace.expr.types import Schema


@dataclass(frozen=True, slots=True)
class Lag(WindowFunction):
    """Value of `expr` `offset` rows before, after if that is negative; `default` if there is none.

    ignore_nulls: count only rows in which it is not null.
    """

    expr: Expr
    offset: int = 1
    default: Expr | None = None
    ignore_nulls: bool = False

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,) if self.default is None else (self.expr, self.default)

    def reach(self, frame: Frame | None) -> Reach:
        if not self.ignore_nulls:
            return Reach.NEAR
        return Reach.BEHIND if self.offset > 0 else Reach.PARTITION

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
    """Value of `expr` in the `n`-th row of the frame, from 1, or from the end where `n` is negative.

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
    """Value of an expression `offset` rows after; `default` where there is no such row."""
    ahead: Any = -offset if type(offset) is int else offset
    return lagged(expr, ahead, default, ignore_nulls=ignore_nulls)


def lagged(expr: Expr, offset: int = 1, default: object = None, *, ignore_nulls: bool = False) -> Lag:
    """Value of an expression `offset` rows before; `default` where there is no such row."""
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

    def affected(self, after: Stretch) -> tuple[int, int]:
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
    """Values of the n-th rows of frames, from the end where `n` is negative."""

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
    """Yield the n-th non-null value of each frame, from the end where `n` is negative; else None.

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
def _lag_source(function: Lag, frame: Frame | None, step: FunctionWriter, suffix: str) -> str:
    value = step.value_function(f"value_{suffix}", function.expr)
    default = step.row_function(f"default_{suffix}", ["None"])
    if function.default is not None:
        default = step.value_function(f"default_{suffix}", function.default)
    return f"{step.constant(LagFunction)}({value}, {default}, {function.offset}, {function.ignore_nulls})"


@function_source.register(NthValue)
def _nth_value_source(function: NthValue, frame: Frame | None, step: FunctionWriter, suffix: str) -> str:
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
