"""String functions, which count code points, and byte functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import polars as pl

from headrace.errors import EvaluationError
from headrace.expr.functions.strings import like_parts
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    bounds_of,
    constant_value,
    either_condition,
)
from headrace.expr.types import BYTES, STR, ListType
from headrace.expr.typing_rules import CallTerm

Arguments = Sequence[LoweredExpression]
_LENGTHS = (0, 2**31 - 1)


def _constant_text(call: CallTerm, at: int) -> str:
    """Return an argument that is a constant text."""
    value = constant_value(call.arguments[at])
    if not isinstance(value, str):
        raise NotLowered(f"{call.function.name}() has a columnar form only with a constant argument {at + 1}")
    return value


def _of_text(of: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    return lambda call, arguments: LoweredExpression(of(arguments[0].value))


def _of_two(of: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        text, other = (a.value for a in arguments)
        return LoweredExpression(pl.when(other.is_not_null()).then(of(text, other)))

    return lowering


def _concat(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    if call.type != STR:
        raise NotLowered("concat() has a columnar form only of texts")
    return LoweredExpression(pl.concat_str([a.value for a in arguments]))


def _concat_ws(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    separator = _constant_text(call, 0)
    if any(term.type != STR for term in call.arguments):
        raise NotLowered("concat_ws() of lists has no columnar form")
    fails = either_condition(*(a.fails for a in arguments))
    texts = [a.value for a in arguments[1:]]
    joined = pl.concat_str(texts, separator=separator, ignore_nulls=True) if texts else pl.lit("")
    return LoweredExpression(joined, None, fails)


def length_of(value: pl.Expr, type_: object) -> pl.Expr:
    """Return the length of a text in characters, or of bytes, as a 64-bit integer."""
    return (value.str.len_chars() if type_ == STR else value.bin.size()).cast(pl.Int64)


def _length(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    type_ = call.arguments[0].type
    if isinstance(type_, ListType):
        return LoweredExpression(arguments[0].value.list.len().cast(pl.Int32), _LENGTHS)
    if type_ not in (STR, BYTES):
        raise NotLowered(f"length() of a {type_} has no columnar form")
    return LoweredExpression(length_of(arguments[0].value, type_).cast(pl.Int32), _LENGTHS)


def _octets(bits: int) -> Lowering:
    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        value = arguments[0].value
        count = value.str.len_bytes() if call.arguments[0].type == STR else value.bin.size()
        return LoweredExpression(count.cast(pl.Int32) * bits, _LENGTHS)

    return lowering


def _in_ascii(of: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    """Lower a function that is another one in Polars for other letters.

    Python and Polars may know different editions of Unicode; Polars reverses letters with their accents.
    """

    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        if call.type != STR:
            raise NotLowered(f"{call.function.name}() has a columnar form only of texts")
        text = arguments[0].value
        return LoweredExpression(of(text), None, text.str.len_chars() != text.str.len_bytes())

    return lowering


# -- parts -----------------------------------------------------------------------------------


def _part(value: pl.Expr, type_: object, start: pl.Expr, length: pl.Expr) -> pl.Expr:
    """Return a part from a position, counted from 1 (0 is 1), or from the end if negative. Of 64 bits."""
    begin = (
        pl.when(start > 0).then(start - 1).when(start < 0).then(length_of(value, type_) + start).otherwise(0)
    )
    first = begin.clip(0)
    return _slice(value, type_, first, (begin + length).clip(0) - first)


def _slice(value: pl.Expr, type_: object, first: pl.Expr, count: pl.Expr) -> pl.Expr:
    count = count.clip(0)
    return value.str.slice(first, count) if type_ == STR else value.bin.slice(first, count)


def _substring(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    start, count = (constant_value(a) for a in call.arguments[1:])
    value = arguments[0].value
    if isinstance(start, int) and isinstance(count, int) and start > 0 and count >= 0:
        return LoweredExpression(_slice(value, call.type, pl.lit(start - 1), pl.lit(count)))
    first, length = (a.value.cast(pl.Int64) for a in arguments[1:])
    known = pl.when(first.is_not_null() & length.is_not_null())
    return LoweredExpression(known.then(_part(value, call.type, first, length)))


def _left(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    text, count = (a.value for a in arguments)
    return LoweredExpression(pl.when(count.is_not_null()).then(_slice(text, STR, pl.lit(0), count)))


def _right(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    text, count = arguments[0].value, arguments[1].value.cast(pl.Int64)
    made = _slice(text, STR, (length_of(text, STR) - count.clip(0)).clip(0), count)
    return LoweredExpression(pl.when(count.is_not_null()).then(made))


def _overlay(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    if call.type != STR:
        raise NotLowered("overlay() has a columnar form only of texts")
    text, by = (a.value for a in arguments[:2])
    start, count = (a.value.cast(pl.Int64) for a in arguments[2:])
    count = pl.when(count < 0).then(length_of(by, STR)).otherwise(count)
    before = _part(text, STR, pl.lit(1, dtype=pl.Int64), start - 1)
    made = pl.concat_str([before, by, _part(text, STR, start + count, pl.lit(2**31 - 1, dtype=pl.Int64))])
    return LoweredExpression(pl.when(start.is_not_null() & count.is_not_null()).then(made))


def _split_part(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    text, number = arguments[0].value, arguments[2].value.cast(pl.Int64)
    delimiter = _constant_text(call, 1)
    parts = text.str.split(delimiter) if delimiter else pl.concat_list(text)
    found = parts.list.get(pl.when(number > 0).then(number - 1).otherwise(number), null_on_oob=True)
    low, high = bounds_of(arguments[2])
    value = pl.when(text.is_not_null() & number.is_not_null()).then(found.fill_null(""))
    return LoweredExpression(value, None, number == 0 if low <= 0 <= high else None)


def _substring_index(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    text, delimiter, count = arguments[0].value, _constant_text(call, 1), constant_value(call.arguments[2])
    if len(delimiter) != 1 or not isinstance(count, int):
        raise NotLowered("substring_index() has a columnar form only for one character and a constant count")
    parts = text.str.split(delimiter)
    kept = parts.list.head(count) if count > 0 else parts.list.tail(-count)
    return LoweredExpression(kept.list.join(delimiter))


# -- other texts -------------------------------------------------------------------------------


def _replace(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    text, _, by = (a.value for a in arguments)
    search = _constant_text(call, 1)
    made = text.str.replace_all(search, by, literal=True) if search else text
    return LoweredExpression(pl.when(by.is_not_null()).then(made))


def _translate(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    search, by = _constant_text(call, 1), _constant_text(call, 2)
    pairs = {one: by[at : at + 1] for at, one in reversed(list(enumerate(search)))}
    text = arguments[0].value
    return LoweredExpression(text.str.replace_many(list(pairs), list(pairs.values())) if pairs else text)


def _repeat(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    text = arguments[0].value if len(arguments) > 1 else pl.lit(" ")
    count = arguments[-1].value
    made = pl.when(count.is_not_null()).then(text).repeat_by(count.clip(0)).list.join("")
    return LoweredExpression(pl.when(text.is_not_null() & count.is_not_null()).then(made))


def _padded(*, left: bool) -> Lowering:
    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        text, filling, length = arguments[0].value, _constant_text(call, 2), constant_value(call.arguments[1])
        if len(filling) != 1 or not isinstance(length, int):
            raise NotLowered(
                f"{call.function.name}() has a columnar form only for a constant length and one character"
            )
        length = max(length, 0)
        cut = text.str.slice(0, length)
        return LoweredExpression((cut.str.pad_start if left else cut.str.pad_end)(length, filling))

    return lowering


def _chosen(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    number, *texts = arguments
    value: pl.Expr = pl.lit(None, dtype=pl.String())
    fails = either_condition(number.fails, (number.value < 1) | (number.value > len(texts)))
    for at, text in enumerate(texts, 1):
        reached = (number.value == at).fill_null(False)
        value = pl.when(reached).then(text.value).otherwise(value)
        fails = either_condition(fails, None if text.fails is None else reached & text.fails)
    if call.type != STR:
        raise NotLowered("elt() has a columnar form only of texts")
    return LoweredExpression(value, None, fails)


# -- places and patterns ---------------------------------------------------------------------------


def _place(text: pl.Expr, part: str) -> LoweredExpression:
    if not part:
        return LoweredExpression(pl.when(text.is_not_null()).then(pl.lit(1, dtype=pl.Int32())), (1, 1))
    before = text.str.splitn(part, 2).struct.field("field_0").str.len_chars().cast(pl.Int32)
    found = text.str.contains(part, literal=True)
    return LoweredExpression(
        pl.when(found).then(before + 1).when(~found).then(pl.lit(0, dtype=pl.Int32())), _LENGTHS
    )


def _instr(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    return _place(arguments[0].value, _constant_text(call, 1))


def _locate(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    if constant_value(call.arguments[2]) != 1:
        raise NotLowered("locate() has a columnar form only from the start")
    return _place(arguments[1].value, _constant_text(call, 0))


def _like(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    pattern = _constant_text(call, 1)
    escape = _constant_text(call, 2) if len(call.arguments) > 2 else "\\"
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


def _regex(inner: list[tuple[str, bool]], first: bool, last: bool) -> Iterable[str]:
    yield ".*" * first
    for character, wild in inner:
        yield {"%": ".*", "_": "."}[character] if wild else re.escape(character)
    yield ".*" * last


LOWERINGS: Mapping[str, Lowering] = {
    "upper": _in_ascii(lambda text: text.str.to_uppercase()),
    "lower": _in_ascii(lambda text: text.str.to_lowercase()),
    "trim": _of_text(lambda text: text.str.strip_chars(" ")),
    "length": _length,
    "concat": _concat,
    "contains": _of_two(lambda text, part: text.str.contains(part, literal=True)),
    "starts_with": _of_two(lambda text, part: text.str.starts_with(part)),
    "ends_with": _of_two(lambda text, part: text.str.ends_with(part)),
    "like": _like,
    "substring": _substring,
    "replace": _replace,
    "split_part": _split_part,
    "ltrim": _of_text(lambda text: text.str.strip_chars_start(" ")),
    "rtrim": _of_text(lambda text: text.str.strip_chars_end(" ")),
    "ltrim_of": _of_two(lambda text, of: text.str.strip_chars_start(of)),
    "rtrim_of": _of_two(lambda text, of: text.str.strip_chars_end(of)),
    "btrim": _of_two(lambda text, of: text.str.strip_chars(of)),
    "lpad": _padded(left=True),
    "rpad": _padded(left=False),
    "reverse": _in_ascii(lambda text: text.str.reverse()),
    "repeat": _repeat,
    "translate": _translate,
    "substring_index": _substring_index,
    "instr": _instr,
    "locate": _locate,
    "octet_length": _octets(1),
    "bit_length": _octets(8),
    "concat_ws": _concat_ws,
    "elt": _chosen,
    "left": _left,
    "right": _right,
    "overlay": _overlay,
    "space": _repeat,
}
