"""Bridges that convert modules between the two forms, so that a pipeline may mix both.

A bridge answers each request with the answer it receives, so the same events happen on both sides. As with
every module, it turns an indication into a request with an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from headrace.errors import SourceLocation
from headrace.pull import edge as callback_edge
from headrace.pull import module_context as callback_module
from headrace.pull import modules as callback
from headrace.pull.compose import connect_modules
from headrace.pull.dataflow.edge import Ask, DataflowEdge, Requests, bind_answer, to_callback_end
from headrace.pull.dataflow.module_threads import ModuleContext, ResultListener
from headrace.pull.dataflow.modules import (
    AnyModule,
    DataflowSink,
    DataflowSource,
    DataflowTransformer,
    open_steps,
)
from headrace.pull.protocol import Read

if TYPE_CHECKING:
    from headrace.pull.pipeline_run import Run


@overload
def as_callback(original: DataflowSource) -> callback.PullSource: ...
@overload
def as_callback(original: DataflowTransformer) -> callback.PullTransformer: ...
@overload
def as_callback(original: DataflowSink) -> callback.PullSink: ...
def as_callback(original: AnyModule) -> callback.PullSource | callback.PullTransformer | callback.PullSink:
    """Convert a module of dataflow threads to callback form, for `headrace.pull.pull`.

    >>> from headrace.pull import collect, pull
    >>> from headrace.pull.dataflow import values
    >>> pull(as_callback(values([1, 2])), collect()).run()
    [1, 2]
    """
    if isinstance(original, DataflowSource):
        return callback.PullSource.of(
            original.name, lambda module: _reader(module, original.open_in(module.run))
        )
    if isinstance(original, DataflowTransformer):
        return callback.PullTransformer.of(
            original.name, partial(_open_transformer, original), width=original.width
        )
    if original.bridged is None:
        return callback.PullSink.of(original.name, partial(_open_sink, original))
    if not original.before:
        return original.bridged
    return connect_modules(
        original.bridged,
        as_callback(DataflowTransformer(original.name, original.location, original.before, original.width)),
    )


@overload
def as_dataflow(original: callback.PullSource) -> DataflowSource: ...
@overload
def as_dataflow(original: callback.PullTransformer) -> DataflowTransformer: ...
@overload
def as_dataflow(original: callback.PullSink) -> DataflowSink: ...
def as_dataflow(original: callback.PullSource | callback.PullTransformer | callback.PullSink) -> AnyModule:
    """Convert a module in callback form to dataflow threads, for `headrace.pull.dataflow.pull`.

    >>> from headrace.pull import values
    >>> from headrace.pull.dataflow import collect, pull
    >>> pull(as_dataflow(values([1, 2])), collect()).run()
    [1, 2]
    """
    location = SourceLocation.of_caller()
    if isinstance(original, callback.PullSource):
        name = original.part.name
        return DataflowSource(
            name, location, lambda run: _serving(run, original.open_in(run), name, location)
        )
    if isinstance(original, callback.PullSink):

        def open(
            run: Run, upstream: DataflowEdge, _on_result: ResultListener | None
        ) -> callback_module.Module:
            return original.open_in(run, _source_of(upstream).open_in(run))

        return DataflowSink(original.part.name, location, open, bridged=original)
    name = original.then[0].name if original.then else "nothing"

    def step(run: Run, upstream: DataflowEdge) -> DataflowEdge:
        return _serving(run, connect_modules(original, _source_of(upstream)).open_in(run), name, location)

    return DataflowTransformer(name, location, (step,))


def _serving(run: Run, edge: callback_edge.PullEdge, name: str, location: SourceLocation) -> DataflowEdge:
    """Create an edge of this form whose requests are passed to an edge in callback form."""
    module = ModuleContext(run, name, location)
    module.connect(edge)
    lower = DataflowEdge(module, depth=edge.depth)
    module.thread(_serve(lower.requests, edge))
    return lower


async def _serve(requests: Requests, edge: callback_edge.PullEdge) -> None:
    async for request in requests:
        edge(
            None if isinstance(request, Ask) else to_callback_end(request.cause),
            partial(bind_answer, request.answer),
        )


def _reader(module: callback_module.Module, edge: DataflowEdge) -> Read:
    """Create a callback-form read function for an edge of this form."""
    module.connect(edge)
    return edge


def _source_of(edge: DataflowEdge) -> callback.PullSource:
    upper = edge.upper
    return callback.PullSource.of(upper.name, lambda module: _reader(module, edge))


def _open_transformer(
    original: DataflowTransformer, module: callback_module.Module, edge: callback_edge.PullEdge
) -> Read:
    above = _serving(module.run, edge, original.name, module.location)
    return _reader(module, open_steps(module.run, above, original.then))


def _open_sink(original: DataflowSink, module: callback_module.Module, edge: callback_edge.PullEdge) -> None:
    over = False
    stopped: Callable[..., object] | None = None

    def on_result(error: Exception | None, result: Any) -> None:
        nonlocal over
        over = True
        if stopped is not None:
            stopped(error)
        elif error is None:
            module.done(result)
        else:
            module.fail(error, result)

    def close(error: Exception | None, closed: Callable[..., object]) -> None:
        """Stop the sink when its run is stopped, so that it can close resources."""
        nonlocal stopped
        if over:
            closed()
            return
        stopped = closed
        if error is None:
            inner.done()
        else:
            inner.fail(error)

    inner = original.open_in(
        module.run, _serving(module.run, edge, original.name, module.location), on_result
    )
    module.closing(close)
