"""Fusion of neighbouring synchronous transformers into one module that works on whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.pull.ask_buffer import Buffer
from headrace.pull.edge import CallbackEdge, PullEdge
from headrace.pull.module_context import Module, open_module
from headrace.pull.protocol import AnswerTo, End

if TYPE_CHECKING:
    from headrace.errors import SourceLocation
    from headrace.pull.pipeline_run import Run


Kernel = Callable[[Iterable[Any]], Iterable[Any]]
"""Lazy, possibly stateful function from a batch's values to the output values, in order."""


class Fusible(Protocol):
    """Interface of a synchronous transformer that can be fused; see `headrace.pull.modules.KernelPart`."""

    @property
    def name(self) -> str: ...
    @property
    def location(self) -> SourceLocation: ...
    @property
    def kernel(self) -> Callable[[], Kernel]: ...


def open_kernels(run: Run, edge: PullEdge, parts: Sequence[Fusible]) -> PullEdge:
    """Open all the parts as a single module that reads from `edge`, and return its output edge."""
    # A failing function is most often on the user's last line; the joined names list the candidates.
    module = Module(run, "+".join(part.name for part in parts), parts[-1].location)
    module.connect(edge)
    read = open_module(module, lambda: Expansion(edge, _chained([part.kernel() for part in parts])).read)
    return CallbackEdge(module, read, batches=True, depth=edge.depth)


def _chained(kernels: Sequence[Kernel]) -> Kernel:
    def through(values: Iterable[Any]) -> Iterable[Any]:
        for kernel in kernels:
            values = kernel(values)
        return values

    return through


class Expansion:
    """Module that expands each value to any number of values.

    feed: lazily yields the output for a batch of input. An exception fails the module after the values before
          it.
    rest: the values that follow at the end.
    by_one: request single values from upstream, at most a window of them, instead of batches.
    """

    def __init__(
        self,
        edge: PullEdge,
        feed: Kernel,
        rest: Callable[[], Iterable[Any]] = tuple,
        *,
        by_one: bool = False,
    ) -> None:
        self._edge = edge
        self._feed = feed
        self._rest = rest
        self._by_one = by_one
        self._in_flight = 0
        self._buffer = Buffer()

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._buffer.clear()
            self._edge(abort, answer)
        else:
            self._buffer.asks.append((answer, most))
            self._pump()

    def _pump(self) -> None:
        asks = self._buffer.give()
        useful = min(len(asks), self._edge.window) if self._by_one else len(asks)
        while self._in_flight < useful:
            self._in_flight += 1
            self._edge(None, self._got, 1 if self._by_one else asks[0][1])

    def _got(self, end: End | None, values: Any = None, /) -> None:
        buffer = self._buffer
        self._in_flight -= 1
        if buffer.failure is None and buffer.end is None:
            try:
                if end is None:
                    buffer.values.extend(self._feed(values))  # keeps what came before an exception
                elif end is True:
                    buffer.values.extend(self._rest())
            except Exception as error:
                buffer.failure = error
            buffer.end = end
        self._pump()
