"""Composition of dataflow-thread modules: `pull(source, *transformers, sink)`."""

from __future__ import annotations

from typing import Any, NoReturn, cast, overload

from headrace.errors import SourceLocation
from headrace.pull import modules as callback
from headrace.pull.dataflow.modules import AnyModule, Sink, Source, Transformer
from headrace.pull.errors import NotComposable
from headrace.pull.pipeline import Pipeline, Segment


@overload
def pull(first: Source, /, *then: Transformer) -> Source: ...
@overload
def pull(first: Transformer, /, *then: Transformer) -> Transformer: ...
@overload
def pull(*modules: AnyModule) -> Any: ...
def pull(*modules: AnyModule) -> Source | Transformer | Sink | Pipeline:
    """Compose modules in the order in which values flow; see `headrace.pull.pull`.

    A complete composition is an ordinary `Pipeline`. Raises `NotComposable` for another order,
    and for modules in callback form, which `as_dataflow` converts.
    """
    location = SourceLocation.of_caller()
    if not modules:
        raise NotComposable(
            "pull() got no modules", where=[location], fix="give at least one source, transformer or sink"
        )
    made: Source | Transformer | Sink | Pipeline | None = None
    for at, module in enumerate(modules, 1):
        if not isinstance(module, Source | Transformer | Sink):  # pyright: ignore[reportUnnecessaryIsInstance]
            _not_a_module(module, at, location)
        if isinstance(made, Sink | Pipeline):
            _misplaced(modules[at - 2], at - 1, "A sink ends a pipeline, and something follows it.", location)
        if made is not None and isinstance(module, Source):
            _misplaced(module, at, "A source begins a pipeline, and something stands before it.", location)
        made = module if made is None else _join(made, module)
    assert made is not None
    return made


def _join(left: Source | Transformer, right: AnyModule) -> Source | Transformer | Sink | Pipeline:
    if isinstance(right, Sink):
        if isinstance(left, Transformer):
            before, width = left.then + right.before, left.width + right.width
            return Sink(right.name, right.location, right.open, before, width, right.bridged)
        # A run connects sources and sinks regardless of their form.
        return Pipeline((Segment(cast("callback.Source", left), cast("callback.Sink", right)),))
    assert isinstance(right, Transformer)
    if isinstance(left, Source):
        return Source(left.name, left.location, left.open, left.then + right.then)
    return Transformer(left.name, left.location, left.then + right.then, left.width + right.width)


def _misplaced(module: AnyModule, at: int, why: str, location: SourceLocation) -> NoReturn:
    raise NotComposable(
        f"the {type(module).__name__.lower()} {module.name!r} cannot stand at position {at}",
        where=[location],
        why=why,
        fix="pull(source, transformers..., sink); a source within a stream of sources: flatten(), cat()",
        position=at,
    )


def _not_a_module(module: object, at: int, location: SourceLocation) -> NoReturn:
    if isinstance(module, callback.Source | callback.Transformer | callback.Sink):
        what = f"position {at} of pull() is a {type(module).__name__.lower()} of the callback form"
        fix = "as_dataflow(module) makes it a module of this form"
    else:
        what = f"position {at} of pull() is {type(module).__name__}, which is not a module"
        fix = "values([...]) makes a source of what can be iterated; Source.of a dataflow thread"
    raise NotComposable(
        what,
        where=[location],
        why="Here modules are sources, transformers and sinks of dataflow threads.",
        fix=fix,
        position=at,
    )
