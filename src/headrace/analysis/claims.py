"""Property tests of the claims in a flow, on example rows of their types.

Folds claim `commutative`, `idempotent`, `monotone`; lattices claim their laws. Only the claimed functions
run, on short lists of small rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, TypeAlias

from headrace.analysis.claim_examples import EXAMPLES, CallOutcome, Pool, find_list, pools
from headrace.errors import BrokenClaim, Step
from headrace.expr.row_classes import from_user, to_user
from headrace.expr.tree import Column, Expr
from headrace.expr.types import Schema
from headrace.flow.flow import Flow
from headrace.graph.node import FlowGraph, Node, Operator
from headrace.lattice import Lattice, Max
from headrace.operators.fold import FoldOperator, user_item
from headrace.operators.lattice_fold import LatticeFold, LatticeGrowth
from headrace.operators.scan import RunningState

Sides: TypeAlias = tuple[tuple[str, CallOutcome], tuple[str, CallOutcome]]
"""Two calls whose results must be equal, each as its text and its result."""
_MERGES = 40


@dataclass(frozen=True, slots=True)
class Law:
    """Law that every lattice must satisfy.

    broken: its description in an error.
    values: number of values it relates.
    sides:  maps the lattice and the values to the two calls to compare.
    """

    broken: str
    values: int
    sides: Callable[..., Sides]


def check_lattice(lattice: Lattice, values: Collection[Any], *, examples: int = EXAMPLES) -> None:
    """Test the laws of a lattice: merging is associative, commutative and idempotent, and bottom is neutral.

    The order must agree with merging.

    values:   values of the lattice, simplest first; merges of them are tested, too.
    examples: number of combinations of values to test each law on.

    Raises `BrokenClaim` with the law and a small counterexample.

    >>> from headrace.lattice import Max, Merging
    >>> check_lattice(Max(), [1, 2, 3])
    >>> check_lattice(Merging(0, lambda one, other: one + other), [1, 2])
    Traceback (most recent call last):
    ...
    headrace.errors.BrokenClaim: P106 BrokenClaim: <lambda> is no lattice: its merge is not idempotent
    <BLANKLINE>
    merge(1, 1) is 2, and not 1.
    ...
    """
    for law in LAWS:
        check_law(lattice, law, list(values), examples)


def check_law(
    lattice: Lattice, law: Law, values: Sequence[Any], examples: int, where: tuple[Step, ...] = ()
) -> int:
    """Test one law, and return the number of examples with a value on both sides. Raises `BrokenClaim`."""
    tried = 0

    def refutes(some: list[Any]) -> bool:
        nonlocal tried
        (_, one), (_, other) = law.sides(lattice, *some)
        tried += one.error is None and other.error is None
        return not one.agrees(other)

    pool = [*values, *_merges(lattice, values)]
    found = find_list(pool, refutes, law.values, law.values, examples) if pool else None
    if found is not None:
        raise _broken_law(lattice, law, found, where)
    return tried


def _merges(lattice: Lattice, values: Sequence[Any]) -> list[Any]:
    """List the merges of two values."""
    pairs = ((one, other) for at, one in enumerate(values) for other in values[:at])
    merged = (CallOutcome.of(lattice.merge, *pair) for pair, _ in zip(pairs, range(_MERGES), strict=False))
    return [outcome.value for outcome in merged if outcome.error is None]


def _broken_law(lattice: Lattice, law: Law, values: Sequence[Any], where: tuple[Step, ...]) -> BrokenClaim:
    (one_text, one), (other_text, other) = law.sides(lattice, *values)
    but = f"and not {other_text}" if other_text == repr(other.value) else f"and\n{other_text} {other}"
    return BrokenClaim(
        f"{lattice} is no lattice: its {law.broken}",
        where=where,
        why=f"{one_text} {one}, {but}.",
        fix="give a merge that is commutative, associative and idempotent,\n"
        "or use fold(...) with the claims that hold",
        law=law.broken,
        values=tuple(values),
    )


def _associative(lattice: Lattice, a: Any, b: Any, c: Any) -> Sides:
    merge = lattice.merge
    return (
        (f"merge(merge({a!r}, {b!r}), {c!r})", CallOutcome.of(lambda: merge(merge(a, b), c))),
        (f"merge({a!r}, merge({b!r}, {c!r}))", CallOutcome.of(lambda: merge(a, merge(b, c)))),
    )


def _commutative(lattice: Lattice, a: Any, b: Any) -> Sides:
    return (
        (f"merge({a!r}, {b!r})", CallOutcome.of(lattice.merge, a, b)),
        (f"merge({b!r}, {a!r})", CallOutcome.of(lattice.merge, b, a)),
    )


def _idempotent(lattice: Lattice, a: Any) -> Sides:
    return (f"merge({a!r}, {a!r})", CallOutcome.of(lattice.merge, a, a)), (repr(a), CallOutcome(a))


def _bottom(lattice: Lattice, a: Any) -> Sides:
    bottom = lattice.bottom
    return (f"merge({bottom!r}, {a!r})", CallOutcome.of(lattice.merge, bottom, a)), (repr(a), CallOutcome(a))


def _order(lattice: Lattice, a: Any, b: Any) -> Sides:
    merged = CallOutcome.of(lattice.merge, a, b)
    absorbed = merged if merged.error is not None else CallOutcome(merged.agrees(CallOutcome(b)))
    return (
        (f"leq({a!r}, {b!r})", CallOutcome.of(lattice.leq, a, b)),
        (f"merge({a!r}, {b!r}) == {b!r}", absorbed),
    )


LAWS = (
    Law("merge is not associative", 3, _associative),
    Law("merge is not commutative", 2, _commutative),
    Law("merge is not idempotent", 1, _idempotent),
    Law("bottom does not merge into every value", 1, _bottom),
    Law("order is not that of its merge", 2, _order),
)

Items: TypeAlias = list[Any]
Keys: TypeAlias = tuple[tuple[str, Expr], ...]
GivenRows: TypeAlias = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """Result of testing a claim.

    operator: name of the operator. claim: "commutative", or the name of the claimed lattice.
    examples: number of lists of rows, or values, on which it held.
    broken:   the counterexample, if any.
    """

    operator: str
    claim: str
    examples: int
    broken: BrokenClaim | None = None

    def __str__(self) -> str:
        if self.broken is not None:
            return f"{self.operator}: {self.claim}: does not hold"
        if not self.examples:
            return f"{self.operator}: {self.claim}: not tried, for want of rows that its function takes"
        return f"{self.operator}: {self.claim}: holds on {self.examples} examples"


def check_claims(flow: Flow, *, rows: GivenRows | None = None, examples: int = EXAMPLES) -> list[ClaimResult]:
    """Run a property test for each claim of a flow, and return the results.

    rows:     for operators by name, rows of their input as users see them, the simplest
              first, if generated ones are unsuitable.
    examples: number of lists of rows per claim.

    Raises `BrokenClaim` with a small counterexample for the first claim that does not hold.

    >>> import headrace as hr
    >>> flow = hr.Flow("sums")
    >>> numbers = flow.source("numbers", int)
    >>> flow.sink("sum", numbers.fold(0, lambda sum, n: sum + n, commutative=True, name="sum"))
    >>> [tried.claim for tried in check_claims(flow)]
    ['commutative']
    """
    found: list[ClaimResult] = []
    for tried in try_claims(flow, rows=rows, examples=examples):
        if tried.broken is not None:
            raise tried.broken
        found.append(tried)
    return found


def try_claims(
    flow: Flow, *, rows: GivenRows | None = None, examples: int = EXAMPLES
) -> Iterator[ClaimResult]:
    """Test claims one after another like `check_claims`, yielding broken ones too."""
    graph = flow.graph()
    for node in graph.nodes:
        claimed = ClaimedOperator(graph, node, (rows or {}).get(node.name), examples)
        yield from try_operator_claims(node.operator, claimed)


@dataclass(frozen=True, slots=True)
class ClaimedOperator:
    """Operator with claims, its position in the flow, and example rows given for it."""

    graph: FlowGraph
    node: Node
    given: Pool | None
    examples: int

    @property
    def schema(self) -> Schema:
        """Schema of the input."""
        return self.graph.nodes[self.node.inputs[0]].schema

    def pools(self, item: Expr | None, keys: Keys = ()) -> list[Pool]:
        """Group the function's inputs for the rows of one key into pools, simplest first.

        A function accepts either all values of a pool or none.
        """
        found = [self.given] if self.given is not None else pools(self.schema)
        if item is not None:
            value, inside = user_item(item, self.schema), from_user(self.schema, what="rows")
            return [[value(row) for row in inside(rows)] for rows in found]
        return [self._of_one_key(rows, keys) for rows in found] if keys else list(found)

    def _of_one_key(self, rows: Pool, keys: Keys) -> Pool:
        """Replace the key columns of all rows with those of the first row."""
        inside, seen = from_user(self.schema, what="rows"), to_user(self.schema)
        names = {expr.name for _, expr in keys if isinstance(expr, Column)}
        kept = [name in names for name in self.schema.names]
        first, *_ = made = inside(rows)
        return [
            seen(tuple(a if keep else b for a, b, keep in zip(first, row, kept, strict=True))) for row in made
        ]

    @property
    def step(self) -> Step:
        return Step(self.node.location, f"operator {self.node.name!r}")


@singledispatch
def try_operator_claims(operator: Operator, claimed: ClaimedOperator) -> Iterator[ClaimResult]:
    """Test an operator's claims, if it makes any."""
    yield from ()


