"""Pull-stream protocol in callback form: its messages and types.

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
"""End of a stream: True for done, the exception for failed."""


class AnswerTo(Protocol):
    """Callback for the answer to a request. `end` is None for a value."""

    def __call__(self, end: End | None, value: Any = None, /) -> object: ...


Layer = Literal[1, 2, 3]
"""Requests that a module supports: 1 asks, 2 also aborts, 3 also errors."""

Read = Callable[[End | None, AnswerTo], object]
"""Read function of a module. An `Edge` always passes an answer callback."""

BatchRead = Callable[[End | None, AnswerTo, int], object]
"""`Read` that takes a limit on the values per answer, and answers with a list of 1 to that many."""


def attach_close_error(first: Exception, later: Exception) -> Exception:
    """Attach a later error to the first cause of a failure as a note. Returns `first`; raises nothing."""
    if later is not first:
        try:
            said = str(later)
        except Exception:
            said = "it cannot be shown"
        note = f"then, while closing: {type(later).__name__}: {said}"
        # Not add_note: it sets an attribute, which fails for exceptions that are frozen dataclasses.
        notes: list[str] = first.__dict__.setdefault("__notes__", [])
        if note not in notes:
            notes.append(note)
    return first


def failure(cause: Exception, end: End) -> Exception:
    """Combine a stream's failure with an error raised while ending it, which is attached as a note."""
    return attach_close_error(cause, end) if isinstance(end, Exception) else cause
