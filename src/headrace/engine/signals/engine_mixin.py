"""Signal methods of `Engine`: replay of a history, and subscriptions."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from headrace.engine.signals.row_values import ValueCheck
from headrace.errors import BadInput, BadRow, SourceLocation, Step
from headrace.flow.signal import check_function, check_signal
from headrace.graph.node import Node
from headrace.operators.column_arguments import render_argument
from headrace.operators.endpoints import SinkOperator
from headrace.operators.signals.earlier_values import LastRow, SignalSource
from headrace.operators.signals.lift import SignalOperator
from headrace.shown import Shown

if TYPE_CHECKING:
    from headrace.engine.live_rows import TickListener
    from headrace.engine.machine import Machine
    from headrace.engine.program import Program
    from headrace.engine.signals.row_values import SignalPart
    from headrace.engine.signals.signal_machine import EmittedValues, SignalMachine
    from headrace.flow.flow import Flow
    from headrace.flow.signal import Signal
    from headrace.graph.node import FlowGraph


Callback = Callable[[Any], object]

_ENDINGS = 1_000_000_000
"""Lower bound of the ids of operators added by subscriptions, above all ids in a flow."""
_LATER = 500_000_000
"""Added to the ids of operators made after a graph whose ids are not those of its flow."""


class SignalSubscription:
    """A callback subscribed to a signal. active: until removed by `engine.unsubscribe`."""

    def __init__(self, node: Node, callback: Callback) -> None:
        self.node = node
        self.callback = callback
        self.active = True

    def __repr__(self) -> str:
        return f"Subscription({self.node.name!r}, {'active' if self.active else 'taken back'})"


class SignalSubscriptions:
    """Subscriptions of an engine, and the operators that exist only for them."""

    def __init__(self, flow: Flow, renumbered: Mapping[int, int], machine: SignalMachine) -> None:
        self._flow = flow
        self._ids = renumbered
        self._machine = machine
        self._active: dict[int, SignalSubscription] = {}
        self._readers: dict[int, set[int]] = {}
        self._made = 0
        self._pending: deque[tuple[SignalSubscription, Any]] = deque()
        self._notifying = False

    def __bool__(self) -> bool:
        return bool(self._active)

    def add(self, signal: Signal[Any], callback: Callback, location: SourceLocation) -> SignalSubscription:
        """Subscribe `callback` to the current value of `signal`, if any, and to each new one.

        Operators that the machine has not yet begin as if what they read had fired just now.

        Raises `BadInput` for a signal of another flow, and for one that the engine cannot get;
        `UserFunctionFailed` where an operator that was added fails: then nothing was added.
        """
        added = self._missing(signal, location)
        self._made += 1
        name = f"subscription_{self._made}"
        ending = Node(
            _ENDINGS + self._made,
            name,
            SinkOperator(name),
            (self._id(signal.node_id),),
            signal.schema,
            location,
        )
        added[ending.id] = ending
        older = {i for node in added.values() for i in node.inputs if i not in added}
        self._machine.grow(added, (), (ending.id,))
        try:
            self._machine.run_as_if_fired(list(added), older, tick=-1 - self._made)
        except BaseException:
            self._machine.take_emitted()
            self._machine.shrink(list(reversed(added)))
            raise
        for node in added.values():
            self._readers.setdefault(node.id, set())
            for read in node.inputs:
                if read in self._readers:
                    self._readers[read].add(node.id)
        subscription = self._active[ending.id] = SignalSubscription(ending, callback)
        self.notify(self._machine.take_emitted())
        return subscription

    def _missing(self, signal: Signal[Any], location: SourceLocation) -> dict[int, Node]:
        """Return the operators needed for a signal that the machine lacks, inputs first."""
        if signal.flow is not self._flow:
            raise BadInput(
                f"the signal is of flow {signal.flow.name!r}, and the engine runs {self._flow.name!r}",
                where=[location],
                fix="build the expression of signals of the flow that runs",
            )
        found: dict[int, Node] = {}
        waiting = [signal.node_id]
        while waiting:
            node = self._flow.node(waiting.pop())
            node_id = self._id(node.id)
            if node_id in self._machine.nodes or node_id in found:
                continue
            if isinstance(node.operator, SignalSource | LastRow) or not isinstance(
                node.operator, SignalOperator
            ):
                raise self._not_there(node, location)
            found[node_id] = replace(node, id=node_id, inputs=tuple(map(self._id, node.inputs)))
            waiting.extend(node.inputs)
        return dict(sorted(found.items()))

    def _id(self, node_id: int) -> int:
        """Return the machine's id of an operator of the flow."""
        return self._ids.get(node_id, node_id + _LATER) if self._ids else node_id

    def _not_there(self, node: Node, location: SourceLocation) -> BadInput:
        return BadInput(
            f"the engine has no {node.operator.kind} {node.name!r} and cannot get one while it runs",
            where=[Step(node.location, "it is read"), Step(location, "subscribed here")],
            why="What is added to a running engine are operators on signals that it has.",
            fix="make sources, and what turns streams into signals, before the engine",
        )

    def remove(self, subscription: SignalSubscription) -> None:
        """Remove a subscription and the operators that only it needed. Repeating this has no effect."""
        if not subscription.active:
            return
        subscription.active = False
        del self._active[subscription.node.id]
        gone: list[int] = []
        waiting = [subscription.node.id]
        while waiting:
            node = waiting.pop()
            gone.append(node)
            del self._readers[node]
            for read in dict.fromkeys(self._machine.nodes[node].inputs):
                if read in self._readers:
                    self._readers[read].discard(node)
                    if not self._readers[read]:
                        waiting.append(read)
        self._machine.shrink(gone)

    def notify(self, left: Mapping[int, EmittedValues]) -> None:
        """Call the callbacks of emitted values, in the order of subscription.

        A callback may subscribe, unsubscribe and run ticks: what these emit is delivered after all current
        values. If a callback raises, the others are still called; then its error is raised.
        """
        for node, subscription in self._active.items():
            if node in left:
                self._pending.extend((subscription, value) for value in left[node].values)
        if self._notifying:
            return
        self._notifying = True
        failure: BaseException | None = None
        try:
            while self._pending:
                subscription, value = self._pending.popleft()
                if not subscription.active:
                    continue
                try:
                    subscription.callback(value)
                except Exception as error:
                    failure = failure or error
        finally:
            self._notifying = False
        if failure is not None:
            raise failure


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


