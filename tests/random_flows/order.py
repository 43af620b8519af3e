"""Operators that read or make order, or hear of time, as ways to grow a random flow of given ticks."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import headrace as hr
from headrace.expr.constructors import col
from headrace.expr.types import INT64
from headrace.lattice import Max
from tests.random_flows.grow import Grow, Grown
from tests.random_flows.pairs import suffix

_LARGEST = 300
_WIDEST = 6


def _numbered(total: int, row: object) -> tuple[int, str]:
    return total + 1, f"{total}: {row!r}"


def _joined(text: str, row: object) -> str:
    return f"{text};{row!r}"[-60:]


def _is_ordered(one: Grown) -> bool:
    return one.append and one.facts.ordered


def _per(draw: st.DrawFn, one: Grown) -> list[str]:
    return draw(st.lists(st.sampled_from(one.schema.names), max_size=1))


def _assume_ordered(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    return Grown(one.stream.assume_ordered(), one.size)


def _enumerate(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    if not _is_ordered(one) or len(one.schema.fields) >= _WIDEST:
        return None
    into = f"number{suffix(one)}"
    return Grown(one.stream.enumerate(per=_per(draw, one), index=into), one.size)


def _scan(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    if not _is_ordered(one):
        return None
    return Grown(one.stream.scan(0, _numbered, per=_per(draw, one)), one.size)


def _state(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    numbers = _numbers(one)
    if not _is_ordered(one) or not numbers:
        return None
    return Grown(one.stream.state(Max(), value=draw(st.sampled_from(numbers)), per=_per(draw, one)), one.size)


def _fold(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    if not _is_ordered(one):
        return None
    if draw(st.booleans()):
        return Grown(one.stream.fold("", _joined), 1)
    into = f"text{suffix(one)}"
    return Grown(
        one.stream.fold_keyed(_per(draw, one) or [one.schema.names[0]], "", _joined, into=into), one.size
    )


def _zip(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    others = [g for g in all_ if _is_ordered(g) and len(g.schema.fields + one.schema.fields) <= _WIDEST]
    if not _is_ordered(one) or not others:
        return None
    other = draw(st.sampled_from(others))
    method = draw(st.sampled_from([one.stream.zip, one.stream.zip_longest]))
    return Grown(method(other.stream, suffix=suffix(one)), one.size + other.size)


def _chain_first_n(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    if not _is_ordered(one):
        return None
    return Grown(one.stream.chain_first_n(draw(st.integers(1, 3)), one.stream), one.size * 2)


def _sort(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    if not one.append:
        return None
    by = draw(st.lists(st.sampled_from(one.schema.names), max_size=1))
    return Grown(one.stream.sort(*by, lifetime="tick"), one.size)


def _numbers(one: Grown) -> list[str]:
    return [f.name for f in one.schema.fields if f.type == INT64]


def _on_time(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    numbers = _numbers(one)
    if not _is_ordered(one) or not numbers or one.size > _LARGEST:
        return None
    time = draw(st.sampled_from(numbers))
    timed = one.stream.watermark(col[time], lateness=draw(st.integers(0, 2)))
    what = draw(st.sampled_from(["on time", "late", "distinct", "window", "session", "near", "join"]))
    if what == "late":
        return Grown(timed.late(), one.size)
    if what == "distinct":
        return Grown(timed.distinct(), one.size)
    if what == "near":
        return Grown(timed.first_within(2, by=_per(draw, one)), one.size)
    if what == "join" and len(one.schema.fields) * 2 <= _WIDEST:
        name = draw(st.sampled_from(one.schema.names))
        near = (hr.left[name] == hr.right[name]) & hr.right[time].between(hr.left[time], hr.left[time] + 1)
        return Grown(timed.join(timed, on=near, suffix=suffix(one)), one.size**2)
    if what in ("window", "session"):
        shape = hr.tumbling(col[time], 2) if what == "window" else hr.session(col[time], 1)
        emit: Any = draw(st.sampled_from(["close", "updates"]))
        keys = [name for name in _per(draw, one) if not name.startswith("window_")]
        count = {f"count{suffix(one)}": hr.count()}
        return Grown(timed.group_by(*keys, window=shape, emit=emit).agg(**count), one.size * 2)
    return Grown(timed, one.size)


ORDER: tuple[Grow, ...] = (
    _assume_ordered,
    _chain_first_n,
    _enumerate,
    _fold,
    _on_time,
    _on_time,
    _scan,
    _sort,
    _state,
    _zip,
)
