"""The reference transformer: passes everything on, or stops the stream itself."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Transformer
from penstock.pull.protocol import AnswerTo, End, Read
from penstock.pull.stop_once import StopOnce


@dataclass(frozen=True, slots=True)
class TransformerCase:
    """stops_at: the ask, from 1, in the place of which it stops upstream; None: it never does.
    by:       how it stops upstream: True aborts, an exception fails. Downstream is answered what confirms.
    indicates: whether it does not wait for a confirmation.
    sync:     whether it passes answers on at once, or a second later.
    """

    stops_at: int | None = None
    by: End = True
    indicates: bool = False
    sync: bool = True


def reference_transformer(
    stops_at: int | None = None, by: End = True, *, indicates: bool = False, sync: bool = True
) -> Transformer:
    """A transformer that passes on what comes, or stops upstream. Parameters: see `TransformerCase`.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values("abc"), reference_transformer(stops_at=3), collect()).run()
    ['a', 'b']
    """
    return transformer_of(TransformerCase(stops_at, by, indicates, sync))


def transformer_of(case: TransformerCase) -> Transformer:
    """The reference transformer with these parameters."""

    def open(module: Module, edge: Edge) -> Read:
        asked = 0
        stop = StopOnce(edge)

        def delayed(answer: AnswerTo) -> AnswerTo:
            if case.sync:
                return answer
            return lambda end, value=None, /: module.later(1.0, answer, end, value)

        def read(abort: End | None, answer: AnswerTo) -> None:
            nonlocal asked
            asked += 1
            answer = delayed(answer)
            if abort is not None:
                stop(abort, answer)
            elif case.stops_at is None or asked < case.stops_at:
                edge(None, answer)
            elif case.indicates and asked == case.stops_at:
                edge(case.by)
                answer(case.by)
            else:
                stop(case.by, answer)

        return read

    return Transformer.of("reference transformer", open)
