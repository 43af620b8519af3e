"""String functions, counted in code points. Most of them accept bytes, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Any

from headrace.errors import EvaluationError
from headrace.expr.code_emission import Emitter, GuardedSource
from headrace.expr.code_runtime import utf8
from headrace.expr.deferred_imports import F, pl
from headrace.expr.function_records import check_count, function, of_spark_columns
from headrace.expr.functions.arrays import joined_lists
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    bounds_of,
    constant_value,
    either_condition,
)
from headrace.expr.types import BOOL, BYTES, INT32, INT64, STR, DataType, ListType, MapType, parts_of
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Function,
    LiteralTerm,
    Mismatch,
    Signature,
)
from headrace.expr.widening import is_integer

if TYPE_CHECKING:
    from pyspark.sql import Column


Python = Callable[[Emitter, CallTerm, tuple[str, ...]], str]
Rule = Callable[[Arguments, tuple[object, ...]], Signature]


def _rule(what: str, result: DataType, *wanted: DataType) -> Rule:
    """Typing rule for fixed types. int32 parameters accept integers of any width."""

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        check_count(what, arguments, len(wanted))
        for argument, want in zip(arguments, wanted, strict=True):
            fits = is_integer(argument.type) if want == INT32 else argument.type == want
            if not fits and argument.type != NULL:
                raise Mismatch(f"{what} needs {want}, got {argument.type}", fix=f"cast it: .cast({want})")
        return Signature(wanted, result)

    return rule


def _text_or_bytes_rule(what: str, texts: int, *wanted: DataType) -> Rule:
    """Typing rule of a function whose first arguments are texts, or all bytes; so is the result."""

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        kind = BYTES if {a.type for a in arguments[:texts]} - {NULL} == {BYTES} else STR
        return _rule(what, kind, *[kind] * texts, *wanted)(arguments, options)

    return rule


def _length_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    if argument.type not in (STR, BYTES) and not isinstance(argument.type, ListType | MapType):
        raise Mismatch(f"length needs a str, bytes, a list or a map, got {argument.type}")
    return Signature((argument.type,), INT32)


def _reverse_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    if argument.type not in (STR, NULL) and not isinstance(argument.type, ListType):
        raise Mismatch(f"reverse needs a str or a list, got {argument.type}")
    wanted = STR if argument.type == NULL else argument.type
    return Signature((wanted,), wanted)


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


def _constants(call: CallTerm) -> list[Any]:
    return [a.value if isinstance(a, LiteralTerm) else None for a in call.arguments]


def _substring(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    text, start, length = operands
    _, at, count = _constants(call)
    if at is not None and count is not None and at > 0 and count >= 0:
        return f"{_text_up_to(at - 1 + count, text)}[{at - 1}:{at - 1 + count}]"
    return f"x_substring({text}, {start}, {length})"


def _text_up_to(end: int, text: str) -> str:
    """Return the source of a text of which the part up to `end` is used. Of a time, no more is made."""
    made = re.fullmatch(r"x_str_of_timestamp(\(\w+\))", text)
    if made is None or end > len("yyyy-MM-dd HH:mm:ss"):
        return text
    return f"x_day_of_timestamp{made[1]}" if end <= len("yyyy-MM-dd") else f"x_second_of_timestamp{made[1]}"


def substring(text: Any, start: int, length: int) -> Any:
    """Return a part of a text or bytes. Positions count from 1 (0 means 1), or from the end if negative."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(begin, 0) : max(begin + length, 0)]


