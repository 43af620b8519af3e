"""Least-watermark operator: watermark of computed times, or of several streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.check import check
from headrace.expr.monotonicity import Monotonicity, monotonicity
from headrace.expr.types import Field, Schema
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Placement, Port, meet
from headrace.operators.end_of_input import VALUE
from headrace.operators.unservable import EVENT_TIME
from headrace.operators.watermark import Watermark

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import DataType
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Mapping of a watermark to that of a computed column: `expr` over the column `value` of `type`.

    `expr` must never decrease while `value` rises.
    """

    type: DataType
    expr: Expr

    def same(self, other: Move) -> bool:
        """Return whether two moves are equal. `==` would build an expression."""
        return self.type == other.type and self.expr.same(other.expr)


@dataclass(frozen=True, slots=True)
class LeastWatermark(Operator):
    """The least of the input watermarks, after their moves, whenever it rises. Null is the end of time.

    It exists once every input has one. An input that has ended does not hold it back.
    """

    kind: ClassVar[str] = "least_watermark"
    gives_watermark: ClassVar[bool] = True
    moves: tuple[tuple[Move, ...], ...]

    def ports(self) -> tuple[Port, ...]:
        return tuple(Port(f"watermark {at}") for at in range(len(self.moves)))

    def output(self, context: CheckContext) -> Columns:
        inputs = zip(context.inputs, self.moves, strict=True)
        types = {_moved(schema.fields[0].type, moves, context) for schema, moves in inputs}
        read = all(isinstance(context.upstream(port), Watermark) for port in range(len(self.moves)))
        context.require(read and len(types) == 1, "the inputs are not watermarks of one type")
        return (Field(VALUE, types.pop(), True),)

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return meet(inputs).but(once=True)

    def placement(self) -> Placement:
        return WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for at, moves in enumerate(self.moves):
            for move in moves:
                yield f"watermark {at}", move.expr

    def describe(self) -> str:
        return ", ".join(
            str(moves[-1].expr) if len(moves) == 1 else "as it is" if not moves else "computed"
            for moves in self.moves
        )

    def same(self, other: LeastWatermark) -> bool:
        """Return whether two operators have equal moves."""
        pairs = zip(self.moves, other.moves, strict=False)
        return len(self.moves) == len(other.moves) and all(
            len(mine) == len(theirs) and all(m.same(t) for m, t in zip(mine, theirs, strict=True))
            for mine, theirs in pairs
        )


def _moved(type: DataType, moves: Sequence[Move], context: CheckContext) -> DataType:
    """Return a watermark's type after its shifts are applied, each of which must be monotone."""
    for move in moves:
        context.require(move.type == type, "a watermark is moved as one of another type")
        schema = Schema((Field(VALUE, type),), scalar=True)
        type = check(move.expr, schema).type
        rises = monotonicity(move.expr, schema, VALUE) is Monotonicity.INCREASING
        context.require(rises, "a watermark may fall")
    return type
