"""Operator declarations: stream properties, ports, placement, state layout, monotone columns, servability.

The analysis derives the facts of every edge. It never depends on the kind of an operator: operators declare,
as data and small functions, the facts that they need of their inputs and those that they give.

Monotone columns are columns whose value per key only rises. This differs from a stream being append-only
(`Facts.append`): a table of counts retracts each old count, and yet no count ever decreases.

An operator is unservable where a replica would not agree with one that has seen every change. A replica
starts from the rows of its collections at some time, each with its count, in any order and cut into any
ticks, and continues with changes. So results must not depend on the order of rows, on their time of arrival,
or on the rows they arrive with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.expr.tree import Expr
    from headrace.lattice import Lattice


@dataclass(frozen=True, slots=True)
class Facts:
    """Five facts of an edge. True is the stronger value; the facts of several inputs are combined by `and`.

    bounded: all rows arrive in the first tick.
    append:  no row is ever retracted; weights are +1.
    ordered: the order of rows is meaningful and is kept.
    once:    no row is delivered twice.
    det:     the accumulated rows depend only on the accumulated input.
    """

    bounded: bool = False
    append: bool = True
    ordered: bool = False
    once: bool = True
    det: bool = True

    def but(self, **facts: bool) -> Facts:
        """Return these facts with some of them replaced."""
        return replace(self, **facts)

    @property
    def held(self) -> tuple[str, ...]:
        """Names of the facts that hold, in the order of their declaration."""
        return tuple(name for name in FACT_NAMES if getattr(self, name))


FACT_NAMES = ("bounded", "append", "ordered", "once", "det")


def meet(facts: Iterable[Facts]) -> Facts:
    """Return the facts that all of `facts` share; every fact if there are none."""
    result = Facts(bounded=True, append=True, ordered=True, once=True, det=True)
    for f in facts:
        result = Facts(*(getattr(result, n) and getattr(f, n) for n in FACT_NAMES))
    return result


class Delay(Enum):
    """Time at which the rows of a port are seen."""

    NONE = "same tick"
    TICK = "next tick"
    LAZY = "next tick, which does not start for it"


@dataclass(frozen=True, slots=True)
class Port:
    """Input of an operator.

    `blocking`: a further row could retract output, so the input is complete for the tick before the operator
    emits anything. `why` is the reason, a clause that completes "waits for it because ...".
    `completeness`: the input only determines which rows of the other inputs are complete. If all input is
    present at once, the operator can do without it.
    """

    name: str
    blocking: bool = False
    delay: Delay = Delay.NONE
    why: str = ""
    completeness: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """Fact that an operator requires of an input, with the reason and a fix.

    `why` completes "it is needed because ...". `only_in_loop`: required only of operators in a cycle; if
    every path around the cycle contains a delay, the user's reason for that (`Operator.guard`) is enough.
    `across_ticks`: required only in cycles that contain a delay.
    """

    port: int
    fact: str
    why: str
    fix: str
    only_in_loop: bool = False
    across_ticks: bool = False


class EqualRows(Enum):
    """Marker for a key that consists of all columns of a port."""

    ALL_COLUMNS = "all columns"


EQUAL_ROWS = EqualRows.ALL_COLUMNS
PortKey: TypeAlias = "tuple[Expr, ...] | EqualRows | None"


@dataclass(frozen=True, slots=True)
class Placement:
    """Rule for which rows must meet on one shard, in terms of the keys of an operator's inputs.

    Build with `ANYWHERE`, `WHOLE` or `place_by_key(...)`.
    whole: whether all rows must meet.
    keys:  per port, the expressions over that port's columns whose equal values must meet, `EQUAL_ROWS` for
           all its columns, or None to broadcast every row of the port; None as a whole if either all rows or
           none must meet.
    """

    whole: bool = False
    keys: tuple[PortKey, ...] | None = None


ANYWHERE = Placement()
WHOLE = Placement(whole=True)


def place_by_key(*keys: PortKey) -> Placement:
    """Place rows with equal keys together. A port with the key None is broadcast.

    Without any key expression, all rows have the same key: then the placement is `WHOLE`.
    """
    return Placement(keys=keys) if any(keys) else WHOLE


Lineage: TypeAlias = "Mapping[str, Expr]"
"""Output columns, each with the expression over a port's columns that equals it."""


@dataclass(frozen=True, slots=True)
class Unservable:
    """Reason why an operator's output is not determined by its input rows at a time, with a fix.

    A flow on replicas starts from the rows at some time, each with its count, in any order and cut into any
    ticks. why: a sentence. fix: an alternative for the user.
    """

    why: str
    fix: str


# -- state -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyedSlot:
    """Layout of a slot keyed by the operator's keys for the input `port`.

    bare:    whether a single value is not wrapped in a tuple.
    of_pair: whether the operator's key is the first part of each key.
    """

    port: int = 0
    bare: bool = True
    of_pair: bool = False


@dataclass(frozen=True, slots=True)
class PendingSlot:
    """Layout of a slot that holds input rows for the next tick, under the key `()`."""


