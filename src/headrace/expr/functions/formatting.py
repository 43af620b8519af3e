"""Functions that format values by a Java pattern."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any, cast

from headrace.errors import EvaluationError
from headrace.expr.function_records import function, is_text
from headrace.expr.text_casts import NumberFormat, format_float, number_format, number_writer, of_float32
from headrace.expr.types import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    INTEGERS,
    STR,
    DecimalType,
    IntegerType,
    with_article,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    LiteralTerm,
    Mismatch,
    Signature,
    Term,
)
from headrace.requirements import F

_DIRECTIVE = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])", re.ASCII)
_EXACT = 1e15
_WIDE = Context(prec=2_000, Emax=999_999, Emin=-999_999)
_TAKES = {
    "s": (STR, *INTEGERS, FLOAT32, FLOAT64, BOOL, NULL),
    "S": (STR, *INTEGERS, FLOAT32, FLOAT64, BOOL, NULL),
    "d": (*INTEGERS, NULL),
    "x": (*INTEGERS, NULL),
    "X": (*INTEGERS, NULL),
    "o": (*INTEGERS, NULL),
    "f": (FLOAT32, FLOAT64, NULL),
    "e": (FLOAT32, FLOAT64, NULL),
    "E": (FLOAT32, FLOAT64, NULL),
    "b": (BOOL, NULL),
}


def format_number(value: int | float | Decimal, digits: int) -> str | None:
    """Group the digits before the point by commas, and round half even; None for negative `digits`."""
    if digits < 0:
        return None
    if isinstance(value, float):
        if value != value:
            return "NaN"
        if value - value != 0.0:
            return "∞" if value > 0 else "-∞"
        # Larger ones are shown by the shortest digits that read back.
        exact = Decimal(value) if abs(value) < _EXACT else Decimal(repr(value))
    else:
        exact = Decimal(value)
    rounded = exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_EVEN, _WIDE)
    shown = f"{rounded:,f}"
    return "-0" + shown[2:] if rounded == 0 and value < 0 and not shown.startswith("-") else shown


# -- printf --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Directive:
    """One `%` of a format. argument: number of the value it shows, -1 for none."""

    argument: int
    flags: str
    width: int
    precision: int | None
    conversion: str


Format = tuple[str | Directive, ...]


@lru_cache(maxsize=256)
def parse_format(text: str) -> Format:
    """Parse a format of `java.util.Formatter`. Raises `EvaluationError` for parts without a counterpart."""
    parts: list[str | Directive] = []
    at = taken = 0
    while at < len(text):
        if text[at] != "%":
            end = text.find("%", at)
            end = len(text) if end < 0 else end
            parts.append(text[at:end])
            at = end
            continue
        found = _DIRECTIVE.match(text, at)
        if found is None:
            raise EvaluationError(f"the format {text!r} has a % without a conversion")
        number, flags, width, precision, conversion = found.groups()
        at = found.end()
        argument = -1
        if conversion not in "n%":
            argument = int(number) - 1 if number else taken
            taken += 0 if number else 1
        directive = Directive(
            argument, flags, int(width or 0), None if precision is None else int(precision), conversion
        )
        _check_directive(directive, text)
        parts.append(directive)
    return tuple(parts)


def _check_directive(directive: Directive, text: str) -> None:
    conversion, flags = directive.conversion, directive.flags
    allowed = {"d": "-+ 0,", "f": "-+ 0,", "e": "-+ 0", "E": "-+ 0", "x": "-0", "X": "-0", "o": "-0"}
    wrong = set(flags) - set(allowed.get(conversion, "-"))
    if (conversion not in _TAKES and conversion not in "n%") or wrong or "#" in flags:
        shown = f"%{flags}{conversion}"
        raise EvaluationError(f"the format {text!r} has {shown}, which has no counterpart here")
    both = ("-" in flags and "0" in flags) or ("+" in flags and " " in flags) or len(set(flags)) < len(flags)
    needs_width = ("-" in flags or "0" in flags) and not directive.width
    if both or needs_width or (directive.precision is not None and conversion in "dxXon%"):
        raise EvaluationError(f"the format {text!r} is none of Java's")


def _format_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    if not arguments:
        raise Mismatch("format_string needs a format")
    pattern, *values = arguments
    if not isinstance(pattern, LiteralTerm) or not isinstance(pattern.value, str):
        raise Mismatch(f"the format of format_string is a constant, not {with_article(pattern.type)}")
    try:
        parts = parse_format(pattern.value)
    except EvaluationError as error:
        raise Mismatch(error.what) from error
    for each in parts:
        if not isinstance(each, Directive) or each.argument < 0:
            continue
        if each.argument >= len(values):
            raise Mismatch(f"the format {pattern.value!r} shows {each.argument + 1} values, of {len(values)}")
        found = values[each.argument].type
        if found not in _TAKES[each.conversion]:
            raise Mismatch(
                f"%{each.conversion} of {with_article(found)} has no counterpart here",
                fix="cast it to a string: %s",
            )
    types = (STR, *(STR if a.type == NULL else a.type for a in values))
    return Signature(types, STR, False)


def _format(emitter: Emitter, call: CallTerm) -> GuardedSource:
    pattern, *values = call.arguments
    assert isinstance(pattern, LiteralTerm)
    assert isinstance(pattern.value, str)
    bits = tuple(
        a.type.bits if isinstance(a.type, IntegerType) else 32 if a.type == FLOAT32 else 64 for a in values
    )
    constant = emitter.constant((parse_format(pattern.value), bits))
    return GuardedSource(f"x_format_string({', '.join((constant, *map(emitter.value, values)))})")


def format_string(pattern: tuple[Format, tuple[int, ...]], *values: Any) -> str:
    """Format values, null as "null"."""
    parts, bits = pattern
    return "".join(
        part
        if isinstance(part, str)
        else "\n"
        if part.conversion == "n"
        else _shown(part, "%", 64)
        if part.argument < 0
        else _shown(part, values[part.argument], bits[part.argument])
        for part in parts
    )


def _shown(directive: Directive, value: Any, bits: int) -> str:
    text, signed = _text(directive, value, bits), False
    if isinstance(value, int | float | Decimal) and directive.conversion in "dfeE" and value == value:
        signed = True
        if not text.startswith("-"):
            text = ("+" if "+" in directive.flags else " " if " " in directive.flags else "") + text
    elif directive.precision is not None and (value is None or directive.conversion in "sSb"):
        text = text[: directive.precision]
    # Java counts UTF-16 units.
    missing = directive.width - len(text) - sum(character > "\uffff" for character in text)
    if missing <= 0:
        return text
    if "-" in directive.flags:
        return text + " " * missing
    finite = value is not None and not (isinstance(value, float) and value - value != 0.0)
    if "0" in directive.flags and finite:
        sign = text[0] if signed and text[0] in "+- " else ""
        return sign + "0" * missing + text[len(sign) :]
    return " " * missing + text


def _text(directive: Directive, value: Any, bits: int) -> str:
    conversion = directive.conversion
    if conversion == "b":
        return "true" if value else "false"
    if conversion == "S":
        return _plain(value, bits).upper()
    if value is None or conversion in "s%":
        shown = _plain(value, bits)
        return shown.upper() if conversion in "EX" else shown
    if conversion == "d":
        return f"{value:,d}" if "," in directive.flags else str(value)
    if conversion in "xXo":
        return format(value & (1 << bits) - 1, conversion)
    if isinstance(value, float) and value - value != 0.0:
        shown = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return shown.upper() if conversion == "E" else shown
    digits = 6 if directive.precision is None else directive.precision
    exact = Decimal(repr(value)) if isinstance(value, float) else value
    if conversion == "f":
        rounded = exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE)
        return f"{rounded:,f}" if "," in directive.flags else f"{rounded:f}"
    return _scientific(exact, digits, conversion)


def _scientific(exact: Decimal, digits: int, conversion: str) -> str:
    if not exact:
        exponent, mantissa = 0, exact.quantize(Decimal(1).scaleb(-digits))
    else:
        rounded = Context(prec=digits + 1, rounding=ROUND_HALF_UP).plus(exact)
        exponent = rounded.adjusted()
        mantissa = rounded.scaleb(-exponent).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE)
    sign = "-" if exponent < 0 else "+"
    return f"{mantissa:f}{conversion}{sign}{abs(exponent):02d}"


def _plain(value: Any, bits: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return of_float32(value) if bits == 32 else format_float(value)
    return str(value)


# -- formats of numbers ----------------------------------------------------------------------------


def _format_of(name: str, given: Term) -> NumberFormat:
    if not isinstance(given, LiteralTerm) or not isinstance(given.value, str):
        raise Mismatch(f"argument 2 of {name} must be a constant")
    try:
        return number_format(given.value)
    except EvaluationError as error:
        raise Mismatch(f"{name}: {error.what}", why=error.why, fix=error.fix) from error


def _of_format(name: str, meaning: str, parse: Callable[[NumberFormat], object], **how: Any) -> Function:
    """Build a function that parses numbers by a format. parse: returns the parser of a format."""

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        text, format = arguments
        if text.type not in (STR, NULL):
            raise Mismatch(f"{name} needs str, got {text.type}", fix="cast it: .cast(str)")
        return Signature((STR, STR), _format_of(name, format).type, True if how.get("nullable") else None)

    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        return f"{emitter.constant(parse(_format_of(name, call.arguments[1])))}({operands[0]})"

    return function(name, meaning, types=rule, code=python, fallible=True, arity=(2, 2), **how)


# -- masks -----------------------------------------------------------------------------------------


def _mask_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (text,) = arguments
    if text.type not in (STR, NULL):
        raise Mismatch(f"mask needs str, got {text.type}", fix="cast it: .cast(str)")
    for each in options:
        if each is not None and (not isinstance(each, str) or len(each) != 1 or each > "\uffff"):
            raise Mismatch("a replacement in mask must be one character, or None to keep the original")
    return Signature((STR,), STR)


def _is_mask(option: object) -> bool:
    return option is None or (is_text(option) and len(cast("str", option)) == 1)


def _mask(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    return f"x_mask({operands[0]}, {emitter.constant(call.options)})"


def mask(text: str, by: tuple[str | None, ...]) -> str:
    """Replace each kind of character (upper, lower, digit, other) by its mask; None leaves it unchanged."""
    upper, lower, digit, other = by
    kinds: dict[str, str | None] = {"Lu": upper, "Ll": lower, "Nd": digit}
    return "".join(kinds.get(unicodedata.category(each), other) or each for each in text)


def quote(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


NAMES: dict[str, Any] = {
    "x_format_string": format_string,
    "x_mask": mask,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "mask",
        types=_mask_rule,
        code=_mask,
        arity=(1, 1),
        options=(_is_mask,) * 4,
        spark=lambda call, arguments: F.mask(arguments[0], *map(F.lit, call.options)),
        keeps_size=True,
    ),
    function(
        "format_string",
        types=_format_rule,
        lazy=_format,
        arity=(1, None),
        catalyst="FormatString",
        keeps_size=True,
    ),
    function(
        "quote",
        "The text in single quotes, with a backslash before each of its own.",
        (STR,),
        STR,
        quote,
        example="'it\\'s'",
        catalyst="ExpressionImplUtils.quote",
    ),
    function(
        "format_number",
        "The number with thousands separators, rounded half even to some digits.",
        ((INT64, FLOAT64, DecimalType), INT32),
        STR,
        format_number,
        nullable=True,
        example="1234.5, 2",
        catalyst="FormatNumber",
        keeps_size=True,
    ),
    _of_format(
        "to_number",
        "The number in a text, by a format.",
        lambda format: format.parse,
        shown_parameters="str, format",
        example="'1,234', '9,999'",
        catalyst="ToNumber",
    ),
    _of_format(
        "try_to_number",
        "As `to_number`; null if the text doesn't fit.",
        lambda format: format.parse_or_none,
        nullable=True,
        shown_parameters="str, format",
        example="'soon', '999'",
        catalyst="TryToNumber",
    ),
    function(
        "to_char",
        "The number formatted by a format; `#` for each digit if it doesn't fit.",
        ((DecimalType, DecimalType(38, 18)), STR),
        STR,
        "{1}({0})",
        prepared={1: number_writer},
        constant=(1,),
        example="lit(Decimal('12.5')), '99.90'",
        catalyst="ToCharacter",
        keeps_size=True,
    ),
)
