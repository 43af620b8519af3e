"""Subscriptions to signals of a running engine, with the operators they add and remove."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, SourceLocation, Step
from headrace.graph.node import Node
from headrace.operators.endpoints import Sink
from headrace.operators.signals.earlier_values import LastRow, SignalSource
from headrace.operators.signals.lift import SignalOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine.signals.signal_machine import EmittedValues, SignalMachine
    from headrace.flow.flow import Flow
    from headrace.flow.signal import Signal

Callback = Callable[[Any], object]

_ENDINGS = 1_000_000_000
"""Lower bound of the ids of operators added by subscriptions, above all ids in a flow."""
_LATER = 500_000_000
"""Added to the ids of operators made after a graph whose ids are not those of its flow."""


class Subscription:
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
        self._active: dict[int, Subscription] = {}
        self._readers: dict[int, set[int]] = {}
        self._made = 0
        self._pending: deque[tuple[Subscription, Any]] = deque()
        self._notifying = False

    def __bool__(self) -> bool:
        return bool(self._active)

    def add(self, signal: Signal[Any], callback: Callback, location: SourceLocation) -> Subscription:
        """Subscribe `callback` to the current value of `signal`, if any, and to each new one.

        Operators that the machine has not yet begin as if what they read had fired just now.

        Raises `BadInput` for a signal of another flow, and for one that the engine cannot get;
        `UserFunctionFailed` where an operator that was added fails: then nothing was added.
        """
        added = self._missing(signal, location)
        self._made += 1
        name = f"subscription_{self._made}"
        ending = Node(
            _ENDINGS + self._made, name, Sink(name), (self._id(signal.node_id),), signal.schema, location
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
        subscription = self._active[ending.id] = Subscription(ending, callback)
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

    def remove(self, subscription: Subscription) -> None:
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
