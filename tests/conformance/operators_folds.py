"""Case operators that fold, keep or order rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.lattice import Merging
from tests.conformance.case_values import decode_carried, encode_carried, frozen
from tests.conformance.operator_site import (
    BuildSite,
    Outputs,
    Rows,
    in_order,
    merge_by_key,
    pairs_to_rows,
    rows_to_pairs,
)


def _fold(site: BuildSite) -> Outputs:
    return site.shown(_folded(site))


def _folded(site: BuildSite) -> Rows:
    init, function = site.wrap_carrying_function("init"), site.wrap_carrying_function("fn")
    return in_order(site.input).fold(init, function, lifetime=site.lifetime(), returns=object)


def _reduce(site: BuildSite) -> Outputs:
    return site.shown(_reduced(site))


def _reduced(site: BuildSite) -> Rows:
    return in_order(site.input).reduce(site.wrap_carrying_function("fn"), lifetime=site.lifetime())


def _fold_no_replay(site: BuildSite) -> Outputs:
    """Emit the value in the first tick and in ticks with input."""
    first = site.flow.initialize().map(lambda _: (), returns=object)
    return _when(_any_row(site.input).union(first), site.shown(_folded(site)))


def _reduce_no_replay(site: BuildSite) -> Outputs:
    """Emit the value in ticks with input."""
    return _when(_any_row(site.input), site.shown(_reduced(site)))


def _any_row(stream: Rows) -> Rows:
    return stream.map(lambda _: (), returns=object)


def _when(condition: Rows, value: Rows) -> Rows:
    """Emit the first row of `value` in ticks in which `condition` has one."""
    once = condition.unique(lifetime="tick")
    both = once.cross_singleton(value, lifetime="tick", suffix="_shown")
    return both.map(lambda row: row[1], returns=object)


def _fold_keyed(site: BuildSite) -> Outputs:
    rows = in_order(pairs_to_rows(site.input))
    init, function, lifetime = (
        site.wrap_carrying_function("init"),
        site.wrap_carrying_function("fn"),
        site.lifetime(),
    )
    folded = rows.fold_keyed("key", init, function, value="value", lifetime=lifetime, returns=object)
    return rows_to_pairs(site.shown(folded))


def _reduce_keyed(site: BuildSite) -> Outputs:
    rows = in_order(pairs_to_rows(site.input))
    reduced = rows.reduce_keyed(
        "key", site.wrap_carrying_function("fn"), value="value", lifetime=site.lifetime()
    )
    return rows_to_pairs(site.shown(reduced))


def _scan(site: BuildSite) -> Outputs:
    function = site.node.arguments["fn"]

    def step(state: Any, row: Any) -> Any:
        made = function(decode_carried(state), row)
        return None if made is None else (encode_carried(made[0]), frozen(made[1]))

    rows = in_order(site.input)
    return rows.scan(site.wrap_carrying_function("init"), step, lifetime=site.lifetime(), returns=object)


# --- lattices ------------------------------------------------------------------------------------


def _lattice(site: BuildSite) -> Merging:
    init = site.node.arguments.get("init")
    return Merging(None if init is None else encode_carried(init()), site.wrap_carrying_function("fn"))


def _lattice_fold(site: BuildSite) -> Outputs:
    if site.on_cycle:
        return _grown(site, {(): site.wrap_carrying_function("init")()})
    return site.shown(site.input.lattice_fold(_lattice(site), lifetime=site.lifetime()))


def _lattice_reduce(site: BuildSite) -> Outputs:
    if site.on_cycle:
        return _grown(site, {})
    return site.shown(site.input.lattice_reduce(_lattice(site), lifetime=site.lifetime()))


def _grown(site: BuildSite, least: Mapping[Any, Any]) -> Rows:
    """Emit the value of all rows, under one key."""
    rows = site.input.map(lambda row: ((), row), returns=object)
    values = merge_by_key(site, rows, least, site.wrap_carrying_function("fn"), site.lifetime())
    return values.map(lambda pair: pair[1], returns=object)


def _lattice_fold_batch(site: BuildSite) -> Outputs:
    """Emit the value of all rows since the last signal, in the tick of a signal."""
    released = site.at("input").defer_signal(site.at("signal"))
    init, function = site.wrap_carrying_function("init"), site.wrap_carrying_function("fn")
    value = in_order(released).fold(init, function, lifetime="tick", returns=object)
    return _when(_any_row(site.at("signal")), value)


def _state(site: BuildSite) -> Outputs:
    return in_order(site.input).state(_lattice(site), lifetime=site.lifetime())


# --- order ---------------------------------------------------------------------------------------


def _sort(site: BuildSite) -> Outputs:
    # Nulls first.
    return site.input.sort(lambda row: (row is not None, row), lifetime="tick")


def _sort_by_key(site: BuildSite) -> Outputs:
    return site.input.sort(site.function("fn"), lifetime="tick")


def _unique(site: BuildSite) -> Outputs:
    return in_order(site.input).unique(lifetime=site.lifetime())


def _enumerate(site: BuildSite) -> Outputs:
    numbered = in_order(site.input).enumerate(lifetime=site.lifetime())
    return numbered.map(lambda row: (row[0], row[1]), returns=object)


# --- mutable persistence ---------------------------------------------------------------------------


def _persist_mut(site: BuildSite) -> Outputs:
    """Keep rows: ("persist", row) adds one, ("delete", row) removes all its copies."""

    def step(kept: tuple[Any, ...], command: Any) -> tuple[Any, ...]:
        word, row = command
        return (*kept, row) if word == "persist" else tuple(k for k in kept if k != row)

    return _kept(site, step)


def _persist_mut_keyed(site: BuildSite) -> Outputs:
    """Keep rows by key: ("persist", key, row) adds one, ("delete", key) removes all of the key's rows."""

    def step(kept: tuple[Any, ...], command: Any) -> tuple[Any, ...]:
        word, key, *row = command
        return (*kept, (key, *row)) if word == "persist" else tuple(k for k in kept if k[0] != key)

    return _kept(site, step)


def _kept(site: BuildSite, step: Callable[[tuple[Any, ...], Any], tuple[Any, ...]]) -> Rows:
    nothing: Any = ()
    kept = in_order(site.input).fold(nothing, step, returns=object)
    return kept.every_tick().flat_map(lambda rows: rows, returns=object)


BUILDERS: Mapping[str, Callable[[BuildSite], Any]] = {
    "fold": _fold,
    "fold_no_replay": _fold_no_replay,
    "reduce": _reduce,
    "reduce_no_replay": _reduce_no_replay,
    "fold_keyed": _fold_keyed,
    "reduce_keyed": _reduce_keyed,
    "scan": _scan,
    "lattice_fold": _lattice_fold,
    "lattice_reduce": _lattice_reduce,
    "lattice_fold_batch": _lattice_fold_batch,
    "state": _state,
    "sort": _sort,
    "sort_by_key": _sort_by_key,
    "unique": _unique,
    "enumerate": _enumerate,
    "persist_mut": _persist_mut,
    "persist_mut_keyed": _persist_mut_keyed,
}
