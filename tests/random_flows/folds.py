"""Folds, lattices and thresholds as ways to grow a random flow: those that read no order."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import headrace as hr
from headrace.expr.types import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INTEGERS,
    INTERVAL,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
)
from headrace.lattice import Max, Min
from tests.random_flows.grow import Grow, Grown


def counted(count: int, item: object) -> int:
    return count + 1


def _keys(draw: st.DrawFn, one: Grown, least: int = 0) -> list[str]:
    return draw(st.lists(st.sampled_from(one.schema.names), min_size=least, max_size=2, unique=True))


def _fold(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    if not one.append:
        return None
    return Grown(one.stream.fold(0, counted, commutative=True), 1)


def _fold_keyed(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    if not one.append:
        return None
    keys, into = _keys(draw, one, least=1), f"fold{len(one.stream.flow.nodes)}"
    item = draw(st.none() | st.sampled_from(one.schema.names))
    return Grown(
        one.stream.fold_keyed(keys, 0, counted, value=item, into=into, commutative=True, monotone=True),
        one.size,
    )


def _lattice(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    ordered = (BOOL, FLOAT32, FLOAT64, *INTEGERS, INTERVAL, STR, TIMESTAMP, TIMESTAMP_NTZ)
    values = [f.name for f in one.schema.fields if f.type in ordered or isinstance(f.type, DecimalType)]
    if not one.append or not values:
        return None
    arguments: Any = {
        "value": draw(st.sampled_from(values)),
        "per": _keys(draw, one),
        "into": f"merged{len(one.stream.flow.nodes)}",
    }
    lattice = draw(st.sampled_from([Max(), Min()]))
    if draw(st.booleans()):
        return Grown(one.stream.lattice_fold(lattice, **arguments), one.size)
    return Grown(one.stream.lattice_reduce(lattice, **arguments), one.size)


def _unique(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    return Grown(one.stream.unique(), one.size)


def _at_least(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    if not one.append:
        return None
    count = f"count{len(one.stream.flow.nodes)}"
    counts = one.stream.group_by(*_keys(draw, one)).agg(**{count: hr.count()})
    return Grown(counts.at_least(draw(st.integers(1, 3))), one.size)


FOLDS: tuple[Grow, ...] = (_fold, _fold_keyed, _lattice, _lattice, _unique, _at_least, _at_least)
