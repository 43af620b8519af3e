"""Joins that read indexes where they stand answer as those that keep the rows themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col, left, right
from headrace.compute.frontier import Frontier
from headrace.compute.plans import identity_flow
from headrace.compute.protocol.commands import AllowCompaction, IndexExport
from headrace.compute.replica.in_process import arrangement, inlets, ticking
from headrace.compute.replica.in_process.arrangement import TimedArrangement
from headrace.compute.replica.in_process.inlets import FromIndex, SharedArrangements
from headrace.expr.row_classes import schema_of
from headrace.flow.flow import Flow
from headrace.testing.oracle import answers
from tests.compute.replica.rig import Bag, Rig

AnyStream = hr.Stream[Any, Any, Any, Any]


class Row(NamedTuple):
    k: int | None
    v: int
    w: str


SCHEMA = schema_of(Row)
SOURCES = ("a", "b", "c")
KEYS = {"a": ("k",), "b": ("k",), "c": ("w", "k")}

# Per shape of a flow: how it is made, the sides read in place, and the sources that are not fed at first.
Shape = tuple[Callable[[AnyStream, AnyStream, AnyStream], AnyStream], set[str], set[str]]
SHAPES: dict[str, Shape] = {
    "both sides": (lambda a, b, c: a.join(b, on="k", suffix="_b"), {"a", "b"}, {"a"}),
    "with a condition": (
        lambda a, b, c: a.join(b, on=(left.k == right.k) & (left.v < right.v), suffix="_b"),
        {"a", "b"},
        {"a"},
    ),
    "keys in another order": (lambda a, b, c: a.join(c, on=["k", "w"], suffix="_c"), {"c"}, {"c"}),
    "a key that is computed": (
        lambda a, b, c: a.join(b, on=left.k == right.k + 1, suffix="_b"),
        {"a"},
        {"a"},
    ),
    "with itself": (lambda a, b, c: a.join(a, on="k", suffix="_a"), {"a"}, set()),
    "with a part of itself": (
        lambda a, b, c: a.join(a.filter(col.v > 0), on="k", suffix="_a"),
        {"a"},
        set(),
    ),
    "one after the other": (
        lambda a, b, c: (
            a.join(b, on="k", suffix="_b").select("k", "v", "w").join(c, on=["w", "k"], suffix="_c")
        ),
        {"a", "b", "c"},
        {"a", "c"},
    ),
    "of groups": (
        lambda a, b, c: a.group_by("k").agg(n=hr.count()).join(b, on="k").group_by("w").agg(n=hr.sum(col.n)),
        {"b"},
        {"b"},
    ),
    "beside what reads all rows": (
        lambda a, b, c: a.join(b, on="k", suffix="_b").select("k", "v", "w").union(a),
        {"a", "b"},
        {"b"},
    ),
    "rows without a partner": (lambda a, b, c: a.join(b, on="k", how="anti"), set(), set()),
    "in a loop": (
        lambda a, b, c: a.flow.fixpoint(
            lambda reached: (
                reached.join(b, on="k", suffix="_b")
                .filter(col.v_b < 2)
                .select(k=col.v_b, v=col.v, w=col.w)
                .with_columns(k=hr.when(col.v < 9, col.k).otherwise(None))
            ),
            a,
        ),
        set(),
        set(),
    ),
}


def flow_of(shape: str, tables: frozenset[str]) -> Flow:
    flow = hr.Flow(shape)
    streams = [flow.table(n, Row) if n in tables else flow.source(n, Row) for n in SOURCES]
    flow.sink("out", SHAPES[shape][0](*streams))
    return flow


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_known_which_sides_need_no_copy(shape: str) -> None:
    flow = flow_of(shape, frozenset(SOURCES))
    indexes = {name: TimedArrangement(SCHEMA, KEYS[name], 0) for name in SOURCES}
    sharing = SharedArrangements(flow, [FromIndex(name, index, 0) for name, index in indexes.items()])
    assert sharing.shared == SHAPES[shape][1]
    read = {name for name in SOURCES if flow.graph().consumers()[flow.graph().sources[name]]}
    assert sharing.filled & read == SHAPES[shape][2]


rows = st.builds(Row, st.sampled_from([None, 0, 1, 2]), st.integers(-1, 1), st.sampled_from("xy")).map(tuple)


@st.composite
def histories(draw: st.DrawFn, name: str, *, table: bool) -> list[list[tuple[tuple[Any, ...], int]]]:
    """Per time the changes, which never take back what is not there."""
    there: Bag = Counter()
    times: list[list[tuple[tuple[Any, ...], int]]] = []
    for _ in range(5):
        changes: Bag = Counter(draw(st.lists(rows, max_size=4)))
        if table:
            for row in draw(st.lists(st.sampled_from(sorted(there, key=repr)), max_size=3)) if there else ():
                if there[row] + changes[row] > 0:
                    changes[row] -= 1
        there += changes
        times.append([(row, n) for row, n in changes.items() if n])
    return times


@pytest.mark.parametrize("in_columns", [False, True])
@settings(
    max_examples=max(10, settings().max_examples // 8),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_joins_of_indexes_answer_as_from_scratch(
    in_columns: bool, data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_columns:  # with so few rows
        for name in ("LARGE", "MOVED", "SCANNED"):
            monkeypatch.setattr(arrangement, name, 2)
        monkeypatch.setattr(ticking, "COLUMNS", 2)
        monkeypatch.setattr(inlets, "ASKED", 1)
    shape = data.draw(st.sampled_from(list(SHAPES)))
    tables = data.draw(st.frozensets(st.sampled_from(SOURCES)))
    flow = flow_of(shape, tables)
    history = {n: data.draw(histories(n, table=n in tables), n) for n in SOURCES}
    rig = Rig().connect()
    for name in SOURCES:
        rig.collection(f"s{name}", SCHEMA)
        rig.index(f"u{name}", identity_flow(SCHEMA), key=KEYS[name], collections={"input": f"s{name}"})
    begin = data.draw(st.integers(0, 4), "written before it begins")
    as_of = 10 * data.draw(st.integers(0, begin), "as of")
    for tick in range(5):
        if tick == begin:
            rig.tell(*(AllowCompaction(f"u{n}", Frontier(data.draw(st.integers(0, as_of)))) for n in SOURCES))
            indexes = {name: f"u{name}" for name in SOURCES}
            rig.create(flow, IndexExport("u9", "out"), as_of=as_of, indexes=indexes)
        for name in data.draw(st.permutations(SOURCES)):
            updates = [(row, 10 * tick + 5, n) for row, n in history[name][tick]]
            rig.write(f"s{name}", *updates, upper=10 * tick + 10)
            for _ in range(data.draw(st.integers(0, 3), "steps")):
                rig.step(data.draw(st.sampled_from([0.0, 0.005])))
        if tick >= begin and data.draw(st.booleans(), "the indexes forget"):
            rig.tell(*(AllowCompaction(f"u{n}", Frontier(10 * tick)) for n in SOURCES))
    rig.run()
    for time in range(as_of, 50, 5):
        there = {name: _sum(history[name][: (time + 5) // 10]) for name in SOURCES}
        assert rig.rows("u9", time) == answers(flow.graph(), there)["out"]


def _sum(parts: list[list[tuple[tuple[Any, ...], int]]]) -> Bag:
    total: Bag = Counter()
    for part in parts:
        for row, n in part:
            total[row] += n
    return Counter({row: n for row, n in total.items() if n})
