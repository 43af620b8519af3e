"""`catch`: handle an error of upstream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.pull.argument_checks import IN_A_TASK, synchronous_check
from headrace.pull.edge import Edge
from headrace.pull.modules import Transformer
from headrace.pull.protocol import AnswerTo, BatchRead, End


def catch(handler: Callable[[Exception], Any] | None = None) -> Transformer:
    """Pass values through; when upstream fails, `handler(error)` decides how the stream ends.

    False          the error
    None or True   done: the stream is complete with the values so far. The default without a handler
    another value  this value, and then done

    Upstream has closed by then. An error of closing after an abort from downstream is handled, too, but the
    answer is then only the error or done, never a value. An error sent by downstream is passed on unhandled.
    If the handler raises, its exception is the error, with the original one as its cause.

    >>> from headrace.pull import collect, map, pull, values
    >>> pull(values("12x4"), map(int), catch(lambda error: -1), collect()).run()
    [1, 2, -1]
    """
    if handler is not None:
        handler = synchronous_check("catch", handler, fix=IN_A_TASK).calling(handler)
    return Transformer.of("catch", lambda _module, edge: _catch(edge, handler), batches=True)


Handler = Callable[[Exception], Any]


def _catch(edge: Edge, handler: Handler | None) -> BatchRead:
    ended: End | None = None
    stopped = False

    def read(abort: End | None, answer: AnswerTo, most: int) -> None:
        nonlocal stopped

        def got(end: End | None, value: Any = None, /) -> None:
            nonlocal ended
            if end is None:
                answer(None, value)
            elif not stopped:
                if ended is None:
                    ended, instead = (True, []) if end is True else _outcome(handler, end)
                    if instead:
                        answer(None, instead)
                        return
                answer(ended)

        def confirmed(end: End | None, _value: Any = None, /) -> None:
            if abort is True and isinstance(end, Exception):
                end = _outcome(handler, end)[0]
            answer(end)

        if ended is not None:
            answer(ended)
        elif abort is None:
            edge(None, got, most)
        else:
            stopped = True
            edge(abort, confirmed)

    return read


def _outcome(handler: Handler | None, error: Exception) -> tuple[End, list[Any]]:
    """Return the stream's end, and a value to emit before it, if any."""
    if handler is None:
        return True, []
    try:
        outcome = handler(error)
    except Exception as later:
        if later is error:
            raise
        raise later from error
    if outcome is False:
        return error, []
    return True, [] if outcome is None or outcome is True else [outcome]
