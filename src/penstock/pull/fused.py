"""Fused: neighbouring synchronous transformers as one module that works on whole batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.opening import opened
from penstock.pull.protocol import AnswerTo, End

if TYPE_CHECKING:
    from penstock.errors import SourceLocation
    from penstock.pull.run import Run


Kernel = Callable[[Iterable[Any]], Iterable[Any]]
"""From the values of a batch to those that go on, lazily and in order; may keep state from batch to batch."""


class OpensKernel(Protocol):
    """A synchronous transformer: see `penstock.pull.pieces.KernelPart`."""

    @property
    def name(self) -> str: ...
    @property
    def location(self) -> SourceLocation: ...
    @property
    def kernel(self) -> Callable[[], Kernel]: ...


def open_kernels(run: Run, edge: Edge, parts: Sequence[OpensKernel]) -> Edge:
    """One module of all the parts, reading from `edge`; the edge to read from."""
    # A failing function is most often in the last line of the user's; the names say which kernels it may be.
    module = Module(run, "+".join(part.name for part in parts), parts[-1].location)
    module.connect(edge)
    read = opened(module, lambda: _Fused(edge, [part.kernel() for part in parts]).read)
    return Edge(module, read, batches=True, depth=edge.depth)


class _Fused:
    """Values that the kernels gave and nobody has asked for yet wait in `ready`: one may become many."""

    def __init__(self, edge: Edge, kernels: Sequence[Kernel]) -> None:
        self._edge = edge
        self._kernels = kernels
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._in_flight = 0
        self._ready: deque[Any] = deque()
        self._end: End | None = None
        self._failure: Exception | None = None

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._ready.clear()
            self._edge(abort, answer)
            return
        self._asks.append((answer, most))
        self._pump()

    def _pump(self) -> None:
        asks, ready = self._asks, self._ready
        while asks and ready:
            answer, most = asks.popleft()
            if len(ready) <= most:
                answer(None, list(ready))
                ready.clear()
            else:
                answer(None, [ready.popleft() for _ in range(most)])
        if not asks:
            return
        if self._failure is not None:
            raise self._failure
        if self._end is not None:
            asks.popleft()[0](self._end)
            return
        while self._in_flight < len(asks):
            self._in_flight += 1
            self._edge.batch(asks[0][1], self._got)

    def _got(self, end: End | None, values: Any = None, /) -> None:
        self._in_flight -= 1
        if end is not None:
            self._end = end if self._end is None else self._end
        elif self._failure is None:
            through: Iterable[Any] = values
            try:
                for kernel in self._kernels:
                    through = kernel(through)
                self._ready.extend(through)  # keeps what came before an exception
            except Exception as error:
                self._failure = error
        self._pump()