@dataclass(frozen=True, slots=True)
class FoldFunction:
    """Folding function with its initial value, to apply to lists of items.

    first: creates the initial value; None if that is the first item.
    inside: converts the accumulated value to its form in rows.
    """

    function: Callable[..., Any]
    first: Callable[[], Any] | None
    inside: Callable[[list[Any]], list[Any]]
    claimed: ClaimedOperator = field(repr=False)

    def of(self, items: Items) -> Any:
        """Fold the items, and return the accumulated value in its form in rows."""
        rest = list(items)
        accumulated = rest.pop(0) if self.first is None else self.first()
        for item in rest:
            accumulated = self.function(accumulated, item)
        (row,) = self.inside([accumulated])
        return row[0] if len(row) == 1 else row


def _first(init: object, schema: Schema) -> Callable[[], Any]:
    if callable(init):
        return init
    if init is None:
        return lambda: None
    (row,) = from_user(schema, what="init")([init])
    seen = to_user(schema)
    # Converted from the row each time, because a function may modify its argument.
    return lambda: seen(row)


def _try_claim(claim: str, folded: FoldFunction, kinds: list[Pool]) -> ClaimResult:
    variants, agree = _VARIANTS[claim], _AGREE[claim]
    node, tried = folded.claimed.node, 0

    def refuting(items: Items) -> tuple[Items, Items] | None:
        """Return the first pair of lists that violates the claimed relation."""
        nonlocal tried
        for before, after in variants(items):
            one, other = CallOutcome.of(folded.of, before), CallOutcome.of(folded.of, after)
            tried += one.error is None and other.error is None
            if not agree(one, other):
                return before, after
        return None

    for pool in kinds:
        items = find_list(pool, lambda items: refuting(items) is not None, 2, 5, folded.claimed.examples)
        if items is not None and (pair := refuting(items)) is not None:
            return ClaimResult(node.name, claim, tried, _broken(claim, folded, *pair))
    return ClaimResult(node.name, claim, tried)


