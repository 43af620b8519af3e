"""Feedback operators: streams used before they are defined, for recursion over sets and multisets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.arrangement.batch import batch_of, bounded, select, take
from headrace.arrangement.spine import Probe
from headrace.columns.column_stream import build_stream, with_one_zero
from headrace.columns.columns import Columns, constant_weights
from headrace.expr.constructors import col
from headrace.graph.node import ALTERABLE, Operator, identity_lineage
from headrace.graph.operator_declarations import (
    EQUAL_ROWS,
    WHOLE,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    place_by_key,
)
from headrace.lowering.forms import apply_operator, register_arranged
from headrace.lowering.reference import Bag, Bags, ExamplePair, Examples, answer_of_bags
from headrace.lowering.round_history import RoundSumsWriter, SetLoopStep
from headrace.lowering.slot import Slot
from headrace.lowering.step import LoopStep, RowStep, register_loop_step, step_for
from headrace.operators.distinct import DistinctPlan, distinct_step
from headrace.requirements import np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.tree import Expr
    from headrace.expr.types import Field, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import ArrangedOperator, ArrangedState
    from headrace.lowering.row_code import RowCode
    from headrace.lowering.step_writer import StepWriter


class FeedbackOperator(Operator):
    """Base of feedbacks, which close a loop: the rows found in one round are the input of the next.

    max_iterations: limit on the rounds of one tick.
    """

    runs_in_rounds: ClassVar[bool] = True
    why_irrevocable: ClassVar[str]
    """Why a row that went round a tick later cannot be taken back."""
    __slots__ = ()
    max_iterations: int

    def ports(self) -> tuple[Port, ...]:
        return (Port("closing"),)

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(output),)

    def required_facts(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                f"a row that went round a tick later cannot be taken back:\n{self.why_irrevocable}",
                "let it go round within the tick, or feed the loop from streams that only grow",
                only_in_loop=True,
                across_ticks=True,
            ),
        )

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        return ""


class RoundFeedbackStep(RowStep):
    """Step of a feedback: its new rows in one round are the input of the next."""

    keeps_state = True
    operator: FeedbackOperator


# --- of sets ---------------------------------------------------------------------------------------


def _count_down(pairs: Any) -> Any:
    return pairs.filter(col.a > 0).with_columns(a=col.a - 1)


@dataclass(frozen=True, slots=True)
class Feedback(FeedbackOperator):
    """The distinct rows of the closing stream: each goes through the loop once.

    So after each tick the cycle holds the least fixpoint of the input so far: rows derived from it, without
    any that only support each other. A tick ends as soon as no new rows are found; one without input has no
    rounds. `max_iterations` limits the rounds of one tick, so that a loop that makes new rows forever ends in
    an error instead of hanging.

    If every path back contains a `defer_tick`, there is no loop within a tick, and the output is just the set
    of rows of the closing stream.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> def countdown(seed):
    ...     return seed.flow.fixpoint(
    ...         lambda n: n.filter(col.value > 0).select(value=col.value - 1, into=int), seed)
    >>> show(countdown, seed=[2])
    + 2
    + 1
    + 0
    """

    kind: ClassVar[str] = "feedback"
    examples: ClassVar[Examples] = {
        "fixpoint": lambda x, y: x.flow.fixpoint(_count_down, x),
        "fixpoint of rows that come and go": lambda x, y: x.flow.fixpoint(_count_down, y),
    }
    reads_net_changes: ClassVar[bool] = True
    picks_representative: ClassVar[bool] = True
    why_irrevocable: ClassVar[str] = "what followed from it may hold itself up"
    columns: tuple[Expr, ...]
    max_iterations: int = field(default=10_000, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> tuple[Field, ...]:
        context.require(self.max_iterations > 0, "a loop has no rounds")
        context.all_columns(self.columns, context.output)
        return context.output.fields

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"copies": KeyedSlot(bare=appends[0])}

    def placement(self) -> Placement:
        return place_by_key(EQUAL_ROWS)

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False, once=True)


class SetFeedbackStep(RoundFeedbackStep):
    """Feedback of sets, which passes on rows not seen before."""

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.rows"),)

    def consume(self, port: int, row: RowCode) -> None:
        writer = self.writer
        key = writer.fresh("row")
        self.code.line(f"{key} = {writer.row_key(self.node.schema, row.columns)}")
        with self.code.block(f"if {self.slot_getter('rows')}({key}) is None:"):
            self.code.line(f"{self.slot('rows')}[{key}] = 1")
            self.code.line(f"{writer.feedback_variable(self.node.id)}.append({key})")


@step_for.register(Feedback)
def _set_step(operator: Feedback, node: Node, writer: StepWriter) -> RowStep:
    if not writer.is_in_loop(node.id):
        # Every way back passes a delay: no rounds within a tick, and rows may be retracted.
        return distinct_step(node, writer)
    return SetFeedbackStep(node, writer)


@register_loop_step(Feedback)
class SetFeedbackLoopStep(SetLoopStep):
    """Feedback of sets in a loop with retractions: stores the first round in which each row is present."""

    is_feedback = True


@answer_of_bags.register(Feedback)
def _set_answer(operator: Feedback, node: Node, inputs: Bags) -> Bag:
    return Counter(set(inputs[0][1]))


# --- of multisets, duplicates included ------------------------------------------------------------


def _count_down_bag(pairs: Any) -> Any:
    back = pairs.flow.feedback(ExamplePair, distinct=False)
    back.close(_count_down(pairs.union(back)))
    return back


@dataclass(frozen=True, slots=True)
class BagFeedback(FeedbackOperator):
    """The rows of the closing stream, duplicates included: each copy goes through the loop.

    So something in the cycle must end the loop: a filter, a distinct, or exhausted rows. The operator has no
    state, and a tick without rows has no rounds. Rows of one round keep their order, unless rows may be
    retracted; then the rows derived from them are retracted, too. `max_iterations` limits the rounds of one
    tick.

    If every path back contains a `defer_tick`, the rows are just passed on.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> def countdown(seed):
    ...     back = seed.flow.feedback(int, distinct=False)
    ...     numbers = seed.union(back)
    ...     back.close(numbers.filter(col.value > 0).select(value=col.value - 1, into=int))
    ...     return numbers
    >>> show(countdown, seed=[2, 1])
    + 2
    + 1
    + 1
    + 0
    + 0
    """

    kind: ClassVar[str] = "feedback"
    plan_name: ClassVar[str | None] = "bag_feedback"
    examples: ClassVar[Examples] = {"feedback of a bag": lambda x, y: _count_down_bag(x)}
    why_irrevocable: ClassVar[str] = "what it met there may be gone"
    max_iterations: int = field(default=10_000, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> tuple[Field, ...]:
        context.require(self.max_iterations > 0, "a loop has no rounds")
        return context.output.fields

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False)

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return "duplicates kept"


class BagFeedbackStep(RoundFeedbackStep):
    """Feedback of bags, which passes on every row."""

    def consume(self, port: int, row: RowCode) -> None:
        self.code.line(f"{self.writer.feedback_variable(self.node.id)}.append({row.flat(append=True)})")


class DelayedBagFeedbackStep(RowStep):
    """Feedback that passes through a delay: it has no rounds, and rows pass unchanged."""

    def consume(self, port: int, row: RowCode) -> None:
        self.emit(row)


@step_for.register(BagFeedback)
def _bag_step(operator: BagFeedback, node: Node, writer: StepWriter) -> RowStep:
    if not writer.is_in_loop(node.id):
        return DelayedBagFeedbackStep(node, writer)
    return BagFeedbackStep(node, writer)


@register_loop_step(BagFeedback)
class BagFeedbackLoopStep(LoopStep):
    """Feedback of bags in a loop with retractions: passes on a round's changes one round later."""

    is_feedback = True

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self._rows = RoundSumsWriter(node.id, writer, "pending", node.schema, shift=1)

    def begin_loop(self) -> None:
        self._rows.begin_loop()

    def consume(self, port: int, row: RowCode) -> None:
        self._rows.add(row)

    def write_round(self) -> None:
        self._rows.write_round(self.emit)


