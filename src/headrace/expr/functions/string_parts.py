"""Functions that extract parts of strings or combine strings.

Parts of strings and bytes are taken or replaced by position or delimiter; strings are joined, repeated,
padded and chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import mul
from typing import TYPE_CHECKING, Any

from headrace.errors import EvaluationError
from headrace.expr.function_records import function, rule_of
from headrace.expr.functions.arrays import joined_lists
from headrace.expr.functions.strings import constant_text, constant_values, length_of
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    bounds_of,
    constant_value,
    either_condition,
)
from headrace.expr.types import BYTES, INT32, INT64, STR, DataType, ListType
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    Mismatch,
    Rule,
    Signature,
    is_integer,
)
from headrace.requirements import pl

if TYPE_CHECKING:
    pass


def _text_or_bytes_rule(name: str, texts: int, *others: DataType) -> Rule:
    """Typing rule of a function whose first arguments and result are all text or all bytes."""

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        kind = BYTES if {a.type for a in arguments[:texts]} - {NULL} == {BYTES} else STR
        return rule_of(name, ((kind,) * texts + others), kind)(arguments, options)

    return rule


def _substring(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    text, start, length = operands
    _, at, count = constant_values(call)
    if at is not None and count is not None and at > 0 and count >= 0:
        return f"{_text_up_to(at - 1 + count, text)}[{at - 1}:{at - 1 + count}]"
    return f"x_substring({text}, {start}, {length})"


def _text_up_to(end: int, text: str) -> str:
    """Return the source of a text that is used only up to `end`. A time is formatted no further."""
    made = re.fullmatch(r"x_str_of_timestamp(\(\w+\))", text)
    if made is None or end > len("yyyy-MM-dd HH:mm:ss"):
        return text
    return f"x_day_of_timestamp{made[1]}" if end <= len("yyyy-MM-dd") else f"x_second_of_timestamp{made[1]}"


def substring(text: Any, start: int, length: int) -> Any:
    """Return a substring of text or bytes. Positions start at 1 (0 means 1); negative ones count back."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(begin, 0) : max(begin + length, 0)]


