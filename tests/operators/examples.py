"""Per operator the flows that show it, from two streams of pairs: what every engine is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import headrace as hr
from headrace import col
from headrace.expr.row_classes import schema_of
from headrace.lattice import Max, Min
from headrace.lowering.reference import ExamplePair, Examples
from headrace.operators import all_operators
from headrace.operators.join.join import How

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.graph.node import Operator


AnyStream = hr.Stream[Any, Any, Any, Any]


PAIR = schema_of(ExamplePair)


def first(n: ExamplePair, other: ExamplePair) -> ExamplePair:
    return min(n, other, key=repr)


def add(total: int, n: int | None) -> int:
    return total + (n or 0)


def carry(last: int, n: ExamplePair) -> tuple[int, int]:
    return n.a, n.a - last


def _suffix(how: How) -> dict[str, str]:
    return {"suffix": "_y"} if how.has_right_columns else {}


# Per operator the flows that show it, from two streams of pairs of which the first only grows.
EXAMPLES: dict[type[Operator], Examples] = {cls: cls.examples for cls in all_operators() if cls.examples}


def joined(how: How, lifetime: Any) -> Callable[[AnyStream, AnyStream], AnyStream]:
    def build(x: Any, y: Any) -> Any:
        sides = {"tick": (x, x), ("tick", "static"): (x, y), ("static", "tick"): (y, x)}[lifetime]
        return sides[0].join(sides[1], on="a", how=how.value, lifetime=lifetime, **_suffix(how))

    return build


# The same operators with other lifetimes.
OF_A_TICK: dict[str, Callable[[AnyStream, AnyStream], AnyStream]] = {
    "distinct": lambda x, y: x.distinct(lifetime="tick"),
    "unique": lambda x, y: x.unique(lifetime="tick"),
    "reduce": lambda x, y: x.reduce(first, commutative=True, lifetime="tick"),
    "fold_keyed": lambda x, y: x.fold_keyed("a", 0, add, value="b", commutative=True, lifetime="tick"),
    "reduce_keyed": lambda x, y: x.reduce_keyed("b", max, commutative=True, lifetime="tick"),
    "lattice_fold per key": lambda x, y: x.lattice_fold(Min(), value="b", per="a", lifetime="tick"),
    "lattice_reduce": lambda x, y: x.lattice_reduce(Max(), value="b", lifetime="tick"),
    "enumerate": lambda x, y: x.enumerate(lifetime="tick"),
    "scan": lambda x, y: x.scan(0, carry, lifetime="tick"),
    "state": lambda x, y: x.state(Max(), value="a", lifetime="tick"),
    "aggregate": lambda x, y: x.group_by("a").agg(x=hr.sum(col.b), lifetime="tick"),
    "top_k": lambda x, y: x.top_k(2, by=col.b.desc(), per="a", lifetime="tick"),
    "difference of ticks": lambda x, y: x.difference(x.filter(col.a > 1), lifetime="tick"),
    "difference with a table": lambda x, y: x.difference(y, lifetime=("tick", "static")),
    "difference of a table": lambda x, y: y.difference(x, lifetime=("static", "tick")),
    **{f"{how.value} join of ticks": joined(how, "tick") for how in How},
    **{f"{how.value} join of a tick with a table": joined(how, ("tick", "static")) for how in How},
    **{f"{how.value} join of a table with a tick": joined(how, ("static", "tick")) for how in How},
    "semi join of a table with a tick, with residual": lambda x, y: y.join(
        x, on=(hr.left.a == hr.right.a) & (hr.left.b < hr.right.b), how="semi", lifetime=("static", "tick")
    ),
    "anti join of a tick with a table, with residual": lambda x, y: x.join(
        y, on=(hr.left.a == hr.right.a) & (hr.left.b < hr.right.b), how="anti", lifetime=("tick", "static")
    ),
    "cross_join": lambda x, y: x.cross_join(y, lifetime=("tick", "static"), suffix="_y"),
    "cross_join_set": lambda x, y: x.cross_join_set(x, lifetime="tick", suffix="_y"),
    "join_set": lambda x, y: x.join_set(x, on="a", lifetime=("static", "tick"), suffix="_y"),
    "cross_singleton": lambda x, y: x.cross_singleton(
        y.group_by().agg(n=hr.count()), lifetime=("tick", "static")
    ),
    "cross_singleton shown again": lambda x, y: y.cross_singleton(
        x.group_by().agg(n=hr.count(), lifetime="tick"), lifetime=("static", "tick")
    ),
}

X = [ExamplePair(1, 5), ExamplePair(3, None), ExamplePair(1, 5), ExamplePair(2, 0)]
Y = [ExamplePair(1, 7), ExamplePair(3, 1), ExamplePair(1, 7), ExamplePair(2, 0), ExamplePair(1, None)]
TICKS: list[dict[str, list[Any]]] = [
    {"x": X[:2], "y": [hr.insert(pair) for pair in Y[:3]]},
    {"x": X[2:], "y": [hr.insert(pair) for pair in Y[3:]]},
    {"y": [hr.delete(pair) for pair in Y[:2]]},
    {},
]

SHOWN = {f"{o.kind}: {n}": build for o, named in EXAMPLES.items() for n, build in named.items()}
ALL = {**SHOWN, **{f"tick: {n}": build for n, build in OF_A_TICK.items()}}


def example(name: str) -> hr.Flow:
    """The flow that shows an example, from sources `x` and `y` to a sink `out`."""
    flow = hr.Flow("example", ticks="given")
    flow.sink("out", ALL[name](flow.source("x", ExamplePair), flow.table("y", ExamplePair)))
    return flow
