"""Products, set joins, single rows and partitions as ways to grow a random flow."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.random_flows.callables import class_of, keeping, picking, weigh
from tests.random_flows.expressions import join_conditions
from tests.random_flows.grow import Grow, Grown, aggregates

_LARGEST = 300
_WIDEST = 6


def _beside(one: Grown, other: Grown) -> bool:
    """Whether the pairs of two streams are few and narrow enough."""
    width = len(one.schema.fields) + len(other.schema.fields)
    return one.size * other.size <= _LARGEST and width <= _WIDEST


def suffix(one: Grown) -> str:
    """What no column of the flow ends in yet."""
    return f"_{len(one.stream.flow.nodes)}"


def _product(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    other = draw(st.sampled_from(all_))
    if not _beside(one, other):
        return None
    method = draw(st.sampled_from([one.stream.cross_join, one.stream.cross_join_set]))
    return Grown(method(other.stream, suffix=suffix(one)), one.size * other.size)


def _join_set(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    other = draw(st.sampled_from(all_))
    condition = draw(join_conditions(one.schema, other.schema)) if _beside(one, other) else None
    if condition is None:
        return None
    return Grown(
        one.stream.join_set(other.stream, on=condition, suffix=suffix(one)), one.size * max(1, other.size)
    )


def _single(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    other = draw(st.sampled_from(all_))
    if len(one.schema.fields) >= _WIDEST:
        return None
    total = other.stream.group_by().agg(**{f"total{suffix(one)}": draw(aggregates(other.schema))})
    return Grown(one.stream.cross_singleton(total), one.size)


def _filter_map(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    same = class_of(one.schema.fields)
    keep = keeping(one.schema, draw(st.sampled_from(one.schema.names)))
    copy = picking(one.schema, same)

    def kept(row: Any) -> Any:
        return copy(row) if keep(row) else None

    return Grown(one.stream.filter_map(kept, returns=same), one.size)


def _partition(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    name = draw(st.sampled_from(one.schema.names))
    scalar = one.schema.scalar
    ports = one.stream.partition(lambda row: weigh(row if scalar else getattr(row, name)), 3)
    chosen = draw(st.lists(st.sampled_from(ports), min_size=1, max_size=2, unique_by=id))
    return Grown(chosen[0].union(*chosen[1:]) if len(chosen) > 1 else chosen[0], one.size)


def _chain(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    return Grown(one.stream.chain(one.stream), one.size * 2)


PAIRS: tuple[Grow, ...] = (_product, _join_set, _single, _filter_map, _partition)
"""Ways that every engine goes."""

CHAINS: tuple[Grow, ...] = (_chain,)
"""Ways that engines go that keep the order of rows."""