@apply_operator.register(BagFeedback)
def _on_columns(
    operator: BagFeedback, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    (stream,) = inputs
    return replace(stream, schema=schema)


@answer_of_bags.register(BagFeedback)
def _bag_answer(operator: BagFeedback, node: Node, inputs: Bags) -> Bag:
    return inputs[0][1]


@register_arranged(Feedback)
@dataclass(frozen=True)
class FeedbackPlan(DistinctPlan):
    """Plan for the feedback of sets in a loop on frames. Outside of loops, a delay keeps its rows."""

    runs_outside_loops = False

    @property
    def slot(self) -> str:
        return f"{self.node}.rows"

    @property
    def bare(self) -> bool:
        return False

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarFeedback(self, state)


@dataclass(slots=True)
class ColumnarFeedback:
    """Feedback of sets in a loop on frames: the rows never present before, in no particular order."""

    plan: FeedbackPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the distinct rows of a round that were not seen before."""
        layout, slot = self.plan.layout, self.plan.slot
        rows = with_one_zero(inputs[0]).collected()
        found = batch_of(layout, rows.hstack([constant_weights(1, rows.height)]))
        probe = Probe(layout, layout.keys_of(found.frame), found.codes, None)
        known = np.zeros(len(found), np.bool_)
        for batch in self.slots.spine(slot).batches:
            known[probe.find(batch).asked] = True
        at = np.flatnonzero(~known)
        made = select(take(found.frame, at), layout.keys)
        weighted = made.hstack([constant_weights(1, len(at))])
        self.slots.prepare_batch(slot, bounded(layout, found.codes[at], weighted))
        return build_stream(Columns(self.plan.schema, True, made))
