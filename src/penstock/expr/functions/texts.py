"""More of Spark's functions of text: lists of texts, places, sounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.errors import EvaluationError
from penstock.expr.function_bases import Emitter, GuardedSource, LazyFunction, fixed
from penstock.expr.functions.strings import substring
from penstock.expr.types import BOOL, BYTES, INT32, INT64, STR, ListType
from penstock.expr.typing_rules import NULL, Arguments, CallTerm, Function, Mismatch, Signature
from penstock.expr.widening import is_integer

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


def luhn_check(text: str) -> bool:
    """Return whether digits end with the check digit of Luhn's algorithm."""
    if not (text.isascii() and text.isdigit()):
        return False
    doubled = (int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(text)))
    return sum(digit - 9 if digit > 9 else digit for digit in doubled) % 10 == 0


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


NAMES: dict[str, Any] = {
    "x_chr": character,
    "x_concat_ws": concat_ws,
    "x_find_in_set": find_in_set,
    "x_luhn_check": luhn_check,
    "x_no_element": no_element,
    "x_overlay": overlay,
    "x_soundex": soundex,
}

FUNCTIONS: tuple[Function, ...] = (
    LazyFunction("concat_ws", _joined_rule, _joined),
    LazyFunction("elt", _chosen_rule, _chosen, fallible=True),
    fixed("left", "The first characters.", (STR, INT32), STR, "{0}[:max({1}, 0)]"),
    fixed("right", "The last characters.", (STR, INT32), STR, "({0}[-{1}:] if {1} > 0 else '')"),
    fixed(
        "overlay",
        "The text with a part replaced, from a place on; as long as the new one if the length is negative.",
        (STR, STR, INT32, INT32),
        STR,
        "x_overlay({0}, {1}, {2}, {3})",
    ),
    fixed("space", "As many blanks.", (INT32,), STR, "(' ' * {0})"),
    fixed("chr", "The character of a number, modulo 256.", (INT64,), STR, "x_chr({0})"),
    fixed(
        "find_in_set",
        "The place of the text among those that commas separate, from 1, or 0.",
        (STR, STR),
        INT32,
        "x_find_in_set({0}, {1})",
    ),
    fixed(
        "soundex", "How the text sounds in English: a letter and three digits.", (STR,), STR, "x_soundex({0})"
    ),
    fixed(
        "luhn_check",
        "Whether the digits end with the check digit of Luhn.",
        (STR,),
        BOOL,
        "x_luhn_check({0})",
    ),
)
