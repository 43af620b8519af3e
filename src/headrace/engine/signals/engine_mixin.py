"""Signal methods of `Engine`: replay of a history, and subscriptions."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.engine.signals.replay import Emissions, Replay, ticks_of
from headrace.engine.signals.watchers import SignalSubscriptions, Subscription
from headrace.errors import BadInput, BadRow, SourceLocation
from headrace.flow.signal import check_function, check_signal

if TYPE_CHECKING:
    from headrace.engine.machine import Machine
    from headrace.engine.program import Program
    from headrace.engine.tick_listeners import TickListener
    from headrace.flow.flow import Flow
    from headrace.flow.signal import Signal


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

    def subscribe(self, signal: Signal[Any], callback: Callable[[Any], object]) -> Subscription:
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

    def unsubscribe(self, subscription: Subscription) -> None:
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
