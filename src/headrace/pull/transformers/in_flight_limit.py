"""`limit`: bound the number of values inside a duplex or transformer."""

from __future__ import annotations

from collections import deque
from typing import Any, overload

from headrace.pull.argument_checks import check_integer
from headrace.pull.compose import pull
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Duplex, Transformer
from headrace.pull.protocol import AnswerTo, BatchRead, End


@overload
def limit(inner: Duplex, count: int) -> Duplex: ...
@overload
def limit(inner: Transformer, count: int) -> Transformer: ...
def limit(inner: Duplex | Transformer, count: int) -> Duplex | Transformer:
    """Cap in-flight values at `count`: those that have entered a duplex or transformer and not left it.

    For modules that read ahead and emit one value per value. An ask of `inner` waits until there is room,
    which each emitted value makes. When no more values will be emitted (its source has ended or was stopped),
    the limit is lifted, so that the incoming stream can end. Ends, errors and aborts are passed on.

    >>> from headrace.pull import collect, eager, pull, tap, values
    >>> order = []
    >>> inner = pull(tap(lambda x: order.append(f"in{x}")), eager(9))
    >>> pull(values(range(3)), limit(inner, 1), tap(lambda x: order.append(f"out{x}")), collect()).run()
    [0, 1, 2]
    >>> print(*order)
    in0 out0 in1 out1 in2 out2
    """
    check_integer("limit", "count", count, least=1)
    owner = object()

    def entrance(module: Module, edge: Edge) -> BatchRead:
        return _Entrance(module, edge, module.shared(owner, lambda: _Gates(count)).of("entrance")).read

    def exit(module: Module, edge: Edge) -> BatchRead:
        return _Exit(edge, module.shared(owner, lambda: _Gates(count)).of("exit")).read

    into = Transformer.of("limit", entrance, batches=True)
    out = Transformer.of("limit", exit, batches=True)
    if isinstance(inner, Transformer):
        return pull(into, inner, out)
    return Duplex(pull(inner.source, out), pull(into, inner.sink), inner.name, inner.location)


class _Gates:
    """Gates of one run, which may use the module several times: an entrance and its exit share a gate."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._halves: set[str] = set()
        self._gate = _Gate(room)

    def of(self, half: str) -> _Gate:
        """Return the most recently opened gate, or a new one if that gate already has this half."""
        if half in self._halves:
            self._halves.clear()
            self._gate = _Gate(self._room)
        self._halves.add(half)
        return self._gate


class _Gate:
    """Gate that counts the values that may still enter, and notifies waiting entrances of free room."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.lifted = False
        self.waiter: _Entrance | None = None

    def leave(self, count: int) -> None:
        self.room += count
        self._tell()

    def lift(self) -> None:
        self.lifted = True
        self._tell()

    def _tell(self) -> None:
        if self.waiter is not None:
            self.waiter.module.enter(self.waiter.go_on)


class _Entrance:
    def __init__(self, module: Module, edge: Edge, gate: _Gate) -> None:
        self.module = module
        self._edge = edge
        self._gate = gate
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        gate.waiter = self

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._edge(abort, answer)
        else:
            self._asks.append((answer, most))
            self.go_on()

    def go_on(self) -> None:
        """Pass on waiting asks while there is room."""
        gate = self._gate
        while self._asks and (gate.room > 0 or gate.lifted):
            answer, most = self._asks.popleft()
            self._ask(answer, most if gate.lifted else min(most, gate.room))

    def _ask(self, answer: AnswerTo, most: int) -> None:
        def got(end: End | None, values: Any = None, /) -> None:
            answer(end, values)
            if end is None and len(values) < most:
                self._gate.room += most - len(values)
                self.go_on()

        self._gate.room -= most
        self._edge(None, got, most)


class _Exit:
    def __init__(self, edge: Edge, gate: _Gate) -> None:
        self._edge = edge
        self._gate = gate

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        def got(end: End | None, values: Any = None, /) -> None:
            answer(end, values)
            if end is None:
                self._gate.leave(len(values))
            else:
                self._gate.lift()

        if abort is not None:
            self._gate.lift()
            self._edge(abort, got)
        else:
            self._edge(None, got, most)
