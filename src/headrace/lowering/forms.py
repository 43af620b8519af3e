"""Forms of operators outside of generated code: on columns in a large tick, and as a DataFrame of Spark.

On columns, an operator without state is a function of frames (`apply_operator`). One with state has an
`ArrangedPlan`: its slots are arrangements there, which small ticks go on to read and write as mappings. One
that runs on rows may have them reduced in columns first (`PreReduction`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from headrace.errors import NotOnSpark
from headrace.expr.polars_columns import NotLowered

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import Column, DataFrame

    from headrace.arrangement.batch import SortedBatch
    from headrace.arrangement.spine import Spine
    from headrace.columns.column_stream import ColumnStream
    from headrace.columns.slot_forms import SlotForm
    from headrace.expr.tree import Expr
    from headrace.expr.types import Rows, Schema
    from headrace.graph.node import Node, Operator
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step import RowStep
    from headrace.lowering.step_writer import StepWriter


@singledispatch
def apply_operator(
    operator: Operator, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    """Apply a stateless operator to the columns of a large tick. Raises `NotLowered`.

    schema, append: of the output.
    """
    raise NotLowered("it works on rows")


def has_columnar_form(operator: Operator) -> bool:
    """Return whether a stateless operator has a form on columns."""
    return apply_operator.dispatch(type(operator)) is not apply_operator.dispatch(object)


@dataclass(frozen=True)
class ColumnarContext:
    """Context of an operator in a large tick: its node, its inputs and its output.

    schemas, appends: of the inputs. append: of the output.
    """

    node: Node
    schemas: tuple[Schema, ...]
    appends: tuple[bool, ...]
    append: bool


class ArrangedState(Protocol):
    """State of one operator in a large tick: arrangements, and slots of single values beside them.

    What is prepared has no effect until the tick succeeds.
    """

    @property
    def forms(self) -> Mapping[str, SlotForm]:
        """Forms of the slots that are arrangements, by name."""
        ...

    @property
    def slot(self) -> Callable[[str], SlotMapping]:
        """Function from a slot's name to its current mapping."""
        ...

    @property
    def most(self) -> int | None:
        """Limit on the number of rows that a tick produces."""
        ...

    def spine(self, name: str) -> Spine:
        """Return the arrangement of a slot."""
        ...

    def prepare(self, name: str, frame: pl.DataFrame) -> SortedBatch:
        """Prepare new rows of a slot as a batch. Raises `ColumnarDeclined` if sums might exceed 64 bits."""
        ...

    def prepare_batch(self, name: str, batch: SortedBatch, left: Sequence[SortedBatch] | None = None) -> None:
        """Prepare a batch of new rows of a slot. left: the batches that remain, if some are replaced."""
        ...

    def value(self, name: str) -> Any:
        """Return the value of a single-value slot; None if it has none."""
        ...

    def prepare_value(self, name: str, value: Any) -> None:
        """Prepare the next value of a single-value slot."""
        ...

    def prepare_effect(self, key: Any, effect: Callable[[], None]) -> None:
        """Prepare an effect on the state. It replaces an earlier effect with the same key."""
        ...


