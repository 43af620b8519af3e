"""Bounds on the cost per row, for expressions that a process receives from others: in views and peeks.

Within `bounded_code`, code is generated that matches patterns in linear time, and raises
`LimitExceeded` instead of making a text, a list or a map above a limit. A function that multiplies (`repeat`,
`replace`) computes the size first, and its record says `keeps_size`; the results of others are checked after,
as are aggregates of texts and lists. Code outside is as fast as Python allows, and unbounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from functools import lru_cache
from typing import Any

from headrace.errors import LimitExceeded
from headrace.expr.function_records import FixedFunction
from headrace.expr.functions import CATALOGUE, arrays, formatting, nested, string_parts, string_search
from headrace.expr.java_patterns import java_pattern
from headrace.expr.linear_patterns import linear_like, linear_pattern
from headrace.expr.tree import Expr, FunctionCall, Literal
from headrace.expr.typing_rules import Function

MAX_LENGTH = 10_000_000
"""Limit on the characters of a text, or on bytes."""
MAX_ELEMENTS = 1_000_000
"""Limit on the elements of a list or a map."""


def check_patterns(expr: Expr) -> None:
    """Raise `EvaluationError` for a constant pattern that cannot be matched in linear time."""
    for each in expr.walk():
        if isinstance(each, FunctionCall):
            for at in _positions_of_patterns(CATALOGUE[each.function]):
                given = each.arguments[at] if at < len(each.arguments) else None
                if isinstance(given, Literal) and isinstance(given.value, str):
                    linear_pattern(given.value)


def _positions_of_patterns(function: Function) -> list[int]:
    if not isinstance(function, FixedFunction):
        return []
    return [at for at, make in function.prepared.items() if make is java_pattern]


# -- sizes ---------------------------------------------------------------------------------------


def _too_large(what: str, reached: int, limit: int) -> LimitExceeded:
    return LimitExceeded(
        f"a served expression makes {what.format(reached)}, and {limit:,} is the limit",
        fix="filter such rows out before, or compute this where the rows are written",
        reached=reached,
        limit=limit,
    )


def _check_length(length: int) -> None:
    if length > MAX_LENGTH:
        raise _too_large("a text of {:,} characters or bytes", length, MAX_LENGTH)


def _check_elements(count: int) -> None:
    if count > MAX_ELEMENTS:
        raise _too_large("a list of {:,} elements", count, MAX_ELEMENTS)


def check_length(value: Any) -> Any:
    """Return a text, bytes, list, map or None unchanged. Raises `LimitExceeded` above the limit."""
    kind = value.__class__
    if kind is tuple:
        _check_elements(len(value))
    elif kind is str or kind is bytes:
        _check_length(len(value))
    return value


def repeat(text: str, count: int) -> str:
    _check_length(len(text) * max(count, 0))
    return text * count


def lpad(text: str, length: int, padding: str) -> str:
    _check_length(length if padding else 0)
    return string_parts.lpad(text, length, padding)


def rpad(text: str, length: int, padding: str) -> str:
    _check_length(length if padding else 0)
    return string_parts.rpad(text, length, padding)


def joined(*parts: Any) -> Any:
    check = _check_elements if isinstance(parts[0], tuple) else _check_length
    check(sum(map(len, parts)))
    return string_parts.joined(*parts)


def replace(text: str, search: str, by: str) -> str:
    if len(by) > len(search) > 0:
        _check_length(len(text) + (len(by) - len(search)) * text.count(search))
    return string_parts.replace(text, search, by)


def replace_matches(text: str, pattern: string_search.Pattern, by: str, start: int) -> str:
    parts, length = list[str](), 0
    for part in string_search.replaced_parts(text, pattern, by, start):
        length += len(part)
        _check_length(length)
        parts.append(part)
    return "".join(parts)


def split(text: str, pattern: string_search.Pattern, limit: int) -> tuple[str, ...]:
    return check_length(string_search.split(text, pattern, limit))


def concat_ws(separator: str | None, *values: str | tuple[str | None, ...] | None) -> str | None:
    if separator is not None:
        lists = [(each,) if isinstance(each, str) else each or () for each in values]
        _check_joined(separator, [each for part in lists for each in part if each is not None])
    return string_parts.concat_ws(separator, *values)


def array_join(values: tuple[str | None, ...], separator: str, instead: str | None = None) -> str:
    shown = (instead if each is None else each for each in values)
    _check_joined(separator, [each for each in shown if each is not None])
    return arrays.array_join(values, separator, instead)


def _check_joined(separator: str, parts: list[str]) -> None:
    _check_length(sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0))


def sequence(start: int, stop: int, step: int | None = None) -> tuple[int, ...]:
    _check_elements(abs(stop - start) // (abs(step or 1)) + 1)
    return arrays.sequence(start, stop, step)


def sequence_of_days(start: date, stop: date, step: int | None = None) -> tuple[date, ...]:
    sequence(start.toordinal(), stop.toordinal(), step)
    return arrays.sequence_of_days(start, stop, step)


def array_insert(values: tuple[Any, ...] | None, number: int | None, value: Any) -> tuple[Any, ...] | None:
    if values is not None and number is not None:
        _check_elements(max(abs(number), len(values) + 1))
    return nested.array_insert(values, number, value)


def array_repeat(value: Any, count: int | None) -> tuple[Any, ...] | None:
    if count is None:
        return None
    _check_elements(count)
    return (value,) * count


def flatten(lists: tuple[tuple[Any, ...] | None, ...]) -> tuple[Any, ...] | None:
    if None not in lists:
        _check_elements(sum(len(each) for each in lists if each is not None))
    return arrays.flatten(lists)


def format_values(pattern: tuple[formatting.Format, tuple[int, ...]], *values: Any) -> str:
    for part in pattern[0]:
        if isinstance(part, formatting.Directive):
            _check_length(max(part.width, part.precision or 0))
    return check_length(formatting.format_string(pattern, *values))


def format_number(value: Any, digits: int) -> str | None:
    # A number has no more digits; beyond them there are only zeros, which cost as much.
    if digits > _MAX_DIGITS:
        raise _too_large("a number of {:,} digits after the point", digits, _MAX_DIGITS)
    return formatting.format_number(value, digits)


_MAX_DIGITS = 1_000


@lru_cache(maxsize=128)
def like_matcher(pattern: str, escape: str = "\\") -> Callable[[str], object]:
    """Return a function that matches whole texts with a pattern of `LIKE`, in linear time."""
    parts = tuple(string_search.like_parts(pattern, escape))
    if ("_", True) in parts:
        wild = {"%": "(?s:.)*", "_": "(?s:.)"}
        return linear_like("".join(wild[p] if stands else f"\\x{{{ord(p):x}}}" for p, stands in parts))
    texts = [""]
    for part, stands in parts:
        if stands:
            texts.append("")
        else:
            texts[-1] += part
    return _matcher_of_texts(texts)


def _matcher_of_texts(texts: list[str]) -> Callable[[str], object]:
    """Return a function that matches the given texts in order, with any text in between."""
    first, *middle = texts
    if not middle:
        return lambda text: True if text == first else None
    last = middle.pop()

    def match(text: str) -> object:
        at, end = len(first), len(text) - len(last)
        if at > end or not (text.startswith(first) and text.endswith(last)):
            return None
        for each in middle:  # at the first place where it is, it leaves most for the others
            at = text.find(each, at, end)
            if at < 0:
                return None
            at += len(each)
        return True

    return match


# -- where they are used -------------------------------------------------------------------------

NAMES: Mapping[str, Any] = {
    "x_array_insert": array_insert,
    "x_array_join": array_join,
    "x_array_repeat": array_repeat,
    "x_concat_ws": concat_ws,
    "x_flatten": flatten,
    "x_format_number": format_number,
    "x_format_string": format_values,
    "x_joined": joined,
    "x_lpad": lpad,
    "x_regexp_replace": replace_matches,
    "x_regexp_split": split,
    "x_repeat": repeat,
    "x_replace": replace,
    "x_rpad": rpad,
    "x_sequence": sequence,
    "x_sequence_of_days": sequence_of_days,
    "x_sized": check_length,
}
"""Names of generated code that mean something else in bounded code."""

PREPARED: Mapping[Callable[..., Any], Callable[..., Any]] = {
    java_pattern: linear_pattern,
    string_search.like_matcher: like_matcher,
}
"""What prepares patterns in bounded code, by what does so elsewhere."""
