"""String functions, counted in code points. Most of them accept bytes, too."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from operator import mul
from typing import Any

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import utf8
from headrace.expr.function_bases import (
    Emitter,
    GuardedSource,
    LazyFunction,
    StrictFunction,
    check_count,
    fixed,
)
from headrace.expr.functions.arrays import joined_lists
from headrace.expr.types import BOOL, BYTES, INT32, INT64, STR, DataType, ListType, MapType
from headrace.expr.typing_rules import NULL, Arguments, CallTerm, Function, LiteralTerm, Mismatch, Signature
from headrace.expr.widening import is_integer

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


def _template(source: str) -> Python:
    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        return source.format(*operands)

    return python


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


NAMES: dict[str, Any] = {
    "x_octets": octets,
    "x_chr": character,
    "x_concat_ws": concat_ws,
    "x_find_in_set": find_in_set,
    "x_no_element": no_element,
    "x_overlay": overlay,
    "x_soundex": soundex,
    "x_initcap": initcap,
    "x_joined": joined,
    "x_levenshtein": levenshtein,
    "x_locate": locate,
    "x_lpad": lpad,
    "x_rpad": rpad,
    "x_substring_index": substring_index,
    "x_translate": translate,
    "x_substring": substring,
    "x_repeat": mul,
    "x_replace": replace,
    "x_split_part": split_part,
}


FUNCTIONS: tuple[Function, ...] = (
    StrictFunction("upper", _rule("upper", STR, STR), _template("{0}.upper()")),
    StrictFunction("lower", _rule("lower", STR, STR), _template("{0}.lower()")),
    StrictFunction("trim", _rule("trim", STR, STR), _template("{0}.strip(' ')")),
    StrictFunction("length", _length_rule, _template("len({0})")),
    StrictFunction("concat", _concat_rule, _concat),
    StrictFunction("contains", _rule("contains", BOOL, STR, STR), _template("({1} in {0})")),
    StrictFunction("starts_with", _rule("starts_with", BOOL, STR, STR), _template("{0}.startswith({1})")),
    StrictFunction("ends_with", _rule("ends_with", BOOL, STR, STR), _template("{0}.endswith({1})")),
    StrictFunction("like", _like_rule, _like, fallible=_like_may_fail),
    StrictFunction("substring", _text_or_bytes_rule("substring", 1, INT32, INT32), _substring),
    StrictFunction("replace", _rule("replace", STR, STR, STR, STR), _replace),
    StrictFunction(
        "split_part",
        _rule("split_part", STR, STR, STR, INT32),
        _template("x_split_part({0}, {1}, {2})"),
        fallible=True,
    ),
    fixed("ltrim", "The text without leading blanks.", (STR,), STR, "{0}.lstrip(' ')"),
    fixed("rtrim", "The text without trailing blanks.", (STR,), STR, "{0}.rstrip(' ')"),
    StrictFunction("ltrim_of", _rule("ltrim_of", STR, STR, STR), _template("{0}.lstrip({1})")),
    StrictFunction("rtrim_of", _rule("rtrim_of", STR, STR, STR), _template("{0}.rstrip({1})")),
    fixed("btrim", "The text without the given characters at both ends.", (STR, STR), STR, "{0}.strip({1})"),
    fixed(
        "lpad",
        "The text padded at the start to a length.",
        (STR, INT32, STR),
        STR,
        "x_lpad({0}, {1}, {2})",
    ),
    fixed("rpad", "The text padded at the end to a length.", (STR, INT32, STR), STR, "x_rpad({0}, {1}, {2})"),
    fixed("initcap", "The text with each word capitalized.", (STR,), STR, "x_initcap({0})"),
    StrictFunction(
        "reverse",
        _reverse_rule,
        _template("{0}[::-1]"),
        arity=(1, 1),
        meaning="The text or list reversed.",
    ),
    dataclasses.replace(fixed("repeat", "The text repeated.", (STR, INT32), STR, ""), python=_repeat),
    fixed(
        "translate",
        "The text with characters of the second text replaced by those of the third.",
        (STR, STR, STR),
        STR,
        "x_translate({0}, {1}, {2})",
    ),
    fixed(
        "substring_index",
        "The text before the n-th delimiter, or after it if counted from the end.",
        (STR, STR, INT32),
        STR,
        "x_substring_index({0}, {1}, {2})",
    ),
    fixed(
        "instr",
        "Position of the second text in the first, from 1; 0 if it isn't there.",
        (STR, STR),
        INT32,
        "({0}.find({1}) + 1)",
    ),
    fixed(
        "locate",
        "Position of the first text in the second, searched from a position on; 0 if it isn't there.",
        (STR, STR, INT32),
        INT32,
        "x_locate({0}, {1}, {2})",
    ),
    fixed(
        "ascii",
        "Code point of the first character; 0 for empty text.",
        (STR,),
        INT32,
        "ord({0}[:1] or '\\0')",
    ),
    fixed("levenshtein", "Edit distance of two texts.", (STR, STR), INT32, "x_levenshtein({0}, {1})"),
    fixed("octet_length", "Length in bytes, of text as UTF-8.", ((STR, BYTES),), INT32, "x_octets({0})"),
    fixed("bit_length", "Length in bits, of text as UTF-8.", ((STR, BYTES),), INT32, "(8 * x_octets({0}))"),
    LazyFunction("concat_ws", _joined_rule, _joined),
    LazyFunction("elt", _chosen_rule, _chosen, fallible=True),
    fixed("left", "The first characters.", (STR, INT32), STR, "{0}[:max({1}, 0)]"),
    fixed("right", "The last characters.", (STR, INT32), STR, "({0}[-{1}:] if {1} > 0 else '')"),
    dataclasses.replace(
        fixed(
            "overlay",
            "The text or bytes with a part replaced, by position and length; -1: that of the new part.",
            ((STR, BYTES), (STR, BYTES), INT32, INT32),
            None,
            "x_overlay({0}, {1}, {2}, {3})",
        ),
        rule=_text_or_bytes_rule("overlay", 2, INT32, INT32),
    ),
    dataclasses.replace(fixed("space", "That many blanks.", (INT32,), STR, ""), python=_repeat),
    fixed("chr", "Character with the number, modulo 256.", (INT64,), STR, "x_chr({0})"),
    fixed(
        "find_in_set",
        "Position of the text in a comma-separated list, from 1; 0 if it isn't there.",
        (STR, STR),
        INT32,
        "x_find_in_set({0}, {1})",
    ),
    fixed("soundex", "Soundex code: a letter and three digits.", (STR,), STR, "x_soundex({0})"),
)
