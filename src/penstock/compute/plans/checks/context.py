"""What a plan claims of one operator, and the words that its checks are written in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from penstock.compute.plans.refusal import Position
from penstock.expr.check import check
from penstock.expr.tree import Column, Expr, Ordering
from penstock.expr.types import DataType, Field, Schema
from penstock.flow.operators.signals.signal_operator import SignalOperator
from penstock.graph.node import Operator

if TYPE_CHECKING:
    from penstock.errors import SourceLocation
    from penstock.flow.stream import Stream


@dataclass(frozen=True, slots=True)
class Claimed:
    """An operator that is to be added to a flow.

    streams:  what it reads, in port order; of a feedback none.
    schema:   what the plan says of its output.
    position: of it in the plan, for refusals.
    """

    streams: tuple[Stream[Any, Any, Any, Any], ...]
    schema: Schema
    location: SourceLocation
    position: Position

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return tuple(stream.schema for stream in self.streams)

    @property
    def input(self) -> Schema:
        """The schema of the only, or the first, input."""
        return self.streams[0].schema

    def need(self, holds: bool, what: str) -> None:
        """Raises `BadPlan` where something does not hold; `what` is wrong then."""
        if not holds:
            raise self.position.refuse(what)

    @property
    def reads_signal(self) -> bool:
        """Whether the first input is a signal."""
        return isinstance(self.operator_of(0), SignalOperator)

    def operator_of(self, port: int) -> Operator:
        """The operator that feeds a port."""
        stream = self.streams[port]
        return stream.flow.node(stream.node_id).operator

    # -- parameters --------------------------------------------------------------------------------

    def type_of(self, expr: Expr, schema: Schema | None = None) -> DataType:
        """The type of an expression over the input. Raises what `check` raises."""
        return check(expr, self.input if schema is None else schema).type

    def keys(self, exprs: Iterable[Expr], schema: Schema | None = None) -> None:
        """Raises for what are no expressions over the input."""
        for expr in exprs:
            self.type_of(expr, schema)

    def all_columns(self, columns: Sequence[Expr], schema: Schema | None = None) -> None:
        """Raises where `columns` are not exactly those of the input."""
        names = (self.input if schema is None else schema).names
        same = len(columns) == len(names) and all(
            expr.same(Column(name)) for expr, name in zip(columns, names, strict=True)
        )
        self.need(same, "the columns are not all columns of the input")

    def orderings(self, by: Iterable[object]) -> None:
        self.keys(each.expr for each in by if isinstance(each, Ordering))

    def reason(self, nondet: str | None) -> None:
        self.need(nondet is None or bool(nondet.strip()), "a reason is empty")

    # -- columns -------------------------------------------------------------------------------------

    def computed(self, columns: Iterable[tuple[str, Expr]]) -> tuple[Field, ...]:
        """The columns that named expressions over the input make."""
        made: list[Field] = []
        for name, expr in columns:
            typed = check(expr, self.input)
            made.append(Field(name, typed.type, typed.nullable))
        return tuple(made)

    def alike(self) -> tuple[Field, ...]:
        """The columns of inputs that have the same ones; null may be in them where it may be in one."""
        fields = list(self.input.fields)
        for other in self.inputs[1:]:
            mine = [(f.name, f.type) for f in fields]
            self.need(mine == [(f.name, f.type) for f in other.fields], "the inputs are of different types")
            fields = [
                replace(f, nullable=f.nullable or o.nullable)
                for f, o in zip(fields, other.fields, strict=True)
            ]
        return tuple(fields)

    def beside(self, kept: Sequence[int], may_lack: tuple[bool, bool] = (False, False)) -> tuple[Field, ...]:
        """The columns of the first input, then those of the second at `kept`, all called as is claimed.

        Users say what columns are called whose name both inputs have, and outer joins call all by number.
        """
        left, right = self.inputs[:2]
        self.need(all(0 <= at < len(right.fields) for at in kept), "there is no such column on the right")
        self.need(list(kept) == sorted(set(kept)), "columns of the right are not in order")
        fields = [replace(f, nullable=f.nullable or may_lack[0]) for f in left.fields]
        fields += [
            replace(f, nullable=f.nullable or may_lack[1]) for f in map(right.fields.__getitem__, kept)
        ]
        self.need(len(self.schema.fields) == len(fields), "the output has other columns than it can")
        return tuple(replace(f, name=name) for f, name in zip(fields, self.schema.names, strict=True))


@singledispatch
def output_of(operator: Operator, claimed: Claimed) -> tuple[Field, ...] | None:
    """The columns that an operator's output has; None where a function decides.

    Raises `BadPlan`, and what the checks of expressions raise, for parameters that no method gives.
    """
    raise claimed.position.refuse(f"{operator.kind} is no operator that a flow can be built with")


def agree(computed: tuple[Field, ...] | None, claimed: Claimed) -> None:
    """Raises `BadPlan` where a plan claims other columns than there are.

    A row class may say that null may be where it cannot be; never that it cannot be where it may.
    """
    if computed is None:
        return
    given = claimed.schema.fields
    same = [(f.name, f.type) for f in computed] == [(f.name, f.type) for f in given]
    loose = same and all(g.nullable or not c.nullable for c, g in zip(computed, given, strict=True))
    if not loose:
        found, told = Schema(computed), claimed.schema
        raise claimed.position.refuse(f"the output has not the columns {told}; it has {found}")
