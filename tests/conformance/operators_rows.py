"""Case operators that work row by row, fan out and in, or defer rows to another tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.conformance.case_values import frozen
from tests.conformance.operator_site import BuildSite, Outputs, Rows, in_order


def _source(site: BuildSite) -> Outputs:
    return site.flow.source(site.node.id, object)


def _source_iter(site: BuildSite) -> Outputs:
    items = site.node.arguments["items"]
    return site.flow.initialize().flat_map(lambda _: items, returns=object)


def _initialize(site: BuildSite) -> Outputs:
    return site.flow.initialize().map(lambda _: (), returns=object)


def _null(site: BuildSite) -> Outputs:
    return site.input.null() if site.inputs else site.flow.null(object)


def _sink(site: BuildSite) -> Outputs:
    return site.input


def _map(site: BuildSite) -> Outputs:
    return site.input.map(site.function("fn"), returns=object)


def _filter(site: BuildSite) -> Outputs:
    predicate = site.node.arguments["fn"]
    return site.input.filter(lambda row: bool(predicate(row)))


def _filter_map(site: BuildSite) -> Outputs:
    return site.input.filter_map(site.function("fn"), returns=object)


def _flat_map(site: BuildSite) -> Outputs:
    function = site.node.arguments["fn"]
    return site.input.flat_map(lambda row: [frozen(item) for item in function(row)], returns=object)


def _flatten(site: BuildSite) -> Outputs:
    return site.input.flatten()


def _same(site: BuildSite) -> Outputs:
    return site.input


def _inspect(site: BuildSite) -> Outputs:
    # The output equals the input; a function of the case would only observe it.
    return site.input.inspect(site.node.arguments.get("fn", lambda _: None))


def _union(site: BuildSite) -> Outputs:
    streams = site.all_inputs()
    if not streams:
        return site.flow.null(object)
    first, *others = streams
    return first.union(*others) if others else first


def _partition(site: BuildSite) -> Outputs:
    function = site.node.arguments["fn"]
    # A function may return a port as a number; ports of edges are text.
    return site.input.partition(lambda row: _port(function(row)), site.node.arguments["ports"])


def _port(given: Any) -> Any:
    return str(given) if type(given) is int else given


def _demux_enum(site: BuildSite) -> Outputs:
    by_variant: Mapping[str, Rows] = site.input.demux(lambda item: item[0], site.node.arguments["ports"])
    return {port: rows.map(lambda item: item[1:], returns=object) for port, rows in by_variant.items()}


def _unzip(site: BuildSite) -> Outputs:
    first, second = site.input.unzip()
    return {"0": first, "1": second}


def _chain(site: BuildSite) -> Outputs:
    return site.at("0").chain(site.at("1"))


def _chain_first_n(site: BuildSite) -> Outputs:
    first, *others = map(in_order, site.all_inputs())
    return first.chain_first_n(site.node.arguments["n"], *others)


def _persist(site: BuildSite) -> Outputs:
    return site.input.persist().every_tick()


def _multiset_delta(site: BuildSite) -> Outputs:
    return site.input.multiset_delta()


def _defer_tick(site: BuildSite) -> Outputs:
    return site.input.defer_tick()


def _defer_tick_lazy(site: BuildSite) -> Outputs:
    return site.input.defer_tick_lazy()


def _defer_signal(site: BuildSite) -> Outputs:
    return site.at("input").defer_signal(site.at("signal"))


def _next_stratum(site: BuildSite) -> Outputs:
    # A barrier: all of a chain's first stream precedes its second, which is empty.
    return site.input.chain(site.flow.null(object))


BUILDERS: Mapping[str, Callable[[BuildSite], Any]] = {
    "source": _source,
    "source_iter": _source_iter,
    "initialize": _initialize,
    "null": _null,
    "sink": _sink,
    "for_each": _inspect,
    "map": _map,
    "filter": _filter,
    "filter_map": _filter_map,
    "flat_map": _flat_map,
    "flatten": _flatten,
    "identity": _same,
    "inspect": _inspect,
    "tee": _same,
    "union": _union,
    "partition": _partition,
    "demux_enum": _demux_enum,
    "unzip": _unzip,
    "chain": _chain,
    "chain_first_n": _chain_first_n,
    "persist": _persist,
    "multiset_delta": _multiset_delta,
    "defer_tick": _defer_tick,
    "defer_tick_lazy": _defer_tick_lazy,
    "defer_signal": _defer_signal,
    "next_stratum": _next_stratum,
}
