"""Context and shared checks for adding an operator to a flow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.expr.check import check, check_ordered
from headrace.expr.tree import Column, Expr, Ordering
from headrace.expr.types import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.errors import HeadraceError, SourceLocation
    from headrace.expr.types import DataType


class CheckContext(ABC):
    """Inputs and claimed output for `Operator.output`, with checks shared by many operators.

    inputs:   schemas of the inputs, in port order; none for a feedback.
    output:   claimed schema of the output.
    location: the user's line, for errors.
    """

    def __init__(self, inputs: Sequence[Schema], output: Schema, location: SourceLocation) -> None:
        self.inputs = tuple(inputs)
        self.output = output
        self.location = location

    @property
    def input(self) -> Schema:
        """Schema of the only, or the first, input."""
        return self.inputs[0]

    # -- provided by the flow ------------------------------------------------------------------------

    @abstractmethod
    def unbuildable_error(self, what: str) -> HeadraceError:
        """Build the error for an operator that no method of a flow could have created."""

    @abstractmethod
    def check_name(self, name: str) -> None:
        """Raise unless a text is a valid name of a source or sink."""

    @abstractmethod
    def upstream(self, port: int) -> object:
        """Return the operator that feeds a port."""

    @abstractmethod
    def sources_reaching(self, port: int) -> tuple[str, ...]:
        """Return the names of the sources that reach a port."""

    @abstractmethod
    def timed_columns(self, port: int) -> Mapping[str, DataType]:
        """Return the columns of a port that have a watermark, with their types."""

    @abstractmethod
    def require_watermark(self, port: int, time: Expr, rows: int) -> None:
        """Raise unless `port` reads the watermark for the time of the rows at port `rows`."""

    @abstractmethod
    def with_state_expiry(self, operator: object) -> object:
        """Return a distinct or a join in the form that drops state behind its inputs' watermarks."""

    @abstractmethod
    def threshold(self, value: object, column: str) -> tuple[object, Schema]:
        """Return the `AtLeast` for a threshold on a column of the first input, and its output schema."""

    # -- parameters ----------------------------------------------------------------------------------

    def require(self, holds: bool, what: str) -> None:
        """Raise unless a condition holds. what: the error, as a sentence."""
        if not holds:
            raise self.unbuildable_error(what)

    def require_as_built_by_flow(self, made: object, given: object, what: str) -> None:
        """Raise unless the flow would have created exactly this operator."""
        self.require(repr(made) == repr(given), what)

    def type_of(self, expr: Expr, schema: Schema | None = None) -> DataType:
        """Return the type of an expression over the input. Raises like `check`."""
        return check(expr, self.input if schema is None else schema).type

    def check_keys(self, exprs: Iterable[Expr], schema: Schema | None = None) -> None:
        """Raise unless all keys are expressions over the input."""
        for expr in exprs:
            self.type_of(expr, schema)

    def all_columns(self, columns: Sequence[Expr], schema: Schema | None = None) -> None:
        """Raise unless `columns` are exactly those of the input."""
        names = (self.input if schema is None else schema).names
        same = len(columns) == len(names) and all(
            expr.same(Column(name)) for expr, name in zip(columns, names, strict=True)
        )
        self.require(same, "the columns are not all columns of the input")

    def check_order_by(self, by: Iterable[object]) -> None:
        """Raise unless all sort keys are expressions over the input with ordered values."""
        for each in by:
            if isinstance(each, Ordering):
                check_ordered(each.expr, self.input)

    # -- columns -------------------------------------------------------------------------------------

    def computed_columns(self, columns: Iterable[tuple[str, Expr]]) -> tuple[Field, ...]:
        """Return the columns computed by named expressions over the input."""
        typed = ((name, check(expr, self.input)) for name, expr in columns)
        return tuple(Field(name, term.type, term.nullable) for name, term in typed)

    def common_columns(self) -> tuple[Field, ...]:
        """Return the common columns of all inputs. A column is nullable if it is in any input."""
        fields = list(self.input.fields)
        for other in self.inputs[1:]:
            mine = [(f.name, f.type) for f in fields]
            self.require(
                mine == [(f.name, f.type) for f in other.fields], "the inputs are of different types"
            )
            fields = [
                replace(f, nullable=f.nullable or o.nullable)
                for f, o in zip(fields, other.fields, strict=True)
            ]
        return tuple(fields)

    def joined_columns(
        self, kept: Sequence[int], may_lack: tuple[bool, bool] = (False, False)
    ) -> tuple[Field, ...]:
        """Return the columns of the first input, then those of the second at `kept`, with claimed names.

        Users name columns whose name occurs in both inputs, and outer joins number all columns.
        may_lack: inputs whose row may be missing in an output row, replaced by nulls.
        """
        left, right = self.inputs[:2]
        self.require(all(0 <= at < len(right.fields) for at in kept), "there is no such column on the right")
        self.require(list(kept) == sorted(set(kept)), "columns of the right are not in order")
        fields = [replace(f, nullable=f.nullable or may_lack[0]) for f in left.fields]
        fields += [
            replace(f, nullable=f.nullable or may_lack[1]) for f in map(right.fields.__getitem__, kept)
        ]
        self.require(len(self.output.fields) == len(fields), "the output has other columns than it can")
        return tuple(replace(f, name=name) for f, name in zip(fields, self.output.names, strict=True))

    def all_joined_columns(self, kept: Sequence[int], *, may_lack: bool = False) -> tuple[Field, ...]:
        """Return the columns of both inputs, like `joined_columns`. Raises if a column is left out."""
        every = tuple(kept) == tuple(range(len(self.inputs[1].fields)))
        self.require(every, "not all columns of the right are there")
        return self.joined_columns(kept, (may_lack, may_lack))