@dataclass(frozen=True, slots=True)
class CalendarSlots:
    """Layout of the slots `<prefix>calendar`, `counts` and `due`: expiry times of the keys in `keys`."""

    prefix: str
    keys: KeyedSlot


@dataclass(frozen=True, slots=True)
class SliceSlots:
    """Layout of the slots `calendar`, `counts` and `due` of overlapping windows, merged from slices."""

    keys: KeyedSlot


@dataclass(frozen=True, slots=True)
class SessionSlots:
    """Layout of the three slots of numbered sessions."""

    keys: KeyedSlot


@dataclass(frozen=True, slots=True)
class EverywhereSlot:
    """Layout of a slot with one value under the key `()`, the same on every shard."""


SlotLayout: TypeAlias = EverywhereSlot | KeyedSlot | PendingSlot | CalendarSlots | SliceSlots | SessionSlots


def calendar_slots(prefix: str, keys: KeyedSlot) -> dict[str, SlotLayout]:
    """Return the slots of a calendar with their layout."""
    layout = CalendarSlots(prefix, keys)
    return dict.fromkeys((f"{prefix}calendar", f"{prefix}counts", f"{prefix}due"), layout)


@dataclass(frozen=True, slots=True)
class MonotoneColumns:
    """Monotone columns of a stream, and the key that identifies each value.

    keys:    columns that identify a value: at any time, each key has at most one row, and a retracted row is
             followed by a greater one.
    columns: the monotone columns, each in the order of a lattice.
    """

    keys: tuple[str, ...]
    columns: Mapping[str, Lattice]


class _Operator(Protocol):
    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None: ...


class _Node(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def operator(self) -> _Operator: ...
    @property
    def inputs(self) -> tuple[int, ...]: ...


Node = TypeVar("Node", bound=_Node)


def find_monotone_columns(nodes: Sequence[_Node], node_id: int) -> MonotoneColumns | None:
    """Return the monotone columns of a node's output, if its `introducing_operator` reads append streams."""
    growth: MonotoneColumns | None = None
    for node in reversed(_upstream(nodes, node_id)):
        growth = node.operator.monotone_columns([growth] * len(node.inputs))
    return growth


def introducing_operator(nodes: Sequence[Node], node_id: int) -> Node:
    """Return the operator that introduces the monotone columns in the output of node `node_id`.

    It is the nearest one upstream that does not just pass on monotone columns of its input: an aggregate of a
    table decreases when rows are retracted, even if the table itself has monotone columns.
    """
    chain = _upstream(nodes, node_id)
    return next(
        node
        for node in chain
        if len(node.inputs) != 1
        or node.operator.monotone_columns([None]) is not None
        or find_monotone_columns(nodes, node.inputs[0]) is None
        or node is chain[-1]
    )


def _upstream(nodes: Sequence[Node], node_id: int) -> list[Node]:
    """Return a node followed by its chain of single inputs, up to a back edge."""
    chain = [nodes[node_id]]
    while len(chain[-1].inputs) == 1 and chain[-1].inputs[0] < chain[-1].id:
        chain.append(nodes[chain[-1].inputs[0]])
    return chain


OF_A_TICK = Unservable(
    "Its answers depend on how the input is cut into ticks, and who serves it cuts as is convenient.",
    'keep the rows over the ticks, lifetime="static", or name what belongs together by a column',
)
IN_ORDER = Unservable(
    "It reads the order in which rows come, and collections keep none.",
    "say what the order is by a column: top_k(n, by=...), hr.first(..., by=...), hr.last(..., by=...)",
)
OLD_TOMBSTONES = Unservable(
    "Which tombstones are forgotten before an older record comes depends on how the input is cut into ticks.",
    "leave out tombstones=, and they are kept for good",
)
LATER = Unservable(
    "It speaks of earlier ticks, and at a time there are only the rows of that time.",
    "give rows a time in a column, and compare that",
)
EVENT_TIME = Unservable(
    "How far event time has passed depends on when rows came, and a replica that starts later sees them"
    " all at once.",
    "group by col.at.tumble(...) without a watermark: each window is a group, and changes while rows come",
)
SIGNAL = Unservable(
    "A signal is what was said last, and when: collections hold rows.",
    "write the values as rows with their times; hr.last(..., by=hr.col.at) is the latest one",
)
BOUNDED = Unservable(
    "A collection can always be written to, and this source ends with its first tick.",
    "leave out bounded=True",
)
RECORDS = Unservable(
    "A collection holds rows, and what a table with a key is given are records that set or delete them.",
    "declare a source of records, and hold their rows by upsert(..., sequence=...)",
)
LOOP_OF_LATTICES = Unservable(
    "In a loop, which of its growing values are shown depends on ticks.",
    "put the lattice_fold behind the loop",
)
UNCLAIMED = Unservable(
    "The function may give something else when rows come in another order, and collections keep none.",
    "claim commutative=True if it does not (`headrace check --claims` tries it), "
    "or use group_by(...).agg(...)",
)
