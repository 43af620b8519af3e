"""Composition of pieces of this form: `pull(source, *transformers, sink)`."""

from __future__ import annotations

from typing import Any, NoReturn, cast, overload

from penstock.errors import NotComposable, SourceLocation
from penstock.pull import pieces as callback
from penstock.pull.dataflow.pieces import Piece, Sink, Source, Transformer
from penstock.pull.pipeline import Pipeline, Segment


@overload
def pull(first: Source, /, *then: Transformer) -> Source: ...
@overload
def pull(first: Transformer, /, *then: Transformer) -> Transformer: ...
@overload
def pull(*pieces: Piece) -> Any: ...
def pull(*pieces: Piece) -> Source | Transformer | Sink | Pipeline:
    """Compose pieces in the order in which values flow; see `penstock.pull.pull`.

    What is complete is a `Pipeline`, run as any other. Raises `NotComposable` for another order,
    and for pieces of the callback form: `as_dataflow` makes them pieces of this one.
    """
    location = SourceLocation.of_caller()
    if not pieces:
        raise NotComposable(
            "pull() of nothing", where=[location], fix="give at least one source, transformer or sink"
        )
    made: Source | Transformer | Sink | Pipeline | None = None
    for at, piece in enumerate(pieces, 1):
        if not isinstance(piece, Source | Transformer | Sink):  # pyright: ignore[reportUnnecessaryIsInstance]
            _no_piece(piece, at, location)
        if isinstance(made, Sink | Pipeline):
            _misplaced(pieces[at - 2], at - 1, "A sink ends a pipeline, and something follows it.", location)
        if made is not None and isinstance(piece, Source):
            _misplaced(piece, at, "A source begins a pipeline, and something stands before it.", location)
        made = piece if made is None else _join(made, piece)
    assert made is not None
    return made


def _join(left: Source | Transformer, right: Piece) -> Source | Transformer | Sink | Pipeline:
    if isinstance(right, Sink):
        if isinstance(left, Transformer):
            before, width = left.then + right.before, left.width + right.width
            return Sink(right.name, right.location, right.open, before, width, right.bridged)
        # A run opens a source and has a sink read from it, whatever their form.
        return Pipeline((Segment(cast("callback.Source", left), cast("callback.Sink", right)),))
    assert isinstance(right, Transformer)
    if isinstance(left, Source):
        return Source(left.name, left.location, left.open, left.then + right.then)
    return Transformer(left.name, left.location, left.then + right.then, left.width + right.width)


def _misplaced(piece: Piece, at: int, why: str, location: SourceLocation) -> NoReturn:
    raise NotComposable(
        f"the {type(piece).__name__.lower()} {piece.name!r} cannot stand at position {at}",
        where=[location],
        why=why,
        fix="pull(source, transformers..., sink); a source within a stream of sources: flatten(), cat()",
        position=at,
    )


def _no_piece(piece: object, at: int, location: SourceLocation) -> NoReturn:
    if isinstance(piece, callback.Source | callback.Transformer | callback.Sink):
        what = f"position {at} of pull() is a {type(piece).__name__.lower()} of the callback form"
        fix = "as_dataflow(piece) makes it a piece of this form"
    else:
        what = f"position {at} of pull() is {type(piece).__name__}, which is no piece of a pipeline"
        fix = "values([...]) makes a source of what can be iterated; Source.of a dataflow thread"
    raise NotComposable(
        what,
        where=[location],
        why="Here pieces are sources, transformers and sinks of dataflow threads.",
        fix=fix,
        position=at,
    )
