"""Context for building a case operator: its node, and its input streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from headrace.flow.flow import Flow
from headrace.flow.stream import Stream
from tests.conformance.case_values import decode_carried, encode_carried, frozen
from tests.conformance.graph_description import NodeDescription

Rows: TypeAlias = Stream[Any, Any, Any, Any]
Outputs: TypeAlias = "Rows | Mapping[str, Rows] | None"
"""Output of an operator: one stream, a stream per named output, or nothing."""


class Pair(NamedTuple):
    """Key-value pair as columns. The key is wrapped in a tuple, so that null equals null."""

    key: object
    value: object


@dataclass(frozen=True, slots=True)
class BuildSite:
    """Node and input streams of an operator to build.

    inputs: input streams per port, in order of construction.
    on_cycle: whether its output may return to it within the tick.
    """

    flow: Flow
    node: NodeDescription
    inputs: Mapping[str, Sequence[Rows]]
    on_cycle: bool

    @property
    def input(self) -> Rows:
        """Return the stream of the only input."""
        return self.at("")

    def at(self, port: str) -> Rows:
        """Return the stream of an input port."""
        (stream,) = self.inputs[port]
        return stream

    def all_inputs(self) -> list[Rows]:
        """List all input streams: numbered ones in order, then unnamed ones."""
        ports = sorted(
            self.inputs, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0)
        )
        return [stream for port in ports for stream in self.inputs[port]]

    def function(self, name: str) -> Callable[..., Any]:
        """Wrap a function of the case so that it returns rows."""
        return rows_function(self.node.arguments[name])

    def wrap_carrying_function(self, name: str) -> Callable[..., Any]:
        """Wrap one of the case's functions, one that updates a carried value."""
        return carrying_function(self.node.arguments[name])

    def lifetime(self, port: int = 0) -> Any:
        return self.node.lifetime(port)

    @property
    def input_lifetimes(self) -> Any:
        """Return the lifetimes of the inputs 0 and 1."""
        return (self.node.lifetime(0), self.node.lifetime(1))

    def shown(self, stream: Rows, port: int = 0) -> Rows:
        """Emit the whole result of a static operator in each tick."""
        return stream.every_tick() if self.lifetime(port) == "static" else stream

    def shown_if_both(self, stream: Rows) -> Rows:
        """Emit the whole result in each tick if both inputs are static; otherwise per tick."""
        return stream.every_tick() if self.input_lifetimes == ("static", "static") else stream


def rows_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its result is frozen, as rows must be."""
    return lambda *arguments: frozen(function(*arguments))


def carrying_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of a carried value, which may be a list or a dict."""
    return lambda *arguments: encode_carried(function(*map(decode_carried, arguments[:1]), *arguments[1:]))


def pairs_to_rows(stream: Rows) -> Rows:
    """Convert pairs to rows of a key and a value."""
    return stream.map(lambda pair: Pair((pair[0],), pair[1]), returns=Pair)


def keys(stream: Rows) -> Rows:
    """Convert keys to the form used by `pairs_to_rows`."""
    return stream.map(lambda key: (key,), returns=object)


def rows_to_pairs(stream: Rows) -> Rows:
    """Convert rows of a key and a value to pairs."""
    return stream.map(lambda row: (row[0][0], row[1]), returns=object)


def in_order(stream: Rows) -> Rows:
    """Declare a stream ordered, because cases give the order of rows as they give the ticks."""
    return stream.assume_ordered()


_BEGIN, _END = object(), object()
"""Markers around the rows with which a tick begins."""


def merge_by_key(
    site: BuildSite,
    stream: Rows,
    least: Mapping[Any, Any],
    function: Callable[[Any, Any], Any],
    lifetime: Any,
) -> Rows:
    """Merge the values of pairs by key, at the start of a tick and after each growth.

    This is a lattice fold on a cycle, where it neither blocks nor retracts. A static one starts with its
    existing values.

    least: initial values by key.
    """
    tick = site.flow.initialize().every_tick()
    begin, end = (tick.map(lambda _, at=at: at, returns=object) for at in (_BEGIN, _END))

    def step(carried: tuple[Mapping[Any, Any], bool], row: Any) -> Any:
        values, gathering = carried
        if row is _BEGIN:
            return (values, True), ()
        if row is _END:
            return (values, False), tuple(values.items())
        key, item = row
        merged = function(values[key], item) if key in values else item
        has_grown = key not in values or merged != values[key]
        return ({**values, key: merged}, gathering), ((key, merged),) if has_grown and not gathering else ()

    rows = in_order(begin.union(stream, end))
    shown = rows.scan(lambda: (least, False), step, lifetime=lifetime, returns=object)
    return shown.flat_map(lambda made: made, returns=object)
