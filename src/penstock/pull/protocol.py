"""The words of the pull-stream protocol in its callback form.

A module upstream is a function `read(abort, answer)`. The module downstream calls it:

    read(None, answer)      ask        for a value
    read(True, answer)      abort      no more values are wanted
    read(error, answer)     error      the stream fails, with this exception
    read(True), read(error)            the same as indications: nothing is answered

and it answers each request once, in the order of the requests:

    answer(None, value)     value
    answer(True)            done       the stream is completed
    answer(error)           error      the stream has failed

Source: pull-stream specification, layers 1 to 3 (base, abortable, fault-handling).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

End = Literal[True] | Exception
"""How a stream ended: True for done, the exception for failed."""


class AnswerTo(Protocol):
    """What a request is answered by. `end` is None for a value."""

    def __call__(self, end: End | None, value: Any = None, /) -> object: ...


Layer = Literal[1, 2, 3]
"""What a module takes part in: 1 asks alone, 2 aborts too, 3 errors too."""

Read = Callable[[End | None, AnswerTo], object]
"""A module upstream, as modules are written: an `Edge` always gives an answer function."""

BatchRead = Callable[[End | None, AnswerTo, int], object]
"""A `Read` that is told how many values may be answered at once, and answers a list of 1 to so many."""


def attach_close_error(first: Exception, later: Exception) -> Exception:
    """The first cause of a failure, with what failed after it as a note. Returns `first`; raises nothing."""
    if later is not first:
        try:
            said = str(later)
        except Exception:
            said = "it cannot be shown"
        note = f"then, while closing: {type(later).__name__}: {said}"
        # Not add_note: it sets an attribute, which exceptions that are frozen dataclasses refuse.
        notes: list[str] = first.__dict__.setdefault("__notes__", [])
        if note not in notes:
            notes.append(note)
    return first


def failure(cause: Exception, end: End) -> Exception:
    """The error of a stream that failed by `cause` and then ended so: the cause, a later error attached."""
    return attach_close_error(cause, end) if isinstance(end, Exception) else cause
