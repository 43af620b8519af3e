"""Replay of an event history, one tick per event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from headrace.engine.signals.row_values import ValueCheck
from headrace.errors import BadInput, SourceLocation
from headrace.operators.column_arguments import render_argument
from headrace.operators.signals.earlier_values import SignalSource
from headrace.shown import Shown

if TYPE_CHECKING:
    from headrace.engine.signals.row_values import SignalPart
    from headrace.engine.signals.signal_machine import EmittedValues
    from headrace.graph.node import FlowGraph


@dataclass(frozen=True, slots=True)
class Emissions(Shown):
    """Values emitted by a sink during a replay, one per tick in which it fired.

    Iteration yields pairs of tick number and value.
    """

    ticks: Sequence[int]
    values: list[Any]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return zip(self.ticks, self.values, strict=True)


class Replay:
    """Replay of histories, for flows that consist of signals only."""

    def __init__(self, graph: FlowGraph, signal_part: SignalPart) -> None:
        self._machine = signal_part.machine
        self._loops = signal_part.loops
        self._graph = graph
        operators = {name: graph.nodes[node].operator for name, node in graph.sources.items()}
        self._check = {n: ValueCheck(o) for n, o in operators.items() if isinstance(o, SignalSource)}
        self._exact = {n: c.exact for n, c in self._check.items() if c.exact not in (None, object)}

    def run_columns(
        self, columns: Mapping[str, Iterable[Any]], first: int
    ) -> tuple[int, dict[str, Emissions]]:
        """Run one tick per row; return the number of ticks, and what each sink emitted.

        Raises `BadInput` for a name that is no source and for columns of different
        lengths, `BadRow` for a value of another type: before the first tick.
        """
        values: dict[int, Sequence[Any]] = {}
        for name, column in columns.items():
            self._check_source(name)
            if isinstance(column, str | bytes) or not isinstance(column, Iterable):  # pyright: ignore
                raise BadInput(
                    f"signal {name!r} needs its values, one per tick, got {render_argument(column)}",
                    where=[SourceLocation.of_caller()],
                    fix=f"replay({name}=[...])",
                    source=name,
                )
            values[self._graph.sources[name]] = self._check[name](column)
        lengths = {len(column) for column in values.values()}
        if len(lengths) > 1:
            raise BadInput(
                f"the columns of a replay are of different lengths: {', '.join(map(str, sorted(lengths)))}",
                where=[SourceLocation.of_caller()],
                why="A row of them is one tick, in which all of these signals fire.",
                fix='for ticks in which not all fire, give events: replay([{"a": 1, "b": 2}, {"a": 3}])',
            )
        if not values or not lengths.pop():
            return 0, self._emissions({})
        count = len(next(iter(values.values())))
        return count, self._emissions(self._loops.run(values, first))

    def check(self, ticks: Iterable[Mapping[str, Any]]) -> None:
        """Raise `BadInput` and `BadRow` for invalid values of these signals."""
        for values in ticks:
            self._together(values)

    def run_events(self, events: Iterable[Any], first: int) -> tuple[int, dict[str, Emissions]]:
        """Run one tick per event; return the number of ticks, and what each sink emitted.

        Raises like `run_columns`.
        """
        given = list(events)
        if set(map(type, given)) <= {tuple} and set(map(len, given)) <= {2}:
            names: Sequence[str] = [name for name, _ in given]
            values: Sequence[Any] = [value for _, value in given]
            if len(set(names)) == 1:
                return self.run_columns({names[0]: values}, first)
            self._machine.run_tick_per_event(*self._checked(names, values), first)
        elif columns := _columns(given):
            return self.run_columns(columns, first)
        else:
            self._run_ticks([self._together(event) for event in given], first)
        return len(given), self._emissions(self._machine.take_emitted())

    def _checked(self, names: Sequence[str], values: Sequence[Any]) -> tuple[Iterable[int], Iterable[Any]]:
        """Check the events and replace names with nodes."""
        for name in set(names):
            self._check_source(name)
        nodes = map(self._graph.sources.__getitem__, names)
        if list(map(type, values)) == list(map(self._exact.get, names)):
            return nodes, values
        columns: dict[str, list[Any]] = {}
        for name, value in zip(names, values, strict=True):
            columns.setdefault(name, []).append(value)
        checked = {name: iter(self._check[name](column)) for name, column in columns.items()}
        return nodes, [next(checked[name]) for name in names]

    def _run_ticks(self, ticks: list[dict[int, Any]], first: int) -> None:
        for tick, values in enumerate(ticks, first):
            self._machine.run_tick(values, tick)

    def _together(self, event: Any) -> dict[int, Any]:
        if type(event) is tuple and len(event) == 2:  # pyright: ignore[reportUnknownArgumentType]
            event = dict([cast("tuple[str, Any]", event)])
        if not isinstance(event, Mapping):
            raise BadInput(
                "an event is a source and its value, or several of them by name, "
                f"got {render_argument(cast('object', event))}",
                where=[SourceLocation.of_caller()],
                fix='replay([("a", 1), {"a": 2, "b": 3}])',
            )
        values: dict[int, Any] = {}
        for name, value in cast("Mapping[str, Any]", event).items():
            self._check_source(name)
            (values[self._graph.sources[name]],) = self._check[name]([value])
        return values

    def _check_source(self, name: str) -> None:
        if name not in self._check:
            raise BadInput(
                f"the flow has no signal {name!r}",
                where=[SourceLocation.of_caller()],
                fix=f"its signals are {', '.join(map(repr, self._check)) or 'none'}",
                source=name,
            )

    def _emissions(self, left: Mapping[int, EmittedValues]) -> dict[str, Emissions]:
        none = Emissions((), [])
        return {
            name: Emissions(left[node].ticks, left[node].values) if node in left else none
            for name, node in self._graph.sinks.items()
        }


def _columns(events: list[Any]) -> dict[str, list[Any]] | None:
    """Convert events to columns, if all of them name the same signals."""
    if not all(isinstance(event, Mapping) for event in events):
        return None
    names = events[0].keys()
    if not names or any(event.keys() != names for event in events):
        return None
    return {name: [event[name] for event in events] for name in names}


def ticks_of(events: Iterable[Any] | None, columns: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Return the input of each tick in a replay."""
    if events is None:
        names = list(columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    given = cast("Iterable[tuple[str, Any] | Mapping[str, Any]]", events)
    return [dict(event) if isinstance(event, Mapping) else dict([event]) for event in given]
