"""source, transformer, sink: modules made of plain functions in the callback form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Sink, Source, Transformer
from penstock.pull.protocol import AnswerTo, End, Layer, Read
from penstock.pull.synchronous import SPAWN, refuse_async, synchronous

_FIX = f"a plain function, or Source.of and the like; {SPAWN}"


def source(read: Read, *, name: str = "", linear: bool = True, layer: Layer = 3) -> Source:
    """A source of a function `read(abort, answer)`; see `penstock.pull.protocol`.

    linear: it is not asked again before it has answered. An abort may come at any time.
    layer:  which requests it understands: 1 asks alone (the edge then confirms an abort for it), 2 aborts too
            (a failure reaches it as an abort), 3 errors too.

    The function is used as it is in every run: `Source.of` is for sources that open anew.
    """
    refuse_async("source", read, fix=_FIX)
    return Source.of(name or _name(read), lambda _module: read, linear=linear, layer=layer)


def transformer(
    connect: Callable[[Read], Read], *, name: str = "", linear: bool = True, layer: Layer = 3
) -> Transformer:
    """A transformer of a function that is given the `read` upstream of it and returns its own.

    linear, layer: see `source`. For a transformer of layer 1 the edge stops what is upstream of it.
    """
    refuse_async("transformer", connect, fix=_FIX)
    return Transformer.of(
        name or _name(connect), lambda _module, edge: connect(edge), linear=linear, layer=layer
    )


def sink(connect: Callable[[Read], Any], *, name: str = "") -> Sink:
    """A sink of a function that is given the `read` upstream of it and goes on by itself.

    Its result is what the function returned, once the stream has ended; it fails as the stream did.
    """
    checked = synchronous("sink", connect, fix=_FIX)

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
