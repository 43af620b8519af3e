"""Every operator runs on every engine; one that some engine must refuse would be named here."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import penstock as ps
from penstock import col, io
from penstock.errors import NotOnSpark
from penstock.expr.rows import from_user
from penstock.flow import operators
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.bag_feedback import BagFeedback
from penstock.flow.operators.defer_tick import DeferTick
from penstock.flow.operators.difference import Difference
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.feedback import Feedback
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.flat_map import FlatMap
from penstock.flow.operators.join import How, Join
from penstock.flow.operators.map import Map
from penstock.flow.operators.select import Select
from penstock.flow.operators.sink import Sink
from penstock.flow.operators.source import Source
from penstock.flow.operators.top_k import TopK
from penstock.flow.operators.union import Union
from penstock.graph.node import Operator
from penstock.spark import run
from penstock.spark.stages import cut
from penstock.testing import Backend
from penstock.testing.oracle import answers

AnyStream = ps.Stream[Any, Any, Any, Any]


class Pair(NamedTuple):
    a: int
    b: int | None


def double(n: Pair) -> Pair:
    return Pair(2 * n.a, n.b)


def twice(n: Pair) -> list[Pair]:
    return [n, n]


def down(pairs: AnyStream) -> AnyStream:
    return pairs.filter(col.a > 0).with_columns(a=col.a - 1)


def all_the_way_down(pairs: AnyStream) -> AnyStream:
    back = pairs.flow.feedback(Pair, distinct=False)
    back.close(down(pairs.union(back)))
    return back


# Per operator the flows that show it, from two streams of pairs of which the first only grows.
EXAMPLES: dict[type[Operator], dict[str, Callable[[AnyStream, AnyStream], AnyStream]]] = {
    Source: {"append": lambda x, y: x, "table": lambda x, y: y},
    Sink: {"sink": lambda x, y: y},
    Map: {"map": lambda x, y: y.map(double)},
    FlatMap: {"flat_map": lambda x, y: y.flat_map(twice)},
    Filter: {
        "expression": lambda x, y: y.filter(col.a > 1),
        "callable": lambda x, y: y.filter(lambda pair: pair.a > 1),
    },
    Select: {"select": lambda x, y: y.select("b", c=col.a + 1)},
    Union: {"union": lambda x, y: x.union(y)},
    Join: {
        **{how.value: lambda x, y, how=how: x.join(y, on="a", how=how.value, **_suffix(how)) for how in How},
        **{
            f"{how.value} with residual": lambda x, y, how=how: x.join(
                y, on=(ps.left.a == ps.right.a) & (ps.left.b < ps.right.b), how=how.value, **_suffix(how)
            )
            for how in How
        },
    },
    Aggregate: {
        "count": lambda x, y: y.group_by("a").agg(x=ps.count()),
        "count of values": lambda x, y: y.group_by("a").agg(x=ps.count(col.b)),
        "sum": lambda x, y: y.group_by("a").agg(x=ps.sum(col.b)),
        "min": lambda x, y: y.group_by("a").agg(x=ps.min(col.b)),
        "max": lambda x, y: y.group_by("a").agg(x=ps.max(col.b)),
        "mean": lambda x, y: y.group_by("a").agg(x=ps.mean(col.b)),
        "count_distinct": lambda x, y: y.group_by("a").agg(x=ps.count_distinct(col.b)),
        "first": lambda x, y: y.group_by("a").agg(x=ps.first(col.b, by=col.a)),
        "last": lambda x, y: y.group_by("a").agg(x=ps.last(col.b, by=col.a)),
        "collect": lambda x, y: y.group_by("a").agg(x=ps.collect(col.b)),
        "several, of everything": lambda x, y: y.group_by().agg(n=ps.count(), top=ps.max(col.b)),
    },
    Distinct: {"distinct": lambda x, y: y.distinct()},
    Difference: {"difference": lambda x, y: x.difference(y)},
    TopK: {
        "top_k": lambda x, y: y.top_k(2, by=col.b.desc(), per="a"),
        "of all": lambda x, y: y.top_k(2, by=col.a),
    },
    DeferTick: {"defer_tick": lambda x, y: y.defer_tick()},
    Feedback: {"fixpoint": lambda x, y: x.flow.fixpoint(down, x)},
    BagFeedback: {"feedback of a bag": lambda x, y: all_the_way_down(x)},
}

# Operators that Spark refuses at build; whoever makes one of them run there, takes it out.
REFUSED_ON_SPARK: frozenset[type[Operator]] = frozenset()

X = [Pair(1, 5), Pair(3, None), Pair(1, 5), Pair(2, 0)]
Y = [Pair(1, 7), Pair(3, 1), Pair(1, 7), Pair(2, 0), Pair(1, None)]
TICKS: list[dict[str, list[Any]]] = [
    {"x": X[:2], "y": [ps.insert(pair) for pair in Y[:3]]},
    {"x": X[2:], "y": [ps.insert(pair) for pair in Y[3:]]},
    {"y": [ps.delete(pair) for pair in Y[:2]]},
    {},
]


def _suffix(how: How) -> dict[str, str]:
    return {"suffix": "_y"} if how.has_right_columns else {}


def all_operators() -> Iterator[type[Operator]]:
    for module in pkgutil.iter_modules(operators.__path__):
        for value in vars(importlib.import_module(f"{operators.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Operator) and value is not Operator:
                yield value


def test_every_operator_has_an_example() -> None:
    assert set(all_operators()) == set(EXAMPLES)


@pytest.mark.parametrize(
    "build", [pytest.param(b, id=f"{o.kind}: {n}") for o, named in EXAMPLES.items() for n, b in named.items()]
)
def test_every_operator_answers_what_it_means(
    backend: Backend, build: Callable[[AnyStream, AnyStream], AnyStream]
) -> None:
    flow = ps.Flow("example")
    flow.sink("out", build(flow.source("x", Pair), flow.table("y", Pair)))
    inside = from_user(flow.graph().nodes[0].schema, what="pairs")
    expected = answers(flow.graph(), {"x": Counter(inside(X)), "y": Counter(inside(Y[2:]))})["out"]
    held: Counter[Any] = Counter()
    for tick in backend.changes(flow, TICKS):
        for row, weight in tick.get("out", []):
            held[row] += weight
    assert {row: weight for row, weight in held.items() if weight} == dict(expected)


@pytest.mark.parametrize(
    "build",
    [pytest.param(b, id=f"{o.kind}: {n}") for o in REFUSED_ON_SPARK for n, b in EXAMPLES[o].items()],
)
def test_what_spark_cannot_run_is_refused_with_a_reason(
    build: Callable[[AnyStream, AnyStream], AnyStream],
) -> None:
    flow = ps.Flow("example", ticks="given")
    flow.sink("out", build(flow.source("x", Pair), flow.table("y", Pair)))
    with pytest.raises(NotOnSpark) as refused:
        cut(flow.graph(), 2)
    assert refused.value.why
    assert refused.value.fix


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_every_operator_runs_on_spark(spark: Any, mode: Any) -> None:
    flow = ps.Flow("all operators")
    x, y = flow.source("x", Pair), flow.table("y", Pair)
    names: dict[str, str] = {}
    for operator, named in EXAMPLES.items():
        if operator in REFUSED_ON_SPARK:
            continue
        # A batch plans and runs each sink by itself; tests/spark/test_batch.py has all of them.
        for name, build in list(named.items())[: None if mode == "stream" else 2]:
            names[f"out{len(names)}"] = f"{operator.kind}: {name}"
            flow.sink(f"out{len(names) - 1}", build(x, y))
    inside = from_user(flow.graph().nodes[0].schema, what="pairs")
    expected = answers(flow.graph(), {"x": Counter(inside(X)), "y": Counter(inside(Y[2:]))})
    sinks = {name: io.Memory() for name in names}
    batches = {name: io.Rows([tick.get(name, []) for tick in TICKS]) for name in ("x", "y")}
    run(flow, spark, sources=batches, sinks=sinks, mode=mode)
    for name, operator in names.items():
        held = {tuple(row): weight for *row, weight in sinks[name].changes().raw}
        assert held == dict(expected[name]), operator
