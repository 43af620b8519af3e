"""Join operator: pairs of rows with equal keys. Difference operator: rows absent from another stream.

A join is bilinear: the changes of its output are the changes of one side joined with the state of the other,
so inner and semi joins stream from both sides. The output of a left or anti join depends on the *absence* of
rows; a new right row can retract it, so its right input is complete first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr import constructors
from headrace.expr.tree import Column, Expr, columns_of
from headrace.expr.types import BOOL, Row, Schema
from headrace.graph.node import ALTERABLE, Operator, identity_lineage
from headrace.graph.operator_declarations import (
    EQUAL_ROWS,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    meet,
    place_by_key,
)
from headrace.lowering.forms import lower_operator
from headrace.lowering.reference import (
    Bag,
    Bags,
    Examples,
    OperatorInput,
    answer_of_bags,
    copies,
    function_of,
    functions_of,
    output_of_tick,
)
from headrace.operators.lifetime import (
    DEPENDS_ON_CUT,
    Lifetime,
    TickDependent,
    rows_by_lifetime,
    tick_needs,
    with_lifetimes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.expr.types import Field
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import BatchContext


SIDES = ("left", "right")
"""Names of the inputs, and of the slots with their rows."""


class How(Enum):
    """Kind of join."""

    INNER = "inner"
    LEFT = "left"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def can_retract_left(self) -> bool:
        """Whether a right row can retract output, as in left and anti joins."""
        return self in (How.LEFT, How.ANTI)

    @property
    def has_right_columns(self) -> bool:
        return self in (How.INNER, How.LEFT)


def _example(how: str, **arguments: Any) -> Callable[[Any, Any], Any]:
    suffix = {} if how in ("semi", "anti") else {"suffix": "_y"}
    return lambda x, y: x.join(y, **{"on": "a", "how": how, **suffix, **arguments})


_LEFT, _RIGHT = constructors.left, constructors.right
_RESIDUAL = (_LEFT.a == _RIGHT.a) & (_LEFT.b < _RIGHT.b)


@dataclass(frozen=True, slots=True)
class Join(TickDependent):
    """Pairs of rows with equal keys that satisfy `residual`.

    left_keys, right_keys: equally many expressions over the columns of each side, of equal types. Null equals
    nothing, NaN equals NaN. Without keys, every row is paired with every other.
    residual: expression over the left columns followed by the right ones, named as in `pair_names`, which
    must be true for a pair; None for no such condition.
    kept_right: positions of the right columns in the output, after the left ones.

    Multiplicities multiply (inner, left); semi and anti joins keep those of the left.
    A left row without a partner appears once per copy, with nulls (left), or as it is (anti).
    A tick without changes emits nothing.

    lifetimes: of left and right. With one TICK side, each tick joins its own rows of that side with all rows
               so far of the other. (STATIC, TICK) is supported only for inner joins; `Stream.join` composes
               the others of that, or of `every_tick`. Semi and anti joins keep the order of left rows with
               lifetime TICK.
    nondet:    reason why results may depend on the cut into ticks, if a lifetime is TICK.

    Right and full joins are composed of left and anti joins (`headrace.flow.joins`).

    >>> from headrace import left, right
    >>> from headrace.testing import show
    >>> show(lambda a, b: a.join(b, on=left.value == right.value, how="semi"), a=[1, 2], b=[2, 2])
    + 2
    """

    kind: ClassVar[str] = "join"
    examples: ClassVar[Examples] = {
        "right": _example("right"),
        "full": _example("full"),
        "full with residual": _example("full", on=_RESIDUAL),
        "of all with all": lambda x, y: x.cross_join(y, suffix="_y"),
        **{how.value: _example(how.value) for how in How},
        **{f"{how.value} with residual": _example(how.value, on=_RESIDUAL) for how in How},
    }
    runs_in_rounds: ClassVar[bool] = True
    how: How
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    residual: Expr | None
    pair_names: tuple[str, ...]
    kept_right: tuple[int, ...]
    lifetimes: tuple[Lifetime, Lifetime] = (Lifetime.STATIC, Lifetime.STATIC)
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        why = "a further right row could take an answer back"
        blocking = self.how.can_retract_left
        return (Port("left"), Port("right", blocking=blocking, why=why if blocking else ""))

    def pair_columns(self, context: CheckContext) -> tuple[Field, ...]:
        """Return the columns of the pairs of the first two inputs. Raises like `output`."""
        left, right = context.inputs[:2]
        inner = self.how is How.INNER
        sides = list(zip(self.left_keys, self.right_keys, strict=False))
        context.require(
            inner or self.lifetimes != (Lifetime.STATIC, Lifetime.TICK), "a join cannot have these lifetimes"
        )
        context.require(len(self.left_keys) == len(self.right_keys), "a side of the join lacks keys")
        for one, other in sides:
            same = context.type_of(one, left) == context.type_of(other, right)
            context.require(same, "keys of the join are of different types")
        context.require(bool(sides) or (inner and self.residual is None), "the join has no key")
        self._check_residual(context, (*left.fields, *right.fields))
        if not self.how.has_right_columns:
            context.require(not self.kept_right, "the join has no columns of the right")
            return left.fields
        return context.joined_columns(self.kept_right, (False, self.how is How.LEFT))

    def _check_residual(self, context: CheckContext, fields: Sequence[Field]) -> None:
        names = self.pair_names
        context.require(
            len(names) == len(fields) == len(set(names)), "the names of pairs are not those of pairs"
        )
        if self.residual is not None:
            pair = self.pair_schema(context.inputs)
            context.require(
                context.type_of(self.residual, pair) == BOOL, "a join condition is not true or false"
            )

    def pair_schema(self, inputs: Sequence[Schema]) -> Schema:
        """Return the columns of both sides, under the names that `residual` uses."""
        fields = (*inputs[0].fields, *inputs[1].fields)
        named = zip(fields, self.pair_names, strict=True)
        return Schema(tuple(replace(field, name=name) for field, name in named))

    def output(self, context: CheckContext) -> Columns:
        return self.pair_columns(context)

    def unservable(self) -> Unservable | None:
        return None

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        left, right = inputs[:2]
        names, count = self.pair_names, len(left.names)
        condition = set[str]() if self.residual is None else set(columns_of(self.residual))
        on_left = {
            left.names[at] for at in range(count) if output.names[at] in live or names[at] in condition
        }
        kept = {at for n, at in enumerate(self.kept_right) if output.names[count + n] in live}
        on_right = {
            name for at, name in enumerate(right.names) if at in kept or names[count + at] in condition
        }
        on_left.update(name for key in self.left_keys for name in columns_of(key))
        on_right.update(name for key in self.right_keys for name in columns_of(key))
        return on_left, on_right

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        left, right = inputs[:2]
        count = len(left.names)
        stays = [at for at, name in enumerate(left.names) if name in kept[0].names]
        position = {name: at for at, name in enumerate(kept[1].names)}
        on_right = [
            (right.names[at], output.fields[count + n])
            for n, at in enumerate(self.kept_right)
            if right.names[at] in position and output.names[count + n] in live
        ]
        names = [self.pair_names[at] for at in stays]
        names += [self.pair_names[count + right.names.index(name)] for name in kept[1].names]
        operator = replace(
            self, pair_names=tuple(names), kept_right=tuple(position[name] for name, _ in on_right)
        )
        return operator, (*(output.fields[at] for at in stays), *(f for _, f in on_right))

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        left, right = inputs[:2]
        called = dict(zip(left.names, output.names, strict=False))
        of_left: Lineage = {name: Column(column) for column, name in called.items()}
        if self.how is not How.INNER:
            return of_left, {}
        # A right column that is left out equals the left column of its name, if it is a key.
        keys = zip(self.left_keys, self.right_keys, strict=True)
        same = {a.name: called[a.name] for a, b in keys if isinstance(a, Column) and a.same(b)}
        kept = {right.names[at]: output.names[len(called) + n] for n, at in enumerate(self.kept_right)}
        return of_left, {name: Column(column) for column, name in (same | kept).items()}

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        # Without keys, the rows of the left side are divided into one list per shard.
        return {"left": KeyedSlot(0), "right": KeyedSlot(1)} if self.left_keys else {}

    def placement(self) -> Placement:
        # In a cross join, the right side is expected to be the small one.
        return (
            place_by_key(self.left_keys, self.right_keys)
            if self.left_keys
            else place_by_key(EQUAL_ROWS, None)
        )

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        left, right = inputs
        both = meet(inputs).but(ordered=False)
        if Lifetime.TICK in self.lifetimes:
            in_turn = self.lifetimes[0] is Lifetime.TICK and not self.how.has_right_columns
            return both.but(
                append=True, ordered=in_turn and left.ordered, det=both.det and self.nondet is None
            )
        if self.how.can_retract_left:
            return both.but(append=left.append and right.append and right.bounded)
        return both

    def required_facts(self) -> tuple[Need, ...]:
        return tick_needs(self.lifetimes)

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT if Lifetime.TICK in self.lifetimes else ""

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        if self.how is How.SEMI and self.residual is not None and goes_round[1]:
            return "which of its right rows let a left row pass is not kept by rounds"
        return ""

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for at, (left, right) in enumerate(zip(self.left_keys, self.right_keys, strict=True)):
            yield f"left key {at}", left
            yield f"right key {at}", right
        if self.residual is not None:
            yield "residual", self.residual

    def describe(self) -> str:
        pairs = zip(self.left_keys, self.right_keys, strict=True)
        on = " and ".join(f"{left} = {right}" for left, right in pairs)
        more = "" if self.residual is None else f" and {self.residual}"
        which = f"{self.how.value} on {on}{more}" if on else f"{self.how.value} of all with all"
        return with_lifetimes(which, self.lifetimes)


@lower_operator.register(Join)
def lower_join(operator: Join, context: BatchContext) -> DataFrame:
    """Lower a join to a join of DataFrames, with keys as extra columns."""
    names = operator.pair_names
    width = len(context.schemas[0].fields)

    def with_keys(port: int, names: Sequence[str], keys: Sequence[Expr]) -> DataFrame:
        olds = context.schemas[port].names
        columns = [context.named(old).alias(new) for old, new in zip(olds, names, strict=True)]
        computed = [context.column(key, port).alias(f"{SIDES[port]} key {at}") for at, key in enumerate(keys)]
        return context.inputs[port].select(*columns, *computed)

    lefts = with_keys(0, names[:width], operator.left_keys)
    rights = with_keys(1, names[width:], operator.right_keys)
    # `=`, not `<=>`: null equals nothing. NaN equals NaN on Spark as it does here.
    tests = [
        context.named(f"left key {at}") == context.named(f"right key {at}")
        for at in range(len(operator.left_keys))
    ]
    if operator.residual is not None:
        tests.append(context.column(operator.residual, operator.pair_schema(context.schemas)))
    if tests:
        which = f"left_{operator.how.value}" if not operator.how.has_right_columns else operator.how.value
        joined = lefts.join(rights, reduce(and_, tests), which)
    else:
        joined = lefts.crossJoin(rights)
    kept = [*names[:width], *(names[width + at] for at in operator.kept_right)]
    return joined.select(*map(context.named, kept)).toDF(*context.node.schema.names)


@answer_of_bags.register(Join)
def _join_answer(operator: Join, node: Node, inputs: Bags) -> Bag:
    (left_schema, lefts), (right_schema, rights) = inputs
    left_key = functions_of(operator.left_keys, left_schema)
    right_key = functions_of(operator.right_keys, right_schema)
    residual = (
        None
        if operator.residual is None
        else function_of(operator.residual, operator.pair_schema([left_schema, right_schema]))
    )

    def partners(row: Row) -> list[Row]:
        key = left_key(row)
        if None in key:
            return []
        equal = [other for other in copies(rights) if right_key(other) == key]
        return [other for other in equal if residual is None or residual((*row, *other)) is True]

    out: Bag = Counter()
    for row in copies(lefts):
        found = partners(row)
        if operator.how is How.SEMI:
            out.update([row] if found else [])
        elif operator.how is How.ANTI:
            out.update([] if found else [row])
        else:
            if operator.how is How.LEFT and not found:
                found = [(None,) * len(right_schema.fields)]
            out.update((*row, *(other[at] for at in operator.kept_right)) for other in found)
    return out


@output_of_tick.register(Join)
def _join_output(operator: Join, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return answer_of_bags(operator, node, rows_by_lifetime(operator.lifetimes, inputs))


@dataclass(frozen=True, slots=True)
class Difference(TickDependent):
    """Rows of `pos` that are not in `neg`.

    Duplicates in `pos` are kept, duplicates in `neg` are ignored. Whole rows are compared, and null equals
    null. A row of `neg` can retract output, so `neg` is complete first. A tick without changes emits nothing.

    lifetimes: of `pos` and `neg`; (STATIC, TICK) is not supported, but composed of `every_tick` and
               (TICK, TICK). With TICK, the rows keep the order of `pos`.
    nondet:    reason why results may depend on the cut into ticks, if a lifetime is TICK.

    >>> from headrace.testing import show
    >>> show(lambda due, paid: due.difference(paid), due=["ann", "bob"], paid=["bob"])
    + 'ann'
    """

    kind: ClassVar[str] = "difference"
    examples: ClassVar[Examples] = {"difference": lambda x, y: x.difference(y)}
    runs_in_rounds: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    neg_columns: tuple[Expr, ...]
    lifetimes: tuple[Lifetime, Lifetime] = (Lifetime.STATIC, Lifetime.STATIC)
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        why = "a further row of 'neg' could take an answer back"
        return (Port("pos"), Port("neg", blocking=True, why=why))

    def output(self, context: CheckContext) -> Columns:
        left, right = context.inputs
        context.all_columns(self.columns, left)
        context.all_columns(self.neg_columns, right)
        context.require(
            self.lifetimes != (Lifetime.STATIC, Lifetime.TICK), "a difference cannot have these lifetimes"
        )
        context.common_columns()
        return left.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]), {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"left": KeyedSlot(0, bare=False), "right": KeyedSlot(1, bare=False)}

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        pos, neg = inputs
        if Lifetime.TICK in self.lifetimes:
            return meet(inputs).but(
                append=True, ordered=pos.ordered, det=pos.det and neg.det and self.nondet is None
            )
        append = pos.append and neg.append and neg.bounded
        return meet(inputs).but(append=append, ordered=False)

    def required_facts(self) -> tuple[Need, ...]:
        return tick_needs(self.lifetimes)

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT if Lifetime.TICK in self.lifetimes else ""

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        return ""

    def placement(self) -> Placement:
        return place_by_key(self.columns, self.neg_columns)

    def describe(self) -> str:
        return with_lifetimes("", self.lifetimes)


@lower_operator.register(Difference)
def _difference_on_spark(operator: Difference, context: BatchContext) -> DataFrame:
    pos, neg = context.inputs
    names = context.schemas[0].names
    # Null is equal to null here, and duplicates of `pos` stay: neither EXCEPT nor EXCEPT ALL is this.
    other = neg.toDF(*(f"neg.{at}" for at in range(len(names))))
    same = (context.named(name).eqNullSafe(context.named(f"neg.{at}")) for at, name in enumerate(names))
    return pos.join(other, reduce(and_, same), "left_anti")


@answer_of_bags.register(Difference)
def _difference_answer(operator: Difference, node: Node, inputs: Bags) -> Bag:
    (_, pos), (_, neg) = inputs
    return Counter({row: count for row, count in pos.items() if row not in neg})


@output_of_tick.register(Difference)
def _difference_output(operator: Difference, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return answer_of_bags(operator, node, rows_by_lifetime(operator.lifetimes, inputs))
