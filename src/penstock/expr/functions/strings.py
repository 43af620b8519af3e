"""String functions, counted in code points. Most of them accept bytes, too."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zlib import crc32

from penstock.errors import EvaluationError
from penstock.expr.function_bases import Emitter, StrictFunction, fixed
from penstock.expr.types import BOOL, BYTES, INT32, INT64, STR, DataType, ListType
from penstock.expr.typing_rules import NULL, Arguments, CallTerm, Function, LiteralTerm, Mismatch, Signature
from penstock.expr.widening import is_integer

Python = Callable[[Emitter, CallTerm, tuple[str, ...]], str]
Rule = Callable[[Arguments, tuple[object, ...]], Signature]


def _rule(what: str, result: DataType, *wanted: DataType) -> Rule:
    """Typing rule for fixed types. int32 parameters accept integers of any width."""

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        for argument, want in zip(arguments, wanted, strict=True):
            fits = is_integer(argument.type) if want == INT32 else argument.type == want
            if not fits and argument.type != NULL:
                raise Mismatch(f"{what} needs {want}, got {argument.type}", fix=f"cast it: .cast({want})")
        return Signature(wanted, result)

    return rule


def _template(source: str) -> Python:
    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        return source.format(*operands)

    return python


def _length_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    if argument.type not in (STR, BYTES) and not isinstance(argument.type, ListType):
        raise Mismatch(f"length needs a str, bytes or a list, got {argument.type}")
    return Signature((argument.type,), INT32)


def _concat_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    types = {a.type for a in arguments} - {NULL}
    if not arguments or len(types) > 1 or not types <= {STR, BYTES}:
        got = ", ".join(str(a.type) for a in arguments)
        raise Mismatch(f"concat needs str, got {got or 'nothing'}", fix="cast them: .cast(str)")
    wanted = next(iter(types), STR)
    return Signature((wanted,) * len(arguments), wanted)


def _concat(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    return f"({' + '.join(operands)})"


def _constants(call: CallTerm) -> list[Any]:
    return [a.value if isinstance(a, LiteralTerm) else None for a in call.arguments]


def _substring(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    text, start, length = operands
    _, at, count = _constants(call)
    if at is not None and count is not None and at > 0 and count >= 0:
        return f"{text}[{at - 1}:{at - 1 + count}]"
    return f"x_substring({text}, {start}, {length})"


def substring(text: str, start: int, length: int) -> str:
    """Return a substring as in Spark: positions count from 1 (0 means 1), or from the end if negative."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(begin, 0) : max(begin + length, 0)]


def _replace(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    text, search, by = operands
    if _constants(call)[1]:
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


def _like(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    text, pattern = operands
    constant = _constants(call)[1]
    if constant is not None:
        try:
            return f"({emitter.constant(like_matcher(constant))}({text}) is not None)"
        except EvaluationError:
            pass  # the row that is compared with it tells
    return f"(x_like_matcher({pattern})({text}) is not None)"


@lru_cache(maxsize=256)
def like_matcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Return a function that matches whole texts with a pattern of `LIKE`: % any text, _ any character.

    A backslash takes away the meaning of these and of itself. Raises `EvaluationError` before another one.
    """
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ("%", "_", "\\"):
                raise EvaluationError(f"the pattern {pattern!r} has a backslash that escapes nothing")
            parts.append(re.escape(escaped))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return re.compile("".join(parts), re.DOTALL).fullmatch


def _like_may_fail(call: CallTerm) -> bool:
    constant = _constants(call)[1]
    if constant is None:
        return True
    try:
        like_matcher(constant)
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
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


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


NAMES: dict[str, Any] = {
    "x_crc32": crc32,
    "x_initcap": initcap,
    "x_levenshtein": levenshtein,
    "x_locate": locate,
    "x_lpad": lpad,
    "x_md5": hashlib.md5,
    "x_rpad": rpad,
    "x_sha1": hashlib.sha1,
    "x_substring_index": substring_index,
    "x_translate": translate,
    "x_like_matcher": like_matcher,
    "x_substring": substring,
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
    StrictFunction("like", _rule("like", BOOL, STR, STR), _like, fallible=_like_may_fail),
    StrictFunction("substring", _rule("substring", STR, STR, INT32, INT32), _substring),
    StrictFunction("replace", _rule("replace", STR, STR, STR, STR), _replace),
    StrictFunction(
        "split_part",
        _rule("split_part", STR, STR, STR, INT32),
        _template("x_split_part({0}, {1}, {2})"),
        fallible=True,
    ),
    fixed("ltrim", "The text without blanks at its start.", (STR,), STR, "{0}.lstrip(' ')"),
    fixed("rtrim", "The text without blanks at its end.", (STR,), STR, "{0}.rstrip(' ')"),
    fixed("btrim", "The text without the given characters at both ends.", (STR, STR), STR, "{0}.strip({1})"),
    fixed(
        "lpad",
        "The text, filled up at its start to a length.",
        (STR, INT32, STR),
        STR,
        "x_lpad({0}, {1}, {2})",
    ),
    fixed(
        "rpad", "The text, filled up at its end to a length.", (STR, INT32, STR), STR, "x_rpad({0}, {1}, {2})"
    ),
    fixed("initcap", "The text with each word capitalized.", (STR,), STR, "x_initcap({0})"),
    fixed("reverse", "The text backwards.", (STR,), STR, "{0}[::-1]"),
    fixed("repeat", "The text several times.", (STR, INT32), STR, "({0} * {1})"),
    fixed(
        "translate",
        "The text with characters of the second replaced by those at the same place of the third.",
        (STR, STR, STR),
        STR,
        "x_translate({0}, {1}, {2})",
    ),
    fixed(
        "substring_index",
        "The text before an occurrence of a delimiter, or after it if counted from the end.",
        (STR, STR, INT32),
        STR,
        "x_substring_index({0}, {1}, {2})",
    ),
    fixed("instr", "Where the text holds another, from 1, or 0.", (STR, STR), INT32, "({0}.find({1}) + 1)"),
    fixed(
        "locate",
        "Where the second text holds the first, from 1, searching from a place on, or 0.",
        (STR, STR, INT32),
        INT32,
        "x_locate({0}, {1}, {2})",
    ),
    fixed(
        "ascii", "The number of the first character; 0 without one.", (STR,), INT32, "ord({0}[:1] or '\\0')"
    ),
    fixed("levenshtein", "Edits between two texts.", (STR, STR), INT32, "x_levenshtein({0}, {1})"),
    fixed("md5", "The MD5 digest, in hexadecimal.", (BYTES,), STR, "x_md5({0}).hexdigest()"),
    fixed("sha1", "The SHA-1 digest, in hexadecimal.", (BYTES,), STR, "x_sha1({0}).hexdigest()"),
    fixed("crc32", "The cyclic redundancy check value.", (BYTES,), INT64, "x_crc32({0})"),
    fixed("octet_length", "Bytes of the text as UTF-8.", (STR,), INT32, "len({0}.encode())"),
    fixed("bit_length", "Bits of the text as UTF-8.", (STR,), INT32, "(8 * len({0}.encode()))"),
)
