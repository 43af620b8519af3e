"""What pieces that are made of other pieces must be given, checked where the user wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from penstock.errors import NotComposable, SourceLocation
from penstock.pull.compose import describe
from penstock.pull.pieces import Duplex, Sink, Source, Transformer
from penstock.pull.pipeline import Pipeline

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
