"""Where an operator of a case is to be built: its node, and the streams that reach it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from penstock.flow.flow import Flow
from penstock.flow.stream import Stream
from penstock.testing.conformance.description import NodeDescription
from penstock.testing.conformance.values import frozen

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


def grown(stream: Rows, least: Any, function: Callable[[Any, Any], Any], *, per_key: bool = False) -> Rows:
    """The values of this tick that merging has grown to, each when it has; of pairs per key.

    This is a lattice fold on a cycle, where it waits for nothing. `least` None: the first item is a value.
    """

    def step(value: Any, row: Any) -> Any:
        item = row.value if per_key else row
        merged = item if value is None else function(value, item)
        return merged, (merged != value, Pair(row.key, merged) if per_key else merged)

    flagged = in_order(stream).scan(
        lambda: least, step, per="key" if per_key else (), lifetime="tick", returns=object
    )
    news = flagged.filter(lambda made: bool(made[0]))
    if per_key:
        return news.map(lambda made: Pair(*made[1]), returns=Pair)
    return news.map(lambda made: made[1], returns=object)
