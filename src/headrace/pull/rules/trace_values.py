"""Text form of values and messages in a trace; values are Python literals where possible.

Both are written in brackets in a trace, so their text must have balanced brackets and fit on one line. Other
texts are written as Python strings instead.
"""

from __future__ import annotations

import ast
import re
import warnings

_OPEN = {"(": ")", "[": "]", "{": "}"}
_QUOTES = "'\""


class OpaqueValue(str):
    """Value without a literal form, known only by its text in a parsed trace.

    Equal to the same text as a string, but written without quotes.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def closing_bracket(text: str, start: int, *, quotes: bool) -> int:
    """Find the index at which the bracket at `start` is closed on its line, or -1.

    quotes: whether brackets within quotes do not count, as in Python.
    """
    expected: list[str] = []
    at, end = start, len(text)
    while at < end:
        sign = text[at]
        if sign in "\n\r":
            return -1
        if quotes and sign in _QUOTES:
            at = _end_of_quote(text, at)
            if at < 0:
                return -1
        elif sign in _OPEN:
            expected.append(_OPEN[sign])
        elif sign in ")]}":
            if not expected or expected.pop() != sign:
                return -1
            if not expected:
                return at
        at += 1
    return -1


def _end_of_quote(text: str, start: int) -> int:
    at = start + 1
    while at < len(text) and text[at] not in "\n\r":
        if text[at] == text[start]:
            return at
        at += 2 if text[at] == "\\" else 1
    return -1


def value_text(value: object) -> str:
    """Format a value for a trace: its `repr`, quoted if it would not fit into brackets."""
    try:
        text = repr(value)
    except Exception:  # A user's value with a failing repr must not break the trace.
        text = f"<{type(value).__name__}>"
    return text if _fits(text, quotes=True) else str.__repr__(text)


def values_text(values: tuple[object, ...]) -> str:
    """Format the values of a batch, separated by commas."""
    return ", ".join(map(value_text, values))


def message_text(message: str) -> str:
    """Format a message for a trace, quoted if it would not fit into brackets."""
    plain = message == message.strip() and message[:1] not in ("'", '"')
    return message if plain and _fits(message, quotes=False) else str.__repr__(message)


def read_value(text: str) -> object:
    """Parse the text of a value: a literal's value, otherwise the text itself as `OpaqueValue`."""
    found = _literal(text)
    return OpaqueValue(text.strip()) if found is _NOTHING else found


def read_values(text: str) -> tuple[object, ...]:
    """Parse the values of a batch from the text within its brackets."""
    if not text.strip():
        return ()
    return tuple(read_value(part) for part in _split(text))


def read_message(text: str) -> str:
    """Parse a message from the text within its brackets."""
    found = _literal(text) if text[:1] in ("'", '"') else _NOTHING
    return found if isinstance(found, str) else text


_NOTHING = object()


_SMALL = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")


def _literal(text: str) -> object:
    if _SMALL.fullmatch(text):
        return int(text)  # by far the most common; Python's parser is slow
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _NOTHING


def _fits(text: str, *, quotes: bool) -> bool:
    return text.isprintable() and closing_bracket(f"({text})", 0, quotes=quotes) == len(text) + 1


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets and quotes."""
    parts: list[str] = []
    begin = at = depth = 0
    while at < len(text):
        sign = text[at]
        if sign in _QUOTES:
            at = max(_end_of_quote(text, at), at)
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return [*parts, text[begin:]]