def _broken(claim: str, folded: FoldFunction, before: Items, after: Items) -> BrokenClaim:
    node = folded.claimed.node
    return BrokenClaim(
        f"{node.operator.kind} {node.name!r} claims to be {claim}, and is not",
        where=[folded.claimed.step],
        why=f"Of {_listed(before)} the value {CallOutcome.of(folded.of, before)},\n"
        f"of {_listed(after)} it {CallOutcome.of(folded.of, after)}.",
        fix=_FIXES[claim],
        operator=node.name,
        claim=claim,
        rows=(tuple(before), tuple(after)),
    )


def _listed(items: Items) -> str:
    return ", ".join(map(repr, items))


def _swapped(items: Items) -> Iterator[tuple[Items, Items]]:
    for at in range(len(items) - 1):
        yield items, [*items[:at], items[at + 1], items[at], *items[at + 2 :]]


def _repeated(items: Items) -> Iterator[tuple[Items, Items]]:
    for at, item in enumerate(items):
        for to in range(at + 1, len(items) + 1):
            yield items, [*items[:to], item, *items[to:]]


def _longer(items: Items) -> Iterator[tuple[Items, Items]]:
    yield items[:-1], items


def _not_less(one: CallOutcome, other: CallOutcome) -> bool:
    if one.error is not None or other.error is not None:
        return True
    order = CallOutcome.of(Max().leq, one.value, other.value)
    return order.error is not None or order.value


_VARIANTS: Mapping[str, Callable[[Items], Iterator[tuple[Items, Items]]]] = {
    "commutative": _swapped,
    "idempotent": _repeated,
    "monotone": _longer,
}
_AGREE: Mapping[str, Callable[[CallOutcome, CallOutcome], bool]] = {
    "commutative": CallOutcome.agrees,
    "idempotent": CallOutcome.agrees,
    "monotone": _not_less,
}
_FIXES: Mapping[str, str] = {
    "commutative": "leave the claim out, and give the rows an order",
    "idempotent": "leave the claim out; where rows may come twice, distinct() makes each of them one",
    "monotone": "leave the claim out; a value that may fall is read by filter(...), not by at_least(...)",
}


@try_operator_claims.register(FoldOperator)
def _fold(operator: FoldOperator, claimed: ClaimedOperator) -> Iterator[ClaimResult]:
    schema = operator.value_schema(claimed.node.schema)
    first = None if operator.reduces else _first(operator.init, schema)
    folded = FoldFunction(operator.function, first, from_user(schema, what="values"), claimed)
    pools = claimed.pools(operator.folded_item(), operator.group_keys())
    yield from (_try_claim(claim, folded, pools) for claim in operator.claims.names())


def _try_lattice(lattice: Lattice, item: Expr, claimed: ClaimedOperator) -> Iterator[ClaimResult]:
    claim, tried = f"{lattice} is a lattice", 0
    try:
        for pool in claimed.pools(item):
            found = (CallOutcome.of(lattice.value, one) for one in pool)
            values = [outcome.value for outcome in found if outcome.error is None]
            for law in LAWS:
                tried += check_law(lattice, law, values, claimed.examples, (claimed.step,))
    except BrokenClaim as broken:
        yield ClaimResult(claimed.node.name, claim, tried, broken)
    else:
        yield ClaimResult(claimed.node.name, claim, tried)


@try_operator_claims.register(LatticeFold)
@try_operator_claims.register(LatticeGrowth)
@try_operator_claims.register(RunningState)
def _lattice(
    operator: LatticeFold | LatticeGrowth | RunningState, claimed: ClaimedOperator
) -> Iterator[ClaimResult]:
    yield from _try_lattice(operator.lattice, operator.item, claimed)
