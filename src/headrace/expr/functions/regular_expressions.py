"""Functions of regular expressions, which are Java's (see `headrace.expr.java_patterns`).

Positions count UTF-16 units, as Spark's do here: a character beyond the basic plane is two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from headrace.errors import EvaluationError
from headrace.expr.function_records import (
    function,
)
from headrace.expr.java_patterns import java_pattern, java_replacement
from headrace.expr.linear_patterns import LinearMatch, LinearPattern
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
    constant_value,
)
from headrace.expr.types import (
    BOOL,
    INT32,
    STR,
    ListType,
)
from headrace.expr.typing_rules import (
    CallTerm,
    Function,
)

_PATTERN: dict[int, Callable[[Any], object]] = {1: java_pattern}


Pattern: TypeAlias = re.Pattern[str] | LinearPattern
Match: TypeAlias = re.Match[str] | LinearMatch


def _matches(pattern: Pattern, text: str) -> Iterator[Match]:
    """Yield matches as Java finds them: after an empty one, the next starts a character later."""
    if isinstance(pattern, LinearPattern):
        yield from pattern.matches(text)
        return
    at = 0
    while at <= len(text):
        found = pattern.search(text, at)
        if found is None:
            return
        yield found
        at = found.end() if found.end() > found.start() else found.end() + 1


def _group(found: Match, number: int) -> str:
    if not 0 <= number <= found.re.groups:
        raise EvaluationError(f"the pattern has {found.re.groups} groups, and no group {number}")
    return found[number] or ""


def extract(text: str, pattern: Pattern, group: int) -> str:
    """Return a group of the first match; empty without a match or if it has no part in it."""
    found = pattern.search(text)
    return "" if found is None else _group(found, group)


def extract_all(text: str, pattern: Pattern, group: int) -> tuple[str, ...]:
    """Return a group of every match."""
    return tuple(_group(found, group) for found in _matches(pattern, text))


def substr(text: str, pattern: Pattern) -> str | None:
    """Return the first match, None if that is empty."""
    found = pattern.search(text)
    return (found[0] or None) if found is not None else None


def start_at(position: int) -> int:
    """Check a position to start at. Raises `EvaluationError` for one before 1."""
    if position < 1:
        raise EvaluationError(f"a position to start at counts from 1, and is not {position}")
    return position


def replace(text: str, pattern: Pattern, by: str, start: int) -> str:
    """Replace every match from a position on, which counts from 1."""
    return "".join(replaced_parts(text, pattern, by, start))


def replaced_parts(text: str, pattern: Pattern, by: str, start: int) -> Iterator[str]:
    """Yield the parts of a text in which every match from a position on is replaced."""
    skipped = _characters(text, start - 1)
    if skipped is None:
        yield text
        return
    yield text[:skipped]
    rest, at = text[skipped:], 0
    for found in _matches(pattern, rest):
        yield rest[at : found.start()]
        yield java_replacement(pattern, by)(found)
        at = found.end()
    yield rest[at:]


def _characters(text: str, units: int) -> int | None:
    """Return how many characters are that many UTF-16 units; None if the text has not as many."""
    if not units:
        return 0
    if text.isascii():
        return units if units < len(text) else None
    seen = 0
    for at, character in enumerate(text):
        if seen >= units:
            return at
        seen += 2 if character > "\uffff" else 1
    return None


def position(text: str, pattern: Pattern) -> int:
    """Return where the first match starts, from 1; 0 without one."""
    found = pattern.search(text)
    return 0 if found is None else found.start() + 1


def split(text: str, pattern: Pattern, limit: int) -> tuple[str, ...]:
    """Split a text at each match, into `limit` parts at most if that is positive."""
    if not pattern.pattern and text:
        parts = len(text) if limit > len(text) or limit <= 0 else limit
        return (*text[: parts - 1], text[parts - 1 :])
    found: list[str] = []
    at = 0
    for match in _matches(pattern, text):
        if 0 < limit <= len(found) + 1:
            break
        if match.end() > 0:
            found.append(text[at : match.start()])
            at = match.end()
    return (*found, text[at:])


_PLAIN = re.compile(r"(?:[^\\^$.|?*+()\[\]{}]|\\[^A-Za-z0-9])+", re.DOTALL)
"""Regular expressions of Java that are a text, of which some characters may be escaped."""


# -- on columns -------------------------------------------------------------------------------


def _split_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    pattern, limit = (constant_value(each) for each in call.arguments[1:])
    if not isinstance(pattern, str) or not _PLAIN.fullmatch(pattern):
        raise NotLowered("split() has a columnar form only by a text, not by a pattern")
    if not isinstance(limit, int) or limit > 0:
        raise NotLowered("split() into so many parts has no columnar form")
    return LoweredExpression(arguments[0].value.str.split(re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)))


NAMES: dict[str, Any] = {
    "x_regexp_split": split,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "regexp_like",
        "Whether the regular expression matches part of the text.",
        (STR, STR),
        BOOL,
        "({1}.search({0}) is not None)",
        prepared=_PATTERN,
        example="'a1b22', '^a'",
        catalyst="RLike",
    ),
    function(
        "regexp_extract",
        "A group of the first match, 0 for all of it; empty text if there is none.",
        (STR, STR, INT32),
        STR,
        extract,
        fallible=True,
        prepared=_PATTERN,
        defaults=(1,),
        example="'a1b22', '([a-z])([0-9]+)', 2",
        catalyst="RegExpExtract",
        keeps_size=True,
    ),
    function(
        "regexp_extract_all",
        "A group of every match.",
        (STR, STR, INT32),
        ListType(STR, nullable=True),
        extract_all,
        fallible=True,
        prepared=_PATTERN,
        defaults=(1,),
        example="'a1b22', '[0-9]+', 0",
        catalyst="RegExpExtractAll",
    ),
    function(
        "regexp_substr",
        "The first match; null if there is none.",
        (STR, STR),
        STR,
        substr,
        nullable=True,
        prepared=_PATTERN,
        example="'a1b22', '[0-9]{2}'",
        keeps_size=True,
    ),
    function(
        "regexp_count",
        "Number of matches.",
        (STR, STR),
        INT32,
        "len(x_regexp_extract_all({0}, {1}, 0))",
        prepared=_PATTERN,
        example="'a1b22', '[0-9]+'",
    ),
    function(
        "regexp_instr",
        "Position of the first match, from 1; 0 if there is none.",
        (STR, STR),
        INT32,
        position,
        prepared=_PATTERN,
        example="'a1b22', '[0-9]{2}'",
    ),
    function(
        "regexp_replace",
        "The text with matches replaced, from a position on.",
        (STR, STR, STR, INT32),
        STR,
        replace,
        fallible=True,
        prepared={1: java_pattern, 3: start_at},
        constant=(3,),
        defaults=(1,),
        example="'a1b22', '[0-9]+', '#', 1",
        catalyst="RegExpReplace",
        keeps_size=True,
    ),
    function(
        "split",
        "Parts of the text between matches; a positive number limits them.",
        (STR, STR, INT32),
        ListType(STR),
        "x_regexp_split({0}, {1}, {2})",
        prepared=_PATTERN,
        defaults=(-1,),
        example="'a1b2c', '[0-9]', -1",
        catalyst="StringSplit",
        columns=_split_columns,
        keeps_size=True,
    ),
)
