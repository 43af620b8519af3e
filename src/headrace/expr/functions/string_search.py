"""Search in strings: parts, `LIKE` patterns, positions, distances, regular expressions.

Regular expressions are Java's (see `headrace.expr.java_patterns`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import EvaluationError
from headrace.expr.function_records import function, rule_of
from headrace.expr.functions.strings import LENGTHS, constant_text, constant_values, of_two_columns
from headrace.expr.java_patterns import java_pattern, java_replacement
from headrace.expr.linear_patterns import LinearMatch, LinearPattern
from headrace.expr.polars_columns import LoweredExpression, NotLowered, constant_value
from headrace.expr.types import BOOL, INT32, STR, ListType
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Emitter,
    Function,
    LiteralTerm,
    Mismatch,
    Signature,
)
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column


def _like_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    for escape in arguments[2:]:
        constant = escape.value if isinstance(escape, LiteralTerm) else None
        if not isinstance(constant, str) or len(constant) != 1 or constant > "\uffff":
            raise Mismatch("the escape character of like is a constant of one character")
    signature = rule_of("like", (STR, STR), BOOL)(arguments[:2], options)
    return Signature((STR,) * len(arguments), signature.result)


def _like(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    text, pattern, *escape = operands
    _, constant, *escapes = constant_values(call)
    make = emitter.prepare(like_matcher)
    if constant is not None:
        try:
            return f"({emitter.constant(make(constant, *escapes))}({text}) is not None)"
        except EvaluationError:
            pass  # the row that is compared with it tells
    return f"({emitter.constant(make)}({', '.join((pattern, *escape))})({text}) is not None)"


@lru_cache(maxsize=256)
def like_matcher(pattern: str, escape: str = "\\") -> Callable[[str], re.Match[str] | None]:
    """Return a function that matches whole texts with a `LIKE` pattern: % any text, _ any character.

    escape: takes away the meaning of these and of itself. Raises `EvaluationError` before another one.
    """
    parts = like_parts(pattern, escape)
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild[p] if w else re.escape(p) for p, w in parts), re.DOTALL).fullmatch


def like_parts(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    """Yield the characters of a `LIKE` pattern, each with whether it is a wildcard."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in ("%", "_", escape):
                what = "a backslash" if escape == "\\" else f"an escape character {escape!r}"
                raise EvaluationError(f"the pattern {pattern!r} has {what} that escapes nothing")
            yield escaped, False
        else:
            yield character, character in ("%", "_")


def _like_may_fail(call: CallTerm) -> bool:
    _, constant, *escapes = constant_values(call)
    if constant is None:
        return True
    try:
        like_matcher(constant, *escapes)
    except EvaluationError:
        return True
    return False


def locate(search: str, text: str, start: int) -> int:
    """Return the position of a text in another, from 1, searching from `start`; 0 if it is not found."""
    if not search:
        return int(start > 0)
    return text.find(search, start - 1) + 1 if start > 0 else 0


def levenshtein(one: str, other: str) -> int:
    """Return the least number of characters to insert, delete or replace from one text to the other."""
    row = list(range(len(other) + 1))
    for at, a in enumerate(one, 1):
        before, row[0] = row[0], at
        for to, b in enumerate(other, 1):
            before, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, before + (a != b))
    return row[-1]


_SOUNDS = "01230127022455012623017202"


def find_in_set(text: str, texts: str) -> int:
    """Return the position of a text in a comma-separated list, from 1; 0 if it is not found."""
    if "," in text:
        return 0
    parts = texts.split(",")
    return parts.index(text) + 1 if text in parts else 0


def soundex(text: str) -> str:
    """Return the first letter and three digits for the consonants after it; other texts unchanged."""
    first = text[:1].upper() if text[:1].isascii() else ""
    if not first.isalpha():
        return text
    found, last = first, _SOUNDS[ord(first) - 65]
    for letter in text[1:]:
        if not (letter.isascii() and letter.isalpha()):
            last = "0"
            continue
        code = _SOUNDS[ord(letter.upper()) - 65]
        if code == "7":
            continue
        if code not in ("0", last):
            found += code
            if len(found) == 4:
                break
        last = code
    return f"{found:0<4}"


def _regex(inner: list[tuple[str, bool]], first: bool, last: bool) -> Iterable[str]:
    yield ".*" * first
    for character, wild in inner:
        yield {"%": ".*", "_": "."}[character] if wild else re.escape(character)
    yield ".*" * last


def _like_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    # Spark takes only a bare constant as the escape character.
    escapes = (F.lit(each.value) for each in call.arguments[2:] if isinstance(each, LiteralTerm))
    return F.like(*arguments[:2], *escapes)


# -- on columns -------------------------------------------------------------------------------


def _place(text: pl.Expr, part: str) -> LoweredExpression:
    if not part:
        return LoweredExpression(pl.when(text.is_not_null()).then(pl.lit(1, dtype=pl.Int32())), (1, 1))
    before = text.str.splitn(part, 2).struct.field("field_0").str.len_chars().cast(pl.Int32)
    found = text.str.contains(part, literal=True)
    return LoweredExpression(
        pl.when(found).then(before + 1).when(~found).then(pl.lit(0, dtype=pl.Int32())), LENGTHS
    )


def _instr_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return _place(arguments[0].value, constant_text(call, 1))


def _locate_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if constant_value(call.arguments[2]) != 1:
        raise NotLowered("locate() has a columnar form only from the start")
    return _place(arguments[1].value, constant_text(call, 0))


