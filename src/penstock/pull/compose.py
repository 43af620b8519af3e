"""Composition: `pull(source, *transformers, sink)` and every part of such a pipeline; `together`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce, singledispatch
from typing import Any, NoReturn, TypeVar, overload

from penstock.errors import NotComposable, SourceLocation
from penstock.pull.pieces import Duplex, Piece, Sink, Source, Transformer
from penstock.pull.pipeline import Pipeline, Segment


@overload
def pull(first: Source, /, *then: Transformer) -> Source: ...
@overload
def pull(first: Transformer, /, *then: Transformer) -> Transformer: ...
@overload
def pull(*pieces: Piece) -> Any: ...
def pull(*pieces: Piece) -> Source | Transformer | Sink | Duplex | Pipeline:
    """Compose pieces in the order in which values flow. Nothing runs: the result is a piece again.

    source, transformers...         a source
    transformers...                 a transformer
    transformers..., sink           a sink
    source, transformers..., sink   a `Pipeline`: call `run()`, `start()`, or await it

    A duplex stands for its sink and then its source. `pull(a, b, a)` joins two duplexes
    both ways; a duplex at one end only leaves its other half open.

    Raises `NotComposable`, which says which piece stands where, for another order and for what is no piece.
    """
    location = SourceLocation.of_caller()
    if not pieces:
        raise NotComposable(
            "pull() of nothing", where=[location], fix="give at least one source, transformer or sink"
        )
    for at, piece in enumerate(pieces, 1):
        if not isinstance(piece, Source | Transformer | Sink | Duplex):  # pyright: ignore[reportUnnecessaryIsInstance]
            _no_piece(piece, at, location)
    for at in range(1, len(pieces)):
        before, piece = pieces[at - 1], pieces[at]
        if isinstance(before, Sink):
            _misplaced(before, at, "A sink ends a pipeline, and something follows it.", location)
        if isinstance(piece, Source):
            _misplaced(piece, at + 1, "A source begins a pipeline, and something stands before it.", location)
    if len(pieces) > 1 and isinstance(pieces[0], Duplex) and pieces[0] is pieces[-1]:
        return reduce(_join, (*pieces[1:-1], pieces[0].sink), pieces[0].source)  # type: ignore[return-value]
    return reduce(_join, pieces)  # type: ignore[return-value]


def _join(left: Any, right: Any) -> Any:
    return join(right, left)


@singledispatch
def join(right: Any, left: Any) -> Any:
    """`left` before `right`."""
    raise AssertionError("checked by pull")


@join.register
def _(right: Transformer, left: Any) -> Any:
    beside = left.beside + right.beside if not isinstance(left, Duplex) else right.beside
    if isinstance(left, Source):
        return Source(left.part, left.then + right.then, beside)
    if isinstance(left, Transformer):
        return Transformer(left.then + right.then, beside)
    assert isinstance(left, Duplex)
    return Duplex(join(right, left.source), left.sink, left.name, left.location)


@join.register
def _(right: Sink, left: Any) -> Any:
    if isinstance(left, Source):
        return Pipeline((Segment(left, right),))
    if isinstance(left, Transformer):
        return Sink(right.part, left.then + right.before, left.beside + right.beside, right.behind)
    assert isinstance(left, Duplex)
    along = Pipeline((Segment(left.source, right),))
    into = left.sink
    beside = into.beside if into.behind is None else (*into.beside, into.behind)
    return Sink(into.part, into.before, beside, along)


@join.register
def _(right: Duplex, left: Any) -> Any:
    into = join(right.sink, left)
    if isinstance(into, Pipeline):
        return Source(right.source.part, right.source.then, (*right.source.beside, into))
    if isinstance(left, Duplex):
        along = Pipeline((Segment(left.source, right.sink),))
        source = Source(right.source.part, right.source.then, (*right.source.beside, along))
        return Duplex(source, left.sink, f"{left.name}+{right.name}", right.location)
    return Duplex(right.source, into, right.name, right.location)


def describe(piece: object) -> str:
    """A piece as errors call it."""
    if isinstance(piece, Source | Sink):
        return f"the {type(piece).__name__.lower()} {piece.part.name!r}"
    if isinstance(piece, Transformer):
        return f"the transformer {piece.then[0].name if piece.then else 'of nothing'!r}"
    return f"the duplex {piece.name!r}" if isinstance(piece, Duplex) else type(piece).__name__


def _misplaced(piece: Piece, at: int, why: str, location: SourceLocation) -> NoReturn:
    raise NotComposable(
        f"{describe(piece)} cannot stand at position {at}",
        where=[location],
        why=why,
        fix="pull(source, transformers..., sink); a source within a stream of sources: flatten(), cat()",
        position=at,
    )


def _no_piece(piece: object, at: int, location: SourceLocation) -> NoReturn:
    if isinstance(piece, Pipeline):
        why, fix = "It is complete: it has its source and its sink.", "run() it, or compose its parts"
    elif callable(piece):
        why = "A function does not say which kind of module it is."
        fix = "wrap it: source(f), transformer(f) or sink(f); or map(f)"
    else:
        why = "Pieces are sources, transformers, sinks and duplexes."
        fix = "values([...]) or iterate(...) make a source of what can be iterated"
    raise NotComposable(
        f"position {at} of pull() is {type(piece).__name__}, which is no piece of a pipeline",
        where=[location],
        why=why,
        fix=fix,
        position=at,
    )


K = TypeVar("K", Source, Duplex, Pipeline)

_WANTED: dict[type[Any], tuple[str, str]] = {
    Source: ("source", "values([...]) or iterate(...) make a source of what can be iterated"),
    Duplex: ("duplex", "Duplex(source, sink) makes one of its halves"),
    Pipeline: ("complete pipeline", "pull(source, transformers..., sink) makes one"),
}


def only(kind: type[K], piece: str, given: Iterable[object]) -> tuple[K, ...]:
    """What was given. Raises `NotComposable` unless all of it is of this kind.

    piece: the function that it was given to.
    """
    found: list[K] = []
    for at, each in enumerate(given, 1):
        if not isinstance(each, kind):
            wanted, fix = _WANTED[kind]
            what = "a complete pipeline" if isinstance(each, Pipeline) else describe(each)
            is_piece = isinstance(each, Source | Transformer | Sink | Duplex | Pipeline)
            raise NotComposable(
                f"{piece}() was given {what if is_piece else type(each).__name__}, which is no {wanted}",
                where=[SourceLocation.of_caller()],
                why=f"It is made of {wanted}s.",
                fix=fix,
                position=at,
            )
        found.append(each)
    return tuple(found)


def together(*pipelines: Pipeline) -> Pipeline:
    """Complete pipelines that run as one, beside each other: those that share something (the branches of
    `tee` and `fork`, the halves of a `pair`) or just belong together. Its result is the tuple of theirs.

    It is finished when all are. Where one fails the others go on; its error is raised when all are
    finished, with those that came later attached.

    >>> from penstock.pull import collect, pull, values
    >>> together(pull(values("ab"), collect()), pull(values([1]), collect())).run()
    (['a', 'b'], [1])
    """
    complete = only(Pipeline, "together", pipelines)
    segments = (segment for pipeline in complete for segment in pipeline.segments)
    return Pipeline(tuple(segments), results_of_all=True)
