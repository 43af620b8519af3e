"""Search in strings: parts, patterns of `LIKE`, positions, distances."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.errors import EvaluationError
from headrace.expr.code_emission import Emitter
from headrace.expr.deferred_imports import F, pl
from headrace.expr.function_records import function, rule_of
from headrace.expr.functions.strings import (
    LENGTHS,
    constant_text,
    constant_values,
    of_two_columns,
)
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
    constant_value,
)
from headrace.expr.types import BOOL, INT32, STR
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Function,
    LiteralTerm,
    Mismatch,
    Signature,
)

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
    """Return a function that matches whole texts with a pattern of `LIKE`: % any text, _ any character.

    escape: takes away the meaning of these and of itself. Raises `EvaluationError` before another one.
    """
    parts = like_parts(pattern, escape)
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild[p] if w else re.escape(p) for p, w in parts), re.DOTALL).fullmatch


def like_parts(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    """Yield the characters of a pattern of `LIKE`, each with whether it stands for others."""
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
    """Return where a text holds another, from 1, searching from `start`; 0 if it does not."""
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
    """Return the place of a text among others, which commas separate, from 1; 0 if it is none of them."""
    if "," in text:
        return 0
    parts = texts.split(",")
    return parts.index(text) + 1 if text in parts else 0


def soundex(text: str) -> str:
    """Return the first letter and three digits for the consonants after it; other texts as they are."""
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
    return LoweredExpression(_matches(arguments[0].value, parts))


def _matches(text: pl.Expr, parts: list[tuple[str, bool]]) -> pl.Expr:
    """Return whether texts match a pattern of `LIKE`: without a regular expression, if it is simple."""
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