def _like_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    pattern = constant_text(call, 1)
    escape = constant_text(call, 2) if len(call.arguments) > 2 else "\\"
    try:
        parts = list(like_parts(pattern, escape))
    except EvaluationError as error:
        raise NotLowered("like() with a malformed pattern stays in rows") from error
    return LoweredExpression(_like_on_columns(arguments[0].value, parts))


def _like_on_columns(text: pl.Expr, parts: list[tuple[str, bool]]) -> pl.Expr:
    """Return whether texts match a `LIKE` pattern, without a regular expression if it is simple."""
    first = parts[:1] == [("%", True)]
    last = len(parts) > first and parts[-1] == ("%", True)
    inner = parts[first : len(parts) - last]
    if any(wild for _, wild in inner):
        return text.str.contains(rf"(?s)\A{''.join(_regex(inner, first, last))}\z")
    literal = "".join(character for character, _ in inner)
    if first and last:
        return text.str.contains(literal, literal=True)
    if last:
        return text.str.starts_with(literal)
    return text.str.ends_with(literal) if first else text == literal


FUNCTIONS: tuple[Function, ...] = (
    function(
        "contains",
        "",
        (
            STR,
            STR,
        ),
        BOOL,
        "({1} in {0})",
        catalyst="Contains",
        columns=of_two_columns(lambda text, part: text.str.contains(part, literal=True)),
    ),
    function(
        "starts_with",
        "",
        (
            STR,
            STR,
        ),
        BOOL,
        "{0}.startswith({1})",
        catalyst="StartsWith",
        columns=of_two_columns(lambda text, part: text.str.starts_with(part)),
        spark="startswith",
    ),
    function(
        "ends_with",
        "",
        (
            STR,
            STR,
        ),
        BOOL,
        "{0}.endswith({1})",
        catalyst="EndsWith",
        columns=of_two_columns(lambda text, part: text.str.ends_with(part)),
        spark="endswith",
    ),
    function(
        "like",
        types=_like_rule,
        code=_like,
        fallible=_like_may_fail,
        arity=(2, 3),
        columns=_like_columns,
        spark=_like_spark,
    ),
    function(
        "instr",
        "Position of the second text in the first, from 1; 0 if it isn't there.",
        (STR, STR),
        INT32,
        "({0}.find({1}) + 1)",
        example="'green tea', 'tea'",
        catalyst="StringInstr",
        columns=_instr_columns,
    ),
    function(
        "locate",
        "Position of the first text in the second, searched from a position on; 0 if it isn't there.",
        (STR, STR, INT32),
        INT32,
        locate,
        defaults=(1,),
        example="'e', 'green tea', 5",
        catalyst="StringLocate",
        columns=_locate_columns,
    ),
    function(
        "levenshtein", "Edit distance of two texts.", (STR, STR), INT32, levenshtein, example="'tea', 'pea'"
    ),
    function(
        "find_in_set",
        "Position of the text in a comma-separated list, from 1; 0 if it isn't there.",
        (STR, STR),
        INT32,
        find_in_set,
        example="'b', 'a,b,c'",
        catalyst="FindInSet",
    ),
    function(
        "soundex",
        "Soundex code: a letter and three digits.",
        (STR,),
        STR,
        soundex,
        example="'Robert'",
        catalyst="SoundEx",
        keeps_size=True,
    ),
)

_PATTERN: dict[int, Callable[[Any], object]] = {1: java_pattern}


Pattern: TypeAlias = re.Pattern[str] | LinearPattern
Match: TypeAlias = re.Match[str] | LinearMatch


def _matches_in(pattern: Pattern, text: str) -> Iterator[Match]:
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
    """Return a group of the first match; empty if nothing matches or the group did not."""
    found = pattern.search(text)
    return "" if found is None else _group(found, group)


def extract_all(text: str, pattern: Pattern, group: int) -> tuple[str, ...]:
    """Return a group of every match."""
    return tuple(_group(found, group) for found in _matches_in(pattern, text))


def substr(text: str, pattern: Pattern) -> str | None:
    """Return the first match; None if nothing matches, or only the empty text."""
    found = pattern.search(text)
    return (found[0] or None) if found is not None else None


def start_at(position: int) -> int:
    """Check a start position. Raises `EvaluationError` below 1."""
    if position < 1:
        raise EvaluationError(f"a position to start at counts from 1, and is not {position}")
    return position


def replace(text: str, pattern: Pattern, by: str, start: int) -> str:
    """Replace every match from position `start` on, counted from 1."""
    return "".join(replaced_parts(text, pattern, by, start))


def replaced_parts(text: str, pattern: Pattern, by: str, start: int) -> Iterator[str]:
    """Yield the parts of a text with every match from a position on replaced."""
    skipped = _characters(text, start - 1)
    if skipped is None:
        yield text
        return
    yield text[:skipped]
    rest, at = text[skipped:], 0
    for found in _matches_in(pattern, rest):
        yield rest[at : found.start()]
        yield java_replacement(pattern, by)(found)
        at = found.end()
    yield rest[at:]


def _characters(text: str, units: int) -> int | None:
    """Return the number of characters in the first `units` UTF-16 units; None if the text is shorter."""
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
    """Return the start of the first match, from 1; 0 if nothing matches."""
    found = pattern.search(text)
    return 0 if found is None else found.start() + 1


def split(text: str, pattern: Pattern, limit: int) -> tuple[str, ...]:
    """Split a text at each match, into `limit` parts at most if that is positive."""
    if not pattern.pattern and text:
        parts = len(text) if limit > len(text) or limit <= 0 else limit
        return (*text[: parts - 1], text[parts - 1 :])
    found: list[str] = []
    at = 0
    for match in _matches_in(pattern, text):
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

REGULAR_EXPRESSIONS: tuple[Function, ...] = (
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
