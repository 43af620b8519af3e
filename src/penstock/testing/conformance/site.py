"""Where an operator of a case is to be built: its node, and the streams that reach it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from penstock.flow.flow import Flow
from penstock.flow.stream import Stream
from penstock.testing.conformance.description import NodeDescription
from penstock.testing.conformance.values import carried, frozen, picked_up

Rows: TypeAlias = Stream[Any, Any, Any, Any]
Outputs: TypeAlias = "Rows | Mapping[str, Rows] | None"
"""The one stream of an operator, or one per named output, or none."""


class Pair(NamedTuple):
    """A pair of a case as columns. The key stands in a tuple of its own: there null equals null."""

    key: object
    value: object


@dataclass(frozen=True, slots=True)
class Site:
    """inputs: per input port the streams that enter it, in the order of writing.

    on_cycle: whether what it gives may come back to it within the tick.
    """

    flow: Flow
    node: NodeDescription
    inputs: Mapping[str, Sequence[Rows]]
    on_cycle: bool

    @property
    def input(self) -> Rows:
        """The stream of the only input."""
        return self.at("")

    def at(self, port: str) -> Rows:
        """The stream of an input port."""
        (stream,) = self.inputs[port]
        return stream

    def all_inputs(self) -> list[Rows]:
        """The streams of every input: numbered ones in their order, before those without a name."""
        ports = sorted(
            self.inputs, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0)
        )
        return [stream for port in ports for stream in self.inputs[port]]

    def function(self, name: str) -> Callable[..., Any]:
        """A function of the case; what it gives is a row."""
        return rows_function(self.node.arguments[name])

    def carrying(self, name: str) -> Callable[..., Any]:
        """A function of the case that makes what is carried on of what was."""
        return carrying_function(self.node.arguments[name])

    def lifetime(self, port: int = 0) -> Any:
        return self.node.lifetime(port)

    @property
    def lifetimes(self) -> Any:
        """The lifetimes of the inputs 0 and 1."""
        return (self.node.lifetime(0), self.node.lifetime(1))

    def shown(self, stream: Rows, port: int = 0) -> Rows:
        """What a static operator of a case shows: all of its answer, in each tick."""
        return stream.every_tick() if self.lifetime(port) == "static" else stream

    def shown_if_both(self, stream: Rows) -> Rows:
        """Likewise for two inputs. Where one is of the tick, so is the answer."""
        return stream.every_tick() if self.lifetimes == ("static", "static") else stream


def rows_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; what it gives is frozen, as rows must be."""
    return lambda *arguments: frozen(function(*arguments))


def carrying_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of what is carried on, if it has parameters, which may be a list or a dict."""
    return lambda *arguments: carried(function(*map(picked_up, arguments[:1]), *arguments[1:]))


def pairs(stream: Rows) -> Rows:
    """Pairs as rows of a key and a value."""
    return stream.map(lambda pair: Pair((pair[0],), pair[1]), returns=Pair)


def keys(stream: Rows) -> Rows:
    """Keys in the form in which `pairs` has them."""
    return stream.map(lambda key: (key,), returns=object)


def unpaired(stream: Rows) -> Rows:
    """Rows of a key and a value as pairs."""
    return stream.map(lambda row: (row[0][0], row[1]), returns=object)


def in_order(stream: Rows) -> Rows:
    """The stream, for an operator that reads the order of rows: in a case it is given, as the ticks are."""
    return stream.assume_ordered()


_BEGIN, _END = object(), object()
"""What stands before and behind the rows that a tick begins with."""


def grown(
    site: Site,
    stream: Rows,
    least: Mapping[Any, Any],
    function: Callable[[Any, Any], Any],
    lifetime: Any,
) -> Rows:
    """What merging has made of pairs, per key: once of all that a tick begins with, then when it has grown.

    This is a lattice fold on a cycle, where it waits for nothing and takes nothing back. A
    static one begins with the values that it has.

    least: values by key that are there from the start.
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
