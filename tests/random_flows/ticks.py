"""Operators that answer each tick for itself, as ways to grow a random flow of given ticks.

Loops within a tick are left out: the oracle that judges these flows knows none with such operators.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.random_flows.expressions import join_conditions, orderings
from tests.random_flows.grow import LOOPS, WAYS, Grow, Grown, aggregates
from tests.random_flows.pairs import PAIRS, suffix

_LARGEST = 300
_WIDEST = 6
_TICKS = 4
"""How often about a row is shown again."""


def _appended(draw: st.DrawFn, grown: Grown) -> Grown:
    """A stream of which a tick can be answered: itself, or what it holds shown in each tick."""
    if grown.append and draw(st.integers(0, 3)):
        return grown
    return Grown(grown.stream.every_tick(), grown.size * _TICKS)


def _lifetimes(draw: st.DrawFn, one: Grown, other: Grown) -> tuple[Grown, Grown, Any]:
    """Two streams and the lifetimes that they are read with, of which at least one is of a tick."""
    lifetimes = draw(st.sampled_from([("tick", "tick"), ("static", "tick"), ("tick", "static")]))
    left = _appended(draw, one) if lifetimes[0] == "tick" else one
    right = _appended(draw, other) if lifetimes[1] == "tick" else other
    return left, right, lifetimes


def _every_tick(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    return Grown(one.stream.every_tick(), one.size * _TICKS) if one.size <= _LARGEST else None


def _multiset_delta(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    one = _appended(draw, one)
    return Grown(one.stream.multiset_delta(), one.size)


def _defer(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    method = draw(st.sampled_from([one.stream.defer_tick, one.stream.defer_tick_lazy]))
    return Grown(method(), one.size)


def _defer_signal(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    signal = _appended(draw, draw(st.sampled_from(all_)))
    return Grown(one.stream.defer_signal(signal.stream), one.size)


def _distinct(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    one = _appended(draw, one)
    return Grown(one.stream.distinct(lifetime="tick"), one.size)


def _aggregate(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    one = _appended(draw, one)
    keys = draw(st.lists(st.sampled_from(one.schema.names), max_size=1))
    total = {f"total{suffix(one)}": draw(aggregates(one.schema))}
    return Grown(one.stream.group_by(*keys).agg(lifetime="tick", **total), one.size)


def _top_k(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    one = _appended(draw, one)
    by = draw(st.lists(orderings(one.schema), min_size=1, max_size=2))
    per = draw(st.lists(st.sampled_from(one.schema.names), max_size=1))
    return Grown(one.stream.top_k(draw(st.integers(1, 3)), by=by, per=per, lifetime="tick"), one.size)


def _difference(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    left, right, lifetimes = _lifetimes(draw, one, one)
    pos = left.stream if draw(st.booleans()) else left.stream.union(left.stream)
    return Grown(pos.difference(right.stream, lifetime=lifetimes), left.size * _TICKS)


def _join(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    left, right, lifetimes = _lifetimes(draw, one, draw(st.sampled_from(all_)))
    how = draw(st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]))
    pairs = how not in ("semi", "anti")
    wide = len(left.schema.fields) + len(right.schema.fields) > _WIDEST
    if pairs and (wide or left.size * right.size > _LARGEST):
        how, pairs = ("semi", False) if how == "inner" else ("anti", False)
    condition = draw(join_conditions(left.schema, right.schema))
    if condition is None:
        return None
    named: Any = {"suffix": suffix(one)} if pairs else {}
    joined = left.stream.join(right.stream, on=condition, how=how, lifetime=lifetimes, **named)  # type: ignore[call-overload]
    return Grown(joined, (left.size + 1) * (right.size + 1) if pairs else left.size * _TICKS)


def _single(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    other = _appended(draw, draw(st.sampled_from(all_)))
    if len(one.schema.fields) >= _WIDEST or one.size > _LARGEST:
        return None
    lifetimes: Any = draw(st.sampled_from([("tick", "tick"), ("static", "tick"), ("tick", "static")]))
    left = _appended(draw, one) if lifetimes[0] == "tick" else one
    total: dict[str, Any] = {f"total{suffix(one)}": draw(aggregates(other.schema))}
    single = other.stream.group_by().agg(lifetime=lifetimes[1], **total)
    return Grown(left.stream.cross_singleton(single, lifetime=lifetimes), left.size * _TICKS)


_OF_A_TICK: tuple[Grow, ...] = (
    _every_tick,
    _multiset_delta,
    _defer,
    _defer_signal,
    _distinct,
    _distinct,
    _aggregate,
    _top_k,
    _difference,
    _join,
    _join,
    _join,
    _single,
)
TICKS: tuple[Grow, ...] = (*(way for way in dict.fromkeys(WAYS) if way not in LOOPS), *PAIRS, *_OF_A_TICK * 3)
