"""Case operators that combine two streams: by key, by position, as products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import headrace as hr
from headrace.lattice import Merging
from tests.conformance.operator_site import (
    BuildSite,
    Outputs,
    Pair,
    Rows,
    carrying_function,
    in_order,
    keys,
    merge_by_key,
    pairs_to_rows,
)

_SUFFIX = "_other"
"""Suffix of right columns whose names clash."""


def _tuples(stream: Rows) -> Rows:
    """Convert rows of two columns to pairs."""
    return stream.map(lambda row: (row[0], row[1]), returns=object)


def _joined(stream: Rows) -> Rows:
    """Convert rows of key, left value, right value to (key, (left, right))."""
    return stream.map(lambda row: (row[0][0], (row[1], row[2])), returns=object)


def _join(site: BuildSite) -> Outputs:
    left, right = pairs_to_rows(site.at("0")), pairs_to_rows(site.at("1"))
    return _joined(
        site.shown_if_both(left.join(right, on="key", lifetime=site.input_lifetimes, suffix=_SUFFIX))
    )


def _join_set(site: BuildSite) -> Outputs:
    left, right = pairs_to_rows(site.at("0")), pairs_to_rows(site.at("1"))
    return _joined(
        site.shown_if_both(left.join_set(right, on="key", lifetime=site.input_lifetimes, suffix=_SUFFIX))
    )


def _cross_join(site: BuildSite) -> Outputs:
    both = site.at("0").cross_join(site.at("1"), lifetime=site.input_lifetimes, suffix=_SUFFIX)
    return _tuples(site.shown_if_both(both))


def _cross_join_set(site: BuildSite) -> Outputs:
    both = site.at("0").cross_join_set(site.at("1"), lifetime=site.input_lifetimes, suffix=_SUFFIX)
    return _tuples(site.shown_if_both(both))


def _semi_join(site: BuildSite) -> Outputs:
    left, right = pairs_to_rows(site.at("0")), pairs_to_rows(site.at("1"))
    found = site.shown_if_both(left.semi_join(right, on="key", lifetime=site.input_lifetimes))
    return found.map(lambda row: (row[0][0], row[1]), returns=object)


def _anti_join(site: BuildSite) -> Outputs:
    left = _without(site, pairs_to_rows(site.at("pos")))
    return left.map(lambda row: (row[0][0], row[1]), returns=object)


def _difference(site: BuildSite) -> Outputs:
    if site.input_lifetimes != ("static", "static"):
        return site.at("pos").difference(site.at("neg"), lifetime=site.input_lifetimes)
    # Use each row as its own key.
    rows = site.at("pos").map(lambda row: Pair((row,), row), returns=Pair)
    return _without(site, rows).map(lambda row: row[1], returns=object)


def _without(site: BuildSite, rows: Rows) -> Rows:
    """Emit the pairs whose key is not excluded, in order of arrival if each tick shows all pairs so far."""
    held_back, on = keys(site.at("neg")), hr.left.key == hr.right.value
    if site.input_lifetimes != ("static", "static"):
        return rows.anti_join(held_back, on=on, lifetime=site.input_lifetimes)
    if site.on_cycle:  # On a cycle, rows can neither wait to be sorted nor be retracted.
        return rows.every_tick().anti_join(held_back, on=on, lifetime=("tick", "static"))
    # A table has no order and no duplicates. Numbered pairs are ordered and distinct.
    numbered = in_order(rows).enumerate(index="number")
    left = numbered.anti_join(held_back, on=on).every_tick().sort("number", lifetime="tick")
    return left.map(lambda row: Pair(row[1], row[2]), returns=Pair)


def _cross_singleton(site: BuildSite) -> Outputs:
    both = site.at("input").cross_singleton(site.at("single"), lifetime="tick", suffix=_SUFFIX)
    return _tuples(both)


def _zip(site: BuildSite) -> Outputs:
    left, right = in_order(site.at("0")), in_order(site.at("1"))
    return _tuples(left.zip(right, lifetime=site.input_lifetimes, suffix=_SUFFIX))


def _zip_longest(site: BuildSite) -> Outputs:
    left, right = in_order(site.at("0")), in_order(site.at("1"))
    return _tuples(left.zip_longest(right, suffix=_SUFFIX))


# --- sides that are folded first ---------------------------------------------------------------


def _aggregated(site: BuildSite, port: str) -> Rows:
    """Fold an input by the function of an argument, one row per key; a static one as changes."""
    stream, functions = pairs_to_rows(site.at(port)), site.node.arguments[port]
    lifetime: Any = site.lifetime(int(port))
    function = carrying_function(functions["fn"])
    if "init" in functions:
        init = carrying_function(functions["init"])
        stream = in_order(stream)
        return stream.fold_keyed("key", init, function, value="value", lifetime=lifetime, returns=object)
    return in_order(stream).reduce_keyed("key", function, value="value", lifetime=lifetime)


def _merged(site: BuildSite, port: str) -> Rows:
    """Merge an input whose values grow in a lattice, one row per key; a static one as changes."""
    function, lifetime = carrying_function(site.node.arguments[port]["fn"]), site.lifetime(int(port))
    rows = pairs_to_rows(site.at(port))
    return rows.lattice_reduce(Merging(None, function), per="key", value="value", lifetime=lifetime)


def _side(site: BuildSite, port: str) -> Rows:
    return pairs_to_rows(site.at(port))


def _joining(
    left: Callable[[BuildSite, str], Rows], right: Callable[[BuildSite, str], Rows]
) -> Callable[[BuildSite], Outputs]:
    def build(site: BuildSite) -> Outputs:
        if not site.on_cycle:
            one, other = left(site, "0"), right(site, "1")
            both = one.join(other, on="key", lifetime=site.input_lifetimes, suffix=_SUFFIX)
            return _joined(site.shown_if_both(both))
        # An aggregate retracts rows, which is impossible on a cycle, so emit it in each tick instead.
        one, other = _shown(left, site, "0"), _shown(right, site, "1")
        return _joined(one.join(other, on="key", lifetime="tick", suffix=_SUFFIX))

    return build


def _shown(side: Callable[[BuildSite, str], Rows], site: BuildSite, port: str) -> Rows:
    """Emit an input's contents in each tick, for an input on a cycle."""
    if side is not _merged:
        return site.shown(side(site, port), int(port))
    function = carrying_function(site.node.arguments[port]["fn"])
    return pairs_to_rows(merge_by_key(site, site.at(port), {}, function, site.lifetime(int(port))))


BUILDERS: Mapping[str, Callable[[BuildSite], Any]] = {
    "join": _join,
    "join_multiset": _join,
    "join_set": _join_set,
    "cross_join": _cross_join,
    "cross_join_multiset": _cross_join,
    "cross_join_set": _cross_join_set,
    "semi_join": _semi_join,
    "anti_join": _anti_join,
    "difference": _difference,
    "cross_singleton": _cross_singleton,
    "zip": _zip,
    "zip_longest": _zip_longest,
    "join_fused": _joining(_aggregated, _aggregated),
    "join_fused_left": _joining(_aggregated, _side),
    "join_fused_lhs": _joining(_aggregated, _side),
    "join_fused_right": _joining(_side, _aggregated),
    "join_fused_rhs": _joining(_side, _aggregated),
    "lattice_join": _joining(_merged, _merged),
}