def _replace(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    text, search, by = operands
    if constant_values(call)[1] and not emitter.bounded:
        return f"{text}.replace({search}, {by})"
    return f"x_replace({text}, {search}, {by})"


def replace(text: str, search: str, by: str) -> str:
    return text.replace(search, by) if search else text


def split_part(text: str, delimiter: str, number: int) -> str:
    """Return part `number`, counted from 1, or from the end if negative. Raises for 0."""
    if number == 0:
        raise EvaluationError("split_part counts from 1, or from -1 backwards: there is no part 0")
    parts = text.split(delimiter) if delimiter else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def substring_index(text: str, delimiter: str, count: int) -> str:
    """Return the text before occurrence `count` of a delimiter; if negative, after it from the end."""
    if not delimiter or not count:
        return ""
    at = -1 if count > 0 else len(text)
    for _ in range(abs(count)):
        at = text.find(delimiter, at + 1) if count > 0 else text.rfind(delimiter, 0, at + len(delimiter) - 1)
        if at < 0:
            return text
    return text[:at] if count > 0 else text[at + len(delimiter) :]


def overlay(text: Any, by: Any, start: int, length: int) -> Any:
    """Replace part of a text from a position. A negative `length` means the length of the new text."""
    length = len(by) if length < 0 else length
    return substring(text, 1, start - 1) + by + substring(text, start + length, 2**31 - 1)


# -- on columns -------------------------------------------------------------------------------


def _part(value: pl.Expr, type_: object, start: pl.Expr, length: pl.Expr) -> pl.Expr:
    """Return a part from a 64-bit position, counted from 1 (0 means 1), or from the end if negative."""
    begin = (
        pl.when(start > 0).then(start - 1).when(start < 0).then(length_of(value, type_) + start).otherwise(0)
    )
    first = begin.clip(0)
    return _slice(value, type_, first, (begin + length).clip(0) - first)


def _slice(value: pl.Expr, type_: object, first: pl.Expr, count: pl.Expr) -> pl.Expr:
    count = count.clip(0)
    return value.str.slice(first, count) if type_ == STR else value.bin.slice(first, count)


def _substring_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    start, count = (constant_value(a) for a in call.arguments[1:])
    value = arguments[0].value
    if isinstance(start, int) and isinstance(count, int) and start > 0 and count >= 0:
        return LoweredExpression(_slice(value, call.type, pl.lit(start - 1), pl.lit(count)))
    first, length = (a.value.cast(pl.Int64) for a in arguments[1:])
    known = pl.when(first.is_not_null() & length.is_not_null())
    return LoweredExpression(known.then(_part(value, call.type, first, length)))


def _left_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    text, count = (a.value for a in arguments)
    return LoweredExpression(pl.when(count.is_not_null()).then(_slice(text, STR, pl.lit(0), count)))


def _right_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    text, count = arguments[0].value, arguments[1].value.cast(pl.Int64)
    made = _slice(text, STR, (length_of(text, STR) - count.clip(0)).clip(0), count)
    return LoweredExpression(pl.when(count.is_not_null()).then(made))


def _overlay_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if call.type != STR:
        raise NotLowered("overlay() has a columnar form only of texts")
    text, by = (a.value for a in arguments[:2])
    start, count = (a.value.cast(pl.Int64) for a in arguments[2:])
    count = pl.when(count < 0).then(length_of(by, STR)).otherwise(count)
    before = _part(text, STR, pl.lit(1, dtype=pl.Int64), start - 1)
    made = pl.concat_str([before, by, _part(text, STR, start + count, pl.lit(2**31 - 1, dtype=pl.Int64))])
    return LoweredExpression(pl.when(start.is_not_null() & count.is_not_null()).then(made))


def _split_part_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    text, number = arguments[0].value, arguments[2].value.cast(pl.Int64)
    delimiter = constant_text(call, 1)
    parts = text.str.split(delimiter) if delimiter else pl.concat_list(text)
    found = parts.list.get(pl.when(number > 0).then(number - 1).otherwise(number), null_on_oob=True)
    low, high = bounds_of(arguments[2])
    value = pl.when(text.is_not_null() & number.is_not_null()).then(found.fill_null(""))
    return LoweredExpression(value, None, number == 0 if low <= 0 <= high else None)


def _substring_index_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    text, delimiter, count = arguments[0].value, constant_text(call, 1), constant_value(call.arguments[2])
    if len(delimiter) != 1 or not isinstance(count, int):
        raise NotLowered("substring_index() has a columnar form only for one character and a constant count")
    parts = text.str.split(delimiter)
    kept = parts.list.head(count) if count > 0 else parts.list.tail(-count)
    return LoweredExpression(kept.list.join(delimiter))


def _replace_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    text, _, by = (a.value for a in arguments)
    search = constant_text(call, 1)
    made = text.str.replace_all(search, by, literal=True) if search else text
    return LoweredExpression(pl.when(by.is_not_null()).then(made))


FUNCTIONS: tuple[Function, ...] = (
    function(
        "substring",
        types=_text_or_bytes_rule("substring", 1, INT32, INT32),
        code=_substring,
        arity=(3, 3),
        catalyst="Substring",
        columns=_substring_columns,
        keeps_size=True,
    ),
    function(
        "replace",
        "",
        (
            STR,
            STR,
            STR,
        ),
        STR,
        code=_replace,
        catalyst="StringReplace",
        columns=_replace_columns,
        keeps_size=True,
    ),
    function(
        "split_part",
        "",
        (
            STR,
            STR,
            INT32,
        ),
        STR,
        split_part,
        fallible=True,
        columns=_split_part_columns,
        keeps_size=True,
    ),
    function(
        "substring_index",
        "The text before the n-th delimiter, or after it if counted from the end.",
        (STR, STR, INT32),
        STR,
        substring_index,
        example="'a.b.c', '.', 2",
        catalyst="SubstringIndex",
        columns=_substring_index_columns,
        keeps_size=True,
    ),
    function(
        "left",
        "The first characters.",
        (STR, INT32),
        STR,
        "{0}[:max({1}, 0)]",
        example="'green', 2",
        columns=_left_columns,
        keeps_size=True,
    ),
    function(
        "right",
        "The last characters.",
        (STR, INT32),
        STR,
        "({0}[-{1}:] if {1} > 0 else '')",
        example="'green', 2",
        columns=_right_columns,
        keeps_size=True,
    ),
    function(
        "overlay",
        "The text or bytes with a part replaced, by position and length; -1: that of the new part.",
        ((STR, BYTES), (STR, BYTES), INT32, INT32),
        None,
        overlay,
        types=_text_or_bytes_rule("overlay", 2, INT32, INT32),
        defaults=(-1,),
        example="'green tea', 'black', 1, 5",
        catalyst="Overlay",
        columns=_overlay_columns,
    ),
)

if TYPE_CHECKING:
    pass


def _repeat(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    *given, count = operands
    text = given[0] if given else "' '"
    return f"x_repeat({text}, {count})" if emitter.bounded else f"({text} * {count})"


def _concat_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    if any(isinstance(a.type, ListType) for a in arguments):
        return joined_lists("concat", arguments)
    types = {a.type for a in arguments} - {NULL}
    if not arguments or len(types) > 1 or not types <= {STR, BYTES}:
        got = ", ".join(str(a.type) for a in arguments)
        raise Mismatch(f"concat needs str, got {got or 'nothing'}", fix="cast them: .cast(str)")
    wanted = next(iter(types), STR)
    return Signature((wanted,) * len(arguments), wanted)


def _concat(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    return f"x_joined({', '.join(operands)})" if emitter.bounded else f"({' + '.join(operands)})"


def joined(first: Any, *others: Any) -> Any:
    for each in others:
        first += each
    return first


def pad(text: str, length: int, padding: str, *, left: bool) -> str:
    """Cut or pad a text to `length` characters. An empty `padding` adds nothing."""
    missing = length - len(text)
    if missing <= 0:
        return text[: max(length, 0)]
    filling = (padding * (missing // len(padding) + 1))[:missing] if padding else ""
    return filling + text if left else text + filling


def lpad(text: str, length: int, padding: str) -> str:
    return pad(text, length, padding, left=True)


def rpad(text: str, length: int, padding: str) -> str:
    return pad(text, length, padding, left=False)


def _joined_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    if not arguments:
        raise Mismatch("concat_ws needs a separator")
    for each in arguments:
        of_texts = isinstance(each.type, ListType) and each.type.element == STR
        if each.type not in (STR, NULL) and (not of_texts or each is arguments[0]):
            raise Mismatch(
                f"concat_ws needs texts and lists of texts, got {each.type}", fix="cast it: .cast(str)"
            )
    types = tuple(STR if a.type == NULL else a.type for a in arguments)
    return Signature(types, STR, arguments[0].nullable)


def _joined(emitter: Emitter, call: CallTerm) -> GuardedSource:
    return GuardedSource(f"x_concat_ws({', '.join(emitter.value(a) for a in call.arguments)})")


def concat_ws(separator: str | None, *values: str | Iterable[str | None] | None) -> str | None:
    """Join non-null texts, including texts in lists. None if the separator is null."""
    if separator is None:
        return None
    parts: list[str] = []
    for value in values:
        if isinstance(value, str):
            parts.append(value)
        elif value is not None:
            parts += (each for each in value if each is not None)
    return separator.join(parts)


def _chosen_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    if len(arguments) < 2:
        raise Mismatch("elt needs a number and at least one text")
    number, *texts = arguments
    if not is_integer(number.type) and number.type != NULL:
        raise Mismatch(f"elt needs an integer, got {number.type}")
    types = {a.type for a in texts} - {NULL}
    if len(types) > 1 or not types <= {STR, BYTES}:
        raise Mismatch(
            f"elt needs texts, got {', '.join(str(a.type) for a in texts)}", fix="cast them: .cast(str)"
        )
    wanted = next(iter(types), STR)
    return Signature((INT64, *(wanted for _ in texts)), wanted, True)


def _chosen(emitter: Emitter, call: CallTerm) -> GuardedSource:
    number, *texts = call.arguments
    first, again = emitter.name_value(emitter.value(number))
    source = f"x_no_element({again}, {len(texts)})"
    for at in range(len(texts), 0, -1):
        source = f"{emitter.value(texts[at - 1])} if {again} == {at} else {source}"
    if not number.nullable:
        return GuardedSource(f"[{first}, {source}][1]")
    return GuardedSource(f"(None if {first} is None else {source})")


def no_element(number: int, count: int) -> Any:
    raise EvaluationError(f"there are {count} texts, and no number {number}")


# -- on columns -------------------------------------------------------------------------------


def _concat_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if call.type != STR:
        raise NotLowered("concat() has a columnar form only of texts")
    return LoweredExpression(pl.concat_str([a.value for a in arguments]))


def _concat_ws_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    separator = constant_text(call, 0)
    if any(term.type != STR for term in call.arguments):
        raise NotLowered("concat_ws() of lists has no columnar form")
    fails = either_condition(*(a.fails for a in arguments))
    texts = [a.value for a in arguments[1:]]
    joined = pl.concat_str(texts, separator=separator, ignore_nulls=True) if texts else pl.lit("")
    return LoweredExpression(joined, None, fails)


def _repeat_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    text = arguments[0].value if len(arguments) > 1 else pl.lit(" ")
    count = arguments[-1].value
    made = pl.when(count.is_not_null()).then(text).repeat_by(count.clip(0)).list.join("")
    return LoweredExpression(pl.when(text.is_not_null() & count.is_not_null()).then(made))


def _padded_columns(*, left: bool) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        text, filling, length = arguments[0].value, constant_text(call, 2), constant_value(call.arguments[1])
        if len(filling) != 1 or not isinstance(length, int):
            raise NotLowered(
                f"{call.function.name}() has a columnar form only for a constant length and one character"
            )
        length = max(length, 0)
        cut = text.str.slice(0, length)
        return LoweredExpression((cut.str.pad_start if left else cut.str.pad_end)(length, filling))

    return lowering


def _chosen_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
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


NAMES: dict[str, Any] = {
    "x_substring": substring,
    "x_replace": replace,
    "x_concat_ws": concat_ws,
    "x_no_element": no_element,
    "x_joined": joined,
}

BUILDING_FUNCTIONS: tuple[Function, ...] = (
    function(
        "concat",
        types=_concat_rule,
        code=_concat,
        arity=(1, None),
        catalyst="Concat",
        columns=_concat_columns,
        keeps_size=True,
    ),
    function(
        "lpad",
        "The text padded at the start to a length.",
        (STR, INT32, STR),
        STR,
        lpad,
        defaults=(" ",),
        example="'7', 3, '0'",
        catalyst="StringLPad",
        columns=_padded_columns(left=True),
        keeps_size=True,
    ),
    function(
        "rpad",
        "The text padded at the end to a length.",
        (STR, INT32, STR),
        STR,
        rpad,
        defaults=(" ",),
        example="'7', 3, '.'",
        catalyst="StringRPad",
        columns=_padded_columns(left=False),
        keeps_size=True,
    ),
    function(
        "repeat",
        "The text repeated.",
        (STR, INT32),
        STR,
        code=_repeat,
        names={"x_repeat": mul},
        example="'ab', 2",
        catalyst="StringRepeat",
        columns=_repeat_columns,
        keeps_size=True,
    ),
    function(
        "concat_ws",
        types=_joined_rule,
        lazy=_joined,
        arity=(1, None),
        catalyst="ConcatWs",
        columns=_concat_ws_columns,
        keeps_size=True,
    ),
    function(
        "elt",
        types=_chosen_rule,
        lazy=_chosen,
        fallible=True,
        arity=(2, None),
        catalyst="Elt",
        columns=_chosen_columns,
        keeps_size=True,
    ),
    function(
        "space",
        "That many blanks.",
        (INT32,),
        STR,
        code=_repeat,
        example="2",
        catalyst="StringSpace",
        columns=_repeat_columns,
        keeps_size=True,
    ),
)
