"""catch: what to do about an error of upstream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.edge import Edge
from penstock.pull.pieces import Transformer
from penstock.pull.protocol import AnswerTo, End
from penstock.pull.synchronous import IN_A_TASK, synchronous


def catch(handler: Callable[[Exception], Any] | None = None) -> Transformer:
    """Values as they come; when upstream fails, `handler(error)` says what downstream gets.

    False          the error
    None or True   done: the stream is complete with what came before. Without a handler always
    another value  this value, and then done

    By then upstream has closed. An error that it meets while it closes, after an abort from
    downstream, is handled too: it is the answer, or done is; no value can be given then. An
    error that downstream sends passes unhandled. What the handler raises is the error then, with the
    other as its cause.

    >>> from penstock.pull import collect, map, pull, values
    >>> pull(values("12x4"), map(int), catch(lambda error: -1), collect()).run()
    [1, 2, -1]
    """
    if handler is not None:
        handler = synchronous("catch", handler, fix=IN_A_TASK).calling(handler)
    return Transformer.of("catch", lambda _module, edge: _Catch(edge, handler).read, batches=True)


class _Catch:
    def __init__(self, edge: Edge, handler: Callable[[Exception], Any] | None) -> None:
        self._edge = edge
        self._handler = handler
        self._end: End | None = None
        self._stopped = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if self._end is not None:
            answer(self._end)
        elif abort is None:
            self._edge.batch(most, lambda end, value=None, /: self._got(answer, end, value))
        else:
            self._stopped = True
            self._edge(abort, lambda end, _value=None, /: self._confirmed(answer, abort, end))

    def _got(self, answer: AnswerTo, end: End | None, value: Any) -> None:
        if end is None:
            answer(None, value)
        elif self._stopped:
            return
        elif self._end is not None:
            answer(self._end)
        elif end is True:
            self._end = True
            answer(True)
        else:
            self._end, instead = self._handle(end)
            if instead:
                answer(None, instead)
            else:
                answer(self._end)

    def _confirmed(self, answer: AnswerTo, cause: End, end: End | None) -> None:
        assert end is not None
        if cause is True and end is not True:
            end, _ = self._handle(end)
        answer(end)

    def _handle(self, error: Exception) -> tuple[End, list[Any]]:
        """How the stream goes on to end, and the value before that, if any."""
        if self._handler is None:
            return True, []
        try:
            outcome = self._handler(error)
        except Exception as later:
            if later is error:
                raise
            raise later from error
        if outcome is False:
            return error, []
        return True, [] if outcome is None or outcome is True else [outcome]
