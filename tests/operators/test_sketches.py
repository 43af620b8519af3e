"""Sketches as rows come and go: the estimate is that of the rows present, on every engine, in any order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import EvaluationError
from headrace.expr.hll_sketch import HllSketch, coupon_of, coupons_of_integers, hll_sketch, union
from headrace.expr.row_classes import schema_of
from headrace.expr.types import INT64
from headrace.lowering.reference import functions_of
from headrace.operators.aggregate.aggregation import Aggregation, answer_of
from headrace.operators.aggregate.sketches import Coupons, prune_coupons
from headrace.testing import check_ticks
from tests.spark.tasks_with_checkpoint import CheckpointedTasks

if TYPE_CHECKING:
    from headrace.testing import Backend


class Visit(NamedTuple):
    page: str
    user: int | None


_ESTIMATE = hr.functions.hll_sketch_estimate


def test_an_estimate_is_that_of_the_rows_present(backend: Backend) -> None:
    def build(flow: hr.Flow) -> Any:
        visits = flow.table("visits", Visit).group_by("page")
        made = visits.agg(
            users=hr.approx_count_distinct(col.user),
            roughly=hr.approx_count_distinct(col.user, 0.2),
            sketch=hr.hll_sketch_agg(col.user),
        )
        return made.select(col.page, col.users, col.roughly, sketched=_ESTIMATE(col.sketch))

    check_ticks(
        backend,
        build,
        """
        tick | visits                       | out
        1    | a 1; a 2; a 3; a 4; b null   | + a 4 4 4; + b 0 0 0
        2    | +2 a 4; - a 4; - a 4         |
        3    | - a 4; b 7                   | - a 4 4 4; + a 3 3 3; - b 0 0 0; + b 1 1 1
        4    | - a 1; - a 2; - a 3; - b null | - a 3 3 3
    """,
    )


def test_sketches_are_united_as_groups_come_and_go(backend: Backend) -> None:
    def build(flow: hr.Flow) -> Any:
        per_page = flow.table("visits", Visit).group_by("page").agg(users=hr.hll_sketch_agg(col.user))
        every = per_page.group_by().agg(users=hr.hll_union_agg(col.users))
        return every.select(users=_ESTIMATE(col.users))

    check_ticks(
        backend,
        build,
        """
        tick | visits             | out
        1    | a 1; a 2; b 2; b 3 | + 3
        2    | - a 2              |
        3    | - b 2; - b 3       | - 3; + 1
        4    | b null             |
    """,
    )


@pytest.mark.parametrize("lg_k", [4, 6])
def test_of_rows_that_are_never_taken_back_only_the_coupons_of_registers_are_needed(lg_k: int) -> None:
    values = [[coupon_of(value) or 0 for value in range(at, 3 << lg_k + at, at + 1)] for at in (0, 1, 2)]
    codes = np.concatenate([np.unique(each) for each in values])
    groups = np.repeat(np.arange(3), [len(set(each)) for each in values])
    sketch = Coupons((), True, lg_k)
    needed = sketch.needed(groups, codes)
    assert needed is not None
    assert Coupons((), False, lg_k).needed(groups, codes) is None
    for at, each in enumerate(values):
        copies = dict.fromkeys(each, 1)
        prune_coupons(copies, lg_k)
        assert sorted(copies) == codes[needed & (groups == at)].tolist()
        assert (len(copies) < len(set(each))) == (len(set(each)) > 2 << lg_k)
        assert HllSketch(lg_k, copies).to_bytes() == HllSketch(lg_k, each).to_bytes()


def test_a_checkpoint_keeps_sketches(tmp_path: Path) -> None:
    flow = hr.Flow("visits")
    visits = flow.table("visits", Visit).group_by("page")
    made = visits.agg(
        few=hr.hll_sketch_agg(col.user, 4),
        sketch=hr.hll_sketch_agg(col.user),
        n=hr.approx_count_distinct(col.user),
    )
    flow.sink("groups", made)
    flow.sink("all", made.group_by().agg(users=hr.hll_union_agg(col.sketch)))
    engine = hr.Engine(flow)
    rows = [Visit("ab"[user % 2], user) for user in range(90)]
    for come, gone in ((rows[:60], []), (rows[60:], rows[:40]), ([], rows[40:41]), ([], rows[41:])):
        changes = [*map(hr.insert, come), *map(hr.delete, gone)]
        expected = {sink: Counter(found.raw) for sink, found in engine.tick(visits=changes).items()}
        with CheckpointedTasks(flow, tmp_path / "checkpoint", shards=2) as tasks:
            found = tasks.tick({"visits": changes})
        assert {sink: Counter(rows) for sink, rows in found.items()} == expected


SKETCHES = {
    "registers": hr.approx_count_distinct(col.user, 0.39),
    "few registers of a sketch": hr.hll_sketch_agg(col.user, 4),
    "coupons": hr.hll_sketch_agg(col.user, 8),
}
VALUES = st.one_of(st.none(), st.integers(0, 200))


@pytest.mark.parametrize("name", SKETCHES)
@pytest.mark.parametrize("append", [False, True])
@example(ticks=[[(value, False) for value in range(at, at + 70)] for at in (0, 70, 140, 0)], small=True)
@given(
    ticks=st.lists(st.lists(st.tuples(VALUES, st.booleans()), max_size=30), max_size=4), small=st.booleans()
)
def test_rows_and_columns_answer_as_from_scratch(
    name: str, append: bool, ticks: list[list[tuple[int | None, bool]]], small: bool
) -> None:
    sketch, flow = SKETCHES[name], hr.Flow("visits")
    visits: Any = flow.source("visits", Visit) if append else flow.table("visits", Visit)
    flow.sink("out", visits.group_by("page").agg(x=sketch, n=hr.count_distinct(col.user)))
    # Every second tick is small, so that rows read the state that columns left, and the other way round.
    engines = [hr.Engine(flow, columnar=how) for how in ("never", "always")]
    mixed = hr.Engine(flow, columnar="auto", columnar_rows=8)
    there: list[Visit] = []
    answers: list[dict[Any, int]] = [{}, {}, {}]
    for tick in ticks:
        changes: list[Any] = []
        for user, gone in tick:
            row = Visit("a" if small or (user or 0) % 2 else "b", user)
            if gone and not append and row in there:
                there.remove(row)
                changes.append(hr.delete(row))
            else:
                there.append(row)
                changes.append(row if append else hr.insert(row))
        for engine, answer in zip((*engines, mixed), answers, strict=True):
            for change in engine.tick(visits=changes)["out"]:
                answer[change.row] = answer.get(change.row, 0) + change.weight
        expected = _from_scratch(sketch, there)
        for answer in answers:
            assert {row: count for row, count in answer.items() if count} == dict.fromkeys(expected, 1)


def _from_scratch(sketch: Aggregation, rows: list[Visit]) -> list[tuple[Any, ...]]:
    arguments = functions_of(sketch.arguments(), schema_of(Visit))
    pages = {row.page: [other for other in rows if other.page == row.page] for row in rows}
    return [
        (page, answer_of(sketch, INT64, [arguments(row) for row in own]), len({r.user for r in own} - {None}))
        for page, own in pages.items()
    ]


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(), st.binary())), st.randoms())
def test_a_sketch_does_not_depend_on_the_order_of_its_values(values: list[Any], choice: Any) -> None:
    def sketch(given: list[Any]) -> HllSketch:
        return HllSketch(4, {coupon for value in given if (coupon := coupon_of(value))})

    whole, at = sketch(values).to_bytes(), choice.randint(0, len(values))
    choice.shuffle(values)
    assert sketch(values + values).to_bytes() == whole
    parts = [hll_sketch(sketch(part).to_bytes()) for part in (values[:at], values[at:])]
    assert union(parts, any_lg_k=False).to_bytes() == whole
    assert hll_sketch(whole).to_bytes() == whole


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_coupons_of_a_column_are_those_of_its_values(values: list[int]) -> None:
    assert coupons_of_integers(np.array(values)).tolist() == [coupon_of(value) for value in values]


def _answers(build: Any, *rows: Any) -> Any:
    flow = hr.Flow("sketches")
    flow.sink("out", build(flow.source("sketches", Sketch)))
    (change,) = hr.Engine(flow).tick(sketches=rows)["out"]
    return change.row


class Sketch(NamedTuple):
    data: bytes


def _sketch_of(lg_k: int, count: int) -> bytes:
    return HllSketch(lg_k, [1 << 26 | at for at in range(count)]).to_bytes()


def test_a_union_has_the_registers_of_its_smallest_sketch() -> None:
    rows = [Sketch(_sketch_of(12, 40)), Sketch(_sketch_of(5, 3)), Sketch(_sketch_of(9, 6))]
    answer = _answers(lambda s: s.group_by().agg(x=hr.hll_union_agg(col.data, any_lg_k=True)), *rows)
    assert answer.x == _sketch_of(5, 40)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\x02", bytes(40), _sketch_of(12, 7)[:33], _sketch_of(12, 40)[:-1], _sketch_of(4, 9)[:-1]),
        b"\x02\x01\x07\x0c\x03\x00\x02\x08" + bytes((1, 0, 0, 4)) * 2,
    ],
)
def test_bytes_that_are_no_sketch_are_refused(data: bytes) -> None:
    with pytest.raises(EvaluationError, match="are not an HLL sketch"):
        _answers(lambda s: s.select(x=_ESTIMATE(col.data)), Sketch(data))


def test_sketches_of_different_sizes_are_not_united_unless_that_is_allowed() -> None:
    rows = [Sketch(_sketch_of(lg_k, 1)) for lg_k in (10, 12)]
    with pytest.raises(EvaluationError, match="different lgConfigK: 10 and 12"):
        _answers(lambda s: s.group_by().agg(x=hr.hll_union_agg(col.data)), *rows)