def _replace(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    text, search, by = operands
    if _constants(call)[1] and not emitter.bounded:
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


def _like_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    for escape in arguments[2:]:
        constant = escape.value if isinstance(escape, LiteralTerm) else None
        if not isinstance(constant, str) or len(constant) != 1 or constant > "\uffff":
            raise Mismatch("the escape character of like is a constant of one character")
    signature = _rule("like", BOOL, STR, STR)(arguments[:2], options)
    return Signature((STR,) * len(arguments), signature.result)


def _like(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    text, pattern, *escape = operands
    _, constant, *escapes = _constants(call)
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
    _, constant, *escapes = _constants(call)
    if constant is None:
        return True
    try:
        like_matcher(constant, *escapes)
    except EvaluationError:
        return True
    return False


# -- more of Spark's ------------------------------------------------------------------------


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


def initcap(text: str) -> str:
    """Capitalize each word; words are divided by blanks."""
    # The rest of a word is in lower case as the whole of it: a sigma that ends it has a form of its own.
    return " ".join(w[:1].title() + w.lower()[len(w[:1].lower()) :] for w in text.split(" "))


def translate(text: str, search: str, by: str) -> str:
    """Replace characters by those at the same place of `by`; remove those that it is too short for."""
    table: dict[int, str] = {}
    for at, character in enumerate(search):
        table.setdefault(ord(character), by[at] if at < len(by) else "")
    return text.translate(table)


def substring_index(text: str, delimiter: str, count: int) -> str:
    """Return the text before the delimiter's occurrence `count`, or after it from the end if negative."""
    if not delimiter or not count:
        return ""
    at = -1 if count > 0 else len(text)
    for _ in range(abs(count)):
        at = text.find(delimiter, at + 1) if count > 0 else text.rfind(delimiter, 0, at + len(delimiter) - 1)
        if at < 0:
            return text
    return text[:at] if count > 0 else text[at + len(delimiter) :]


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


def overlay(text: Any, by: Any, start: int, length: int) -> Any:
    """Replace part of a text, from a position; if `length` is negative, as much as there is new text."""
    length = len(by) if length < 0 else length
    return substring(text, 1, start - 1) + by + substring(text, start + length, 2**31 - 1)


def find_in_set(text: str, texts: str) -> int:
    """Return the place of a text among others, which commas separate, from 1; 0 if it is none of them."""
    if "," in text:
        return 0
    parts = texts.split(",")
    return parts.index(text) + 1 if text in parts else 0


def character(number: int) -> str:
    return "" if number < 0 else chr(number & 0xFF)


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


# -- of several, null or not -------------------------------------------------------------------


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


def octets(value: str | bytes) -> int:
    return len(utf8(value) if isinstance(value, str) else value)


# -- on columns -------------------------------------------------------------------------------


_LENGTHS = (0, 2**31 - 1)


def _constant_text(call: CallTerm, at: int) -> str:
    """Return an argument that is a constant text."""
    value = constant_value(call.arguments[at])
    if not isinstance(value, str):
        raise NotLowered(f"{call.function.name}() has a columnar form only with a constant argument {at + 1}")
    return value


def _of_text_columns(of: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    return lambda call, arguments: LoweredExpression(of(arguments[0].value))


def _of_two_columns(of: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        text, other = (a.value for a in arguments)
        return LoweredExpression(pl.when(other.is_not_null()).then(of(text, other)))

    return lowering


def _concat_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if call.type != STR:
        raise NotLowered("concat() has a columnar form only of texts")
    return LoweredExpression(pl.concat_str([a.value for a in arguments]))


def _concat_ws_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
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


def _length_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    type_ = call.arguments[0].type
    if isinstance(type_, ListType):
        return LoweredExpression(arguments[0].value.list.len().cast(pl.Int32), _LENGTHS)
    if type_ not in (STR, BYTES):
        raise NotLowered(f"length() of a {type_} has no columnar form")
    return LoweredExpression(length_of(arguments[0].value, type_).cast(pl.Int32), _LENGTHS)


def _octets_columns(bits: int) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        value = arguments[0].value
        count = value.str.len_bytes() if call.arguments[0].type == STR else value.bin.size()
        return LoweredExpression(count.cast(pl.Int32) * bits, _LENGTHS)

    return lowering


def _in_ascii_columns(of: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    """Lower a function that is another one in Polars for other letters.

    Python and Polars may know different editions of Unicode; Polars reverses letters with their accents.
    """

    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
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
    delimiter = _constant_text(call, 1)
    parts = text.str.split(delimiter) if delimiter else pl.concat_list(text)
    found = parts.list.get(pl.when(number > 0).then(number - 1).otherwise(number), null_on_oob=True)
    low, high = bounds_of(arguments[2])
    value = pl.when(text.is_not_null() & number.is_not_null()).then(found.fill_null(""))
    return LoweredExpression(value, None, number == 0 if low <= 0 <= high else None)


def _substring_index_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    text, delimiter, count = arguments[0].value, _constant_text(call, 1), constant_value(call.arguments[2])
    if len(delimiter) != 1 or not isinstance(count, int):
        raise NotLowered("substring_index() has a columnar form only for one character and a constant count")
    parts = text.str.split(delimiter)
    kept = parts.list.head(count) if count > 0 else parts.list.tail(-count)
    return LoweredExpression(kept.list.join(delimiter))


# -- other texts -------------------------------------------------------------------------------


def _replace_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    text, _, by = (a.value for a in arguments)
    search = _constant_text(call, 1)
    made = text.str.replace_all(search, by, literal=True) if search else text
    return LoweredExpression(pl.when(by.is_not_null()).then(made))


def _translate_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    search, by = _constant_text(call, 1), _constant_text(call, 2)
    pairs = {one: by[at : at + 1] for at, one in reversed(list(enumerate(search)))}
    text = arguments[0].value
    return LoweredExpression(text.str.replace_many(list(pairs), list(pairs.values())) if pairs else text)


def _repeat_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    text = arguments[0].value if len(arguments) > 1 else pl.lit(" ")
    count = arguments[-1].value
    made = pl.when(count.is_not_null()).then(text).repeat_by(count.clip(0)).list.join("")
    return LoweredExpression(pl.when(text.is_not_null() & count.is_not_null()).then(made))


def _padded_columns(*, left: bool) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        text, filling, length = arguments[0].value, _constant_text(call, 2), constant_value(call.arguments[1])
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


# -- places and patterns ---------------------------------------------------------------------------


def _place(text: pl.Expr, part: str) -> LoweredExpression:
    if not part:
        return LoweredExpression(pl.when(text.is_not_null()).then(pl.lit(1, dtype=pl.Int32())), (1, 1))
    before = text.str.splitn(part, 2).struct.field("field_0").str.len_chars().cast(pl.Int32)
    found = text.str.contains(part, literal=True)
    return LoweredExpression(
        pl.when(found).then(before + 1).when(~found).then(pl.lit(0, dtype=pl.Int32())), _LENGTHS
    )


def _instr_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return _place(arguments[0].value, _constant_text(call, 1))


def _locate_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if constant_value(call.arguments[2]) != 1:
        raise NotLowered("locate() has a columnar form only from the start")
    return _place(arguments[1].value, _constant_text(call, 0))


def _like_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
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


# -- on Spark ---------------------------------------------------------------------------------


def _length_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return (F.size if parts_of(call.arguments[0].type) else F.length)(arguments[0])


def _like_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    # Spark takes only a bare constant as the escape character.
    escapes = (F.lit(each.value) for each in call.arguments[2:] if isinstance(each, LiteralTerm))
    return F.like(*arguments[:2], *escapes)


NAMES: dict[str, Any] = {
    "x_octets": octets,
    "x_concat_ws": concat_ws,
    "x_no_element": no_element,
    "x_joined": joined,
    "x_substring": substring,
    "x_replace": replace,
}


FUNCTIONS: tuple[Function, ...] = (
    function(
        "upper",
        "",
        (STR,),
        STR,
        "{0}.upper()",
        catalyst="Upper",
        columns=_in_ascii_columns(lambda text: text.str.to_uppercase()),
    ),
    function(
        "lower",
        "",
        (STR,),
        STR,
        "{0}.lower()",
        catalyst="Lower",
        columns=_in_ascii_columns(lambda text: text.str.to_lowercase()),
    ),
    function(
        "trim",
        "",
        (STR,),
        STR,
        "{0}.strip(' ')",
        columns=_of_text_columns(lambda text: text.str.strip_chars(" ")),
        keeps_size=True,
    ),
    function(
        "length",
        types=_length_rule,
        rows="len({0})",
        arity=(1, 1),
        catalyst=("Length", "Size"),
        columns=_length_columns,
        takes_lists=True,
        spark=_length_spark,
    ),
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
        "contains",
        "",
        (
            STR,
            STR,
        ),
        BOOL,
        "({1} in {0})",
        catalyst="Contains",
        columns=_of_two_columns(lambda text, part: text.str.contains(part, literal=True)),
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
        columns=_of_two_columns(lambda text, part: text.str.starts_with(part)),
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
        columns=_of_two_columns(lambda text, part: text.str.ends_with(part)),
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
        "ltrim",
        "The text without leading blanks.",
        (STR,),
        STR,
        "{0}.lstrip(' ')",
        example="'  a'",
        columns=_of_text_columns(lambda text: text.str.strip_chars_start(" ")),
        keeps_size=True,
    ),
    function(
        "rtrim",
        "The text without trailing blanks.",
        (STR,),
        STR,
        "{0}.rstrip(' ')",
        example="'a  '",
        columns=_of_text_columns(lambda text: text.str.strip_chars_end(" ")),
        keeps_size=True,
    ),
    function(
        "ltrim_of",
        "",
        (
            STR,
            STR,
        ),
        STR,
        "{0}.lstrip({1})",
        columns=_of_two_columns(lambda text, of: text.str.strip_chars_start(of)),
        spark=of_spark_columns(lambda a, b: F.ltrim(a, b)),
        keeps_size=True,
    ),
    function(
        "rtrim_of",
        "",
        (
            STR,
            STR,
        ),
        STR,
        "{0}.rstrip({1})",
        columns=_of_two_columns(lambda text, of: text.str.strip_chars_end(of)),
        spark=of_spark_columns(lambda a, b: F.rtrim(a, b)),
        keeps_size=True,
    ),
    function(
        "btrim",
        "The text without the given characters at both ends.",
        (STR, STR),
        STR,
        "{0}.strip({1})",
        defaults=(" ",),
        example="'--a--', '-'",
        columns=_of_two_columns(lambda text, of: text.str.strip_chars(of)),
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
        "initcap",
        "The text with each word capitalized.",
        (STR,),
        STR,
        initcap,
        example="'green tea'",
        catalyst="InitCap",
        keeps_size=True,
    ),
    function(
        "reverse",
        "The text or list reversed.",
        types=_reverse_rule,
        rows="{0}[::-1]",
        arity=(1, 1),
        shown_parameters="list or str",
        example="'abc'",
        catalyst="Reverse",
        columns=_in_ascii_columns(lambda text: text.str.reverse()),
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
        "translate",
        "The text with characters of the second text replaced by those of the third.",
        (STR, STR, STR),
        STR,
        translate,
        example="'abc', 'ab', 'xy'",
        catalyst="StringTranslate",
        columns=_translate_columns,
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
        "ascii",
        "Code point of the first character; 0 for empty text.",
        (STR,),
        INT32,
        "ord({0}[:1] or '\\0')",
        example="'A'",
        catalyst="Ascii",
    ),
    function(
        "levenshtein", "Edit distance of two texts.", (STR, STR), INT32, levenshtein, example="'tea', 'pea'"
    ),
    function(
        "octet_length",
        "Length in bytes, of text as UTF-8.",
        ((STR, BYTES),),
        INT32,
        "x_octets({0})",
        example="'é'",
        catalyst="OctetLength",
        columns=_octets_columns(1),
    ),
    function(
        "bit_length",
        "Length in bits, of text as UTF-8.",
        ((STR, BYTES),),
        INT32,
        "(8 * x_octets({0}))",
        example="'abc'",
        catalyst="BitLength",
        columns=_octets_columns(8),
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
    function(
        "chr",
        "Character with the number, modulo 256.",
        (INT64,),
        STR,
        character,
        example="65",
        catalyst="Chr",
        keeps_size=True,
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
