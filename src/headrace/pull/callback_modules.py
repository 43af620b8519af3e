"""`source`, `transformer`, `sink`: modules made of plain functions in callback form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.pull.argument_checks import SPAWN, refuse_async, synchronous_check
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Sink, Source, Transformer
from headrace.pull.protocol import AnswerTo, End, Layer, Read

_FIX = f"a plain function, or Source.of and the like; {SPAWN}"


def source(read: Read, *, name: str = "", linear: bool = True, layer: Layer = 3) -> Source:
    """Create a source from a function `read(abort, answer)`; see `headrace.pull.protocol`.

    linear: it is asked again only after it has answered. An abort may come at any time.
    layer:  requests it understands: 1 only asks (the edge then confirms an abort for it), 2 also aborts
            (a failure reaches it as an abort), 3 also errors.

    The same function serves every run; use `Source.of` for sources that open anew in each.
    """
    refuse_async("source", read, fix=_FIX)
    return Source.of(name or _name(read), lambda _module: read, linear=linear, layer=layer)


def transformer(
    connect: Callable[[Read], Read], *, name: str = "", linear: bool = True, layer: Layer = 3
) -> Transformer:
    """Create a transformer from a function that takes the `read` of upstream and returns its own.

    linear, layer: see `source`. For a transformer of layer 1, the edge stops the modules upstream of it.
    """
    refuse_async("transformer", connect, fix=_FIX)
    return Transformer.of(
        name or _name(connect), lambda _module, edge: connect(edge), linear=linear, layer=layer
    )


def sink(connect: Callable[[Read], Any], *, name: str = "") -> Sink:
    """Create a sink from a function that takes the `read` of upstream and drives it.

    The result is the function's return value, once the stream has ended. The sink fails if the stream does.
    """
    checked = synchronous_check("sink", connect, fix=_FIX)

    def open(module: Module, edge: Edge) -> None:
        result: Any = None

        def read(abort: End | None, answer: AnswerTo | None = None) -> None:
            def answered(end: End | None, value: Any = None, /) -> None:
                if answer is not None:
                    answer(end, value)
                if end is not None:
                    finish(end)

            edge(abort, answered)

        def finish(end: End) -> None:
            if end is True:
                module.done(result)
            else:
                module.fail(end, result)

        result = checked(connect(read))

    return Sink.of(name or _name(connect), open)


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)