class RunsSignals:
    """Mixin of `Engine` for flows with signals."""

    program: Program
    _flow: Flow
    _machine: Machine
    _ticks: int
    _failure: BaseException | None
    _subscriptions: SignalSubscriptions | None = None
    _listeners: tuple[TickListener, ...]

    def tick(self, /, **inputs: Any) -> Any:
        """Run a tick; implemented by `Engine.tick`."""
        raise NotImplementedError

    def _check_alive(self) -> None:
        raise NotImplementedError

    # -- a history -----------------------------------------------------------------------------

    def replay(
        self, events: Iterable[Any] | None = None, /, **columns: Iterable[Any]
    ) -> dict[str, Emissions]:
        """Replay a history of signals, one tick per event; return the values and ticks of each sink.

        events:  pairs of a signal's name and its value, or dicts of values that come together.
        columns: instead, per signal its values; those of one position come together.

        For a flow all of whose operators are signals. Much faster than `tick` for each: with
        columns the loop over the ticks is compiled, too. With subscribers, callbacks run after each tick, and
        nothing is gained.

        Raises `BadInput` and `BadRow` for what are no values of these signals, before the
        first tick, and what `tick` raises from within one.
        """
        self._check_alive()
        replay = self._replay()
        if (events is None) is not bool(columns):
            raise BadInput(
                "a replay takes either events or columns",
                where=[SourceLocation.of_caller()],
                fix='replay([("a", 1.0), ("b", 2.0)]), or replay(a=[1.0, 2.0])',
            )
        if self._listeners:
            return self._replay_by_ticks(replay, ticks_of(events, columns))
        collects = gc.isenabled()
        gc.disable()
        try:
            if events is None:
                count, shown = replay.run_columns(columns, self._ticks)
            else:
                count, shown = replay.run_events(events, self._ticks)
        except (BadInput, BadRow):
            raise
        except BaseException as error:
            self._failure = error
            raise
        finally:
            if collects:
                gc.enable()
        self._ticks += count
        for signal_part in self._machine.signal_parts.values():
            signal_part.save_all()
        return shown

    def _replay(self) -> Replay:
        parts = self.program.parts
        if len(parts) != 1 or not parts[0].signals:
            raise BadInput(
                f"flow {self.program.graph.name!r} cannot replay: not all of its operators are signals",
                where=[SourceLocation.of_caller()],
                fix="call tick(...) for each event",
            )
        (signal_part,) = self._machine.signal_parts.values()
        return Replay(self.program.graph, signal_part)

    def _replay_by_ticks(self, replay: Replay, ticks: list[dict[str, Any]]) -> dict[str, Emissions]:
        replay.check(ticks)
        shown: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in self.program.graph.sinks}
        for values in ticks:
            number = self._ticks
            for name, changes in self.tick(**values).items():
                for change in changes:
                    shown[name][0].append(number)
                    shown[name][1].append(change.row)
        return {name: Emissions(*lists) for name, lists in shown.items()}

    # -- while it runs -------------------------------------------------------------------------

    def subscribe(self, signal: Signal[Any], callback: Callable[[Any], object]) -> SignalSubscription:
        """Call `callback` with the current value of `signal`, if any, and with each new one.

        signal: of the flow that runs; also an expression that was built after the engine was made.
                Its operators are compiled and start as if what they read had fired just now: a
                function of current values shows its value, a scan or window begins with them.

        Callbacks are called when a tick has ended, and may subscribe, unsubscribe and run ticks.
        What a callback raises is raised by the call that made the tick, which counts all the same.
        What is added is no part of the state of the engine, and of no checkpoint.

        Raises `BadInput` for a signal of another flow, for one that reads a stream or a source which
        the engine has not got, and where streams stand between the flow's signals;
        `UserFunctionFailed` where an operator fails on the current values: nothing is added then.
        """
        self._check_alive()
        location = SourceLocation.of_caller()
        check_signal("subscribe", signal, location)
        check_function("subscribe", callback, location)
        if self._subscriptions is None:
            signal_parts = list(self._machine.signal_parts.values())
            if len(signal_parts) != 1:
                raise BadInput(
                    f"flow {self.program.graph.name!r} cannot be subscribed to: "
                    + (
                        "streams stand between its signals"
                        if signal_parts
                        else "none of its sinks reads a signal"
                    ),
                    where=[location],
                    fix="give the values that are looked at a sink of their own",
                )
            self._subscriptions = SignalSubscriptions(
                self._flow, self.program.graph.renumbered, signal_parts[0].machine
            )
        if not self._subscriptions:
            self._listeners += (self._notify_subscribers,)
        try:
            return self._subscriptions.add(signal, callback, location)
        finally:
            self._listen_only_for_subscribers()

    def unsubscribe(self, subscription: SignalSubscription) -> None:
        """Remove a subscription and the operators that exist only for it. Repeating this has no effect."""
        if self._subscriptions is not None:
            self._subscriptions.remove(subscription)
            self._listen_only_for_subscribers()

    def _listen_only_for_subscribers(self) -> None:
        # A listener makes `replay` run tick by tick.
        if not self._subscriptions:
            self._listeners = tuple(each for each in self._listeners if each != self._notify_subscribers)

    def _notify_subscribers(self, _outputs: Mapping[str, Any]) -> None:
        """Call the callbacks after a tick."""
        if self._subscriptions:
            (signal_part,) = self._machine.signal_parts.values()
            left, signal_part.left = signal_part.left, {}
            self._subscriptions.notify(left)