class ArrangedOperator(Protocol):
    """Operator in large ticks with its state in arrangements."""

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the output for new rows. They take effect on the state only once the tick succeeds.

        Raises `ColumnarDeclined`.
        """
        ...


class ArrangedPlan(ABC):
    """Columnar form of a stateful operator, with its state in arrangements.

    node: of the operator.
    runs_in_loops, runs_outside_loops: whether it runs on columns in the rounds of a loop without
        retractions, and elsewhere.
    keeps_values: its little state stays Python values.
    acts_alone: it may do something in a tick that has no rows for it.
    pairs_rows: its rows hold values of both inputs. If they are read one by one, it runs on rows, where
        values are not made once per pair.
    """

    runs_in_loops: ClassVar[bool] = False
    runs_outside_loops: ClassVar[bool] = True
    keeps_values: ClassVar[bool] = False
    acts_alone: ClassVar[bool] = False
    pairs_rows: ClassVar[bool] = False
    node: int

    @classmethod
    @abstractmethod
    def of(cls, context: ColumnarContext) -> Self:
        """Plan an operator. Raises `NotLowered`."""

    @abstractmethod
    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> Mapping[str, SlotForm]:
        """Return the forms of the slots that are arrangements, by name.

        read: the function that `write_reader` has written. slot: returns the mapping of a slot.
        """

    @abstractmethod
    def start(self, state: ArrangedState) -> ArrangedOperator:
        """Create the operator over its state."""

    def write_reader(self, node: Node, writer: StepWriter, name: str) -> None:  # noqa: B027
        """Write a function of this name that completes the entries of a slot, if the forms need one."""


@singledispatch
def arranged_plan(operator: Operator) -> type[ArrangedPlan] | None:
    """Return the class that plans a stateful operator on columns; None if it has no such form."""
    return None


P = TypeVar("P", bound=ArrangedPlan)


def register_arranged(*operators: type[Operator]) -> Callable[[type[P]], type[P]]:
    """Register the plan of these operators on columns."""

    def register(plan: type[P]) -> type[P]:
        def found(operator: Operator) -> type[ArrangedPlan]:
            return plan

        for operator in operators:
            arranged_plan.register(operator, found)
        return plan

    return register


class PreReduction:
    """Reduction of a large tick's rows, in columns: fewer rows with the same effect on an operator's state.

    The operator itself runs on rows. An accumulator has the same fields however its rows arrive: from
    columns come partial values, which generated code adds to the fields, so that a small tick can follow.
    """

    def reduce_lazily(self, stream: ColumnStream) -> pl.LazyFrame:
        """Reduce the rows lazily. Raises `NotLowered`."""
        raise NotImplementedError

    def reduce_rows(self, stream: ColumnStream) -> Rows:
        """Reduce the rows, in the form that the operator's step reads. Raises `ColumnarDeclined`."""
        raise NotImplementedError


@singledispatch
def choose_reduction(operator: Operator, schema: Schema, append: bool) -> PreReduction:
    """Choose the reduction of an operator's input with rows of `schema`. Raises `NotLowered`."""
    raise NotLowered


@singledispatch
def reduced_step_for(
    operator: Operator, reduction: PreReduction, node: Node, writer: StepWriter
) -> RowStep | None:
    """Create the step of an operator over reduced rows. None if its own step reads them."""
    return None


class BatchContext(Protocol):
    """Context of an operator in a batch on Spark: its node, and the bags that it reads as DataFrames.

    A bag has each row as often as it is present, and the columns of the node's schema, by name.
    """

    @property
    def node(self) -> Node: ...
    @property
    def inputs(self) -> tuple[DataFrame, ...]: ...
    @property
    def schemas(self) -> tuple[Schema, ...]: ...
    @property
    def frames(self) -> Mapping[str, DataFrame]:
        """Rows of each source of the flow, by name."""
        ...

    def column(self, expr: Expr, over: int | Schema = 0) -> Column:
        """Lower an expression over the columns of an input, or of a schema."""
        ...

    def named(self, name: str) -> Column:
        """Return the column with exactly this name, even with special characters."""
        ...

    def group_rows(self, frame: DataFrame, schema: Schema, *aggregates: Column) -> DataFrame:
        """Group equal rows, and return each once, with aggregates of its copies."""
        ...

    def empty(self) -> DataFrame:
        """Return an empty bag with the node's columns."""
        ...


@singledispatch
def lower_operator(operator: Operator, context: BatchContext) -> DataFrame:
    """Lower an operator to its output bag on Spark, for a batch with all its input in one tick.

    So the output of that tick is the output of the run: rows repeated in every tick appear once, and rows
    that wait for a tick started by something else never appear. Operators that read the order of rows, or
    show the number of several ticks, run in a subplan instead.

    Raises `NotOnSpark` for an operator without such a form.
    """
    raise NotOnSpark(
        f"{operator.kind} has no form as a batch on Spark",
        where=[context.node.location],
        fix='run the flow with mode="stream", or in-process',
        operator=context.node.name,
    )
