"""At-least operator: threshold on values that only grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import Facts, KeyedSlot, Placement, Port, place_by_key
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags, function_of
from headrace.lowering.row_code import RowCode, key_columns
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step
from headrace.operators.aggregate.counts import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import SlotLayout, Unservable
    from headrace.lattice import Lattice
    from headrace.lowering.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class AtLeast(Operator):
    """Keys whose value in `column` has reached `threshold`, each emitted once, in the tick of reaching it.

    A row has the key's columns, and the threshold in place of the column. The operator itself is non-blocking
    (its input may not be: an aggregate completes the tick first). It retracts nothing, although its input
    retracts old values, because the column must be monotone, which the analysis checks. An empty tick emits
    nothing; keys are emitted in the order in which they reach the threshold.

    lattice: lattice whose order defines "at least"; for numbers, the usual order.

    >>> import headrace as hr
    >>> from headrace.testing import show
    >>> show(lambda words: words.group_by("value").agg(n=hr.count()).at_least(2, column="n"),
    ...      words=["a", "b", "a", "a"])
    + (value='a', n=2)
    """

    kind: ClassVar[str] = "at_least"
    examples: ClassVar[Examples] = {"at_least": lambda x, y: x.group_by("a").agg(n=count()).at_least(2)}
    merges_equal: ClassVar[bool] = True
    threshold: object
    column: str
    keys: tuple[Expr, ...]
    lattice: Lattice

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        # Whether the column only grows follows from the upstream operators alone.
        made, schema = context.threshold(self.threshold, self.column)
        context.require_as_built_by_flow(made, self, "what grows, and by which keys, is something else")
        return schema.fields

    def unservable(self) -> Unservable | None:
        return None

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"reached": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(self.keys)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True, ordered=False, once=True)

    def grows_from(self) -> str | None:
        return self.column

    def describe(self) -> str:
        return f"{self.column} >= {self.threshold!r}"


@register_step(AtLeast)
class AtLeastStep(Step):
    """Step of at_least. Slot: key -> 1 once its value has reached the threshold."""

    operator: AtLeast
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.threshold = writer.constant("threshold", self.operator.threshold)
        self.leq = writer.constant("leq", self.operator.lattice.leq)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.reached"),)

    def consume(self, port: int, row: RowCode) -> None:
        code, writer, operator = self.code, self.writer, self.operator
        schema = self.input_schema()
        at = schema.position(operator.column)
        assert at is not None
        comes = f"{row.weight} > 0 and " if row.weight not in (None, "1") else ""
        if row.weight == "-1":
            return
        with code.block(f"if {comes}{self.leq}({self.threshold}, {row.columns[at]}):"):
            key = writer.fresh("key")
            writer.assign_key(key, operator.keys, schema, row.columns)
            with code.block(f"if {self.slot_getter('reached')}({key}) is None:"):
                code.line(f"{self.slot('reached')}[{key}] = 1")
                self.emit(RowCode((*key_columns(key, len(operator.keys)), self.threshold)))


@answer_of_bags.register(AtLeast)
def _answer(operator: AtLeast, node: Node, inputs: Bags) -> Bag:
    # All previous rows are still present, because the input only grows.
    [(schema, bag)] = inputs
    value = schema.position(operator.column)
    assert value is not None
    parts = [function_of(expr, schema) for expr in operator.keys]
    return Counter(
        {
            (*(part(row) for part in parts), operator.threshold): 1
            for row in bag
            if operator.lattice.leq(operator.threshold, row[value])
        }
    )
