"""Strings made of others: joined, repeated, padded, chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import mul
from typing import TYPE_CHECKING, Any

from headrace.errors import EvaluationError
from headrace.expr.code_emission import Emitter, GuardedSource
from headrace.expr.deferred_imports import pl
from headrace.expr.function_records import function
from headrace.expr.functions.arrays import joined_lists
from headrace.expr.functions.strings import constant_text
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    constant_value,
    either_condition,
)
from headrace.expr.types import BYTES, INT32, INT64, STR, ListType
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Function,
    Mismatch,
    Signature,
    is_integer,
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
    """Return a text of `length` characters: cut, or filled up by `padding`, if that is not empty."""
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
    """Join texts, and those in lists, that are not null. None without a separator."""
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
    "x_concat_ws": concat_ws,
    "x_no_element": no_element,
    "x_joined": joined,
}

FUNCTIONS: tuple[Function, ...] = (
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
