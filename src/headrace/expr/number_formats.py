"""Formats of numbers as in `to_number` and `to_char`: `S$9,999.99`.

A format has digits, in groups between thousands separators, perhaps a decimal point, and at its ends a sign
or a currency. A run of digits that begins with 0 stands for exactly so many digits; one that begins with 9,
for at most so many.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import raise_overflow
from headrace.expr.types import DecimalType
from headrace.expr.typing_rules import MAX_PRECISION

_FORMAT = re.compile(
    r"(MI|S)?(\$)?((?:[09]+(?:[,G][09]+)*)?)(?:([.D])([09]*))?(PR|MI|S)?", re.ASCII | re.IGNORECASE
)
_EXACT = Context(prec=MAX_PRECISION)
JAVA_SPACES = r"[^\S\x85\xa0\u2007\u202f]"
"""Pattern of white space as Java has it: without spaces that forbid a line break."""
_SPACE = re.compile(JAVA_SPACES)


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Format of numbers.

    first, last: signs before and behind: S, MI, PR, or none. groups: the runs of digits before the point,
    from left to right. places: digits behind the point; None without a point.
    """

    text: str
    first: str
    currency: bool
    groups: tuple[str, ...]
    places: int | None
    last: str

    @property
    def type(self) -> DecimalType:
        """The type of the numbers that it reads."""
        places = self.places or 0
        return DecimalType(sum(map(len, self.groups)) + places, places)

    def parse(self, text: str) -> Decimal:
        """Return the number in a text. Raises `EvaluationError` if the text does not follow the format."""
        number = self.parse_or_none(text)
        if number is None:
            raise EvaluationError(f"{text[:60]!r} does not follow the number format {self.text!r}")
        return number

    def parse_or_none(self, text: str) -> Decimal | None:
        """Return the number in a text, or None if the text does not follow the format.

        Raises `EvaluationError` for a digit before the point that the format has no place for, as Spark does.
        """
        return _Reading(self, text).number()

    def format(self, value: Decimal) -> str:
        """Return a number as text, with # for its digits if it has more than the format."""
        return _Writing(self, value).text()


@lru_cache(maxsize=256)
def number_format(text: str) -> NumberFormat:
    """Parse a format. Raises `EvaluationError` if it is none."""
    found = _FORMAT.fullmatch(text)
    signs = [sign.upper() for sign in (found[1], found[6]) if sign] if found else []
    if found is None or not (found[3] or found[5]) or len(signs) > len(set(signs)):
        raise EvaluationError(
            f"{text!r} is no number format",
            fix="a sign (S or MI), $, digits (0 or 9) with commas, a point, digits, and a sign (S, MI or PR)",
        )
    groups = tuple(re.split("[,Gg]", found[3])) if found[3] else ()
    if sum(map(len, groups)) + len(found[5] or "") > MAX_PRECISION:
        raise EvaluationError(f"the number format {text!r} has more than {MAX_PRECISION} digits")
    places = None if found[4] is None else len(found[5])
    first, last = (found[1] or "").upper(), (found[6] or "").upper()
    return NumberFormat(text, first, found[2] is not None, groups, places, last)


def number_writer(text: str) -> Callable[[Decimal], str]:
    """Return the function that writes numbers by a format. Raises `EvaluationError` if it is none."""
    return number_format(text).format


class _Reading:
    """Reads a text from left to right."""

    def __init__(self, format: NumberFormat, text: str) -> None:
        self._format = format
        self._text = text
        self._at = 0
        self._negative = False

    def number(self) -> Decimal | None:
        """Return the number; None if the text does not follow the format."""
        format = self._format
        opened = format.last == "PR" and self._skip("<")
        self._sign(format.first)
        if format.currency and not self._skip("$"):
            return None
        whole = self._digits(format.groups) if format.groups else ""
        places: str | None = ""
        runs = ("9" * format.places,) if format.places else ()
        if format.places is not None and self._skip("."):
            places = self._digits(runs) if runs else ""
        elif not format.groups:
            whole = self._digits(runs)
        if whole is None or places is None:
            return None
        if format.last == "PR":
            closed = self._skip(">")
            if opened != closed:
                return None
            self._negative ^= closed
        else:
            self._sign(format.last)
        if self._at < len(self._text) or not whole + places:
            return None
        if not format.groups and whole.strip("0"):
            raise_overflow(whole, str(format.type))
        scale = format.places or 0
        number = Decimal(f"{whole or '0'}.{places:0<{scale}}") if scale else Decimal(whole)
        return _EXACT.minus(number) if self._negative else number

    def _skip(self, character: str) -> bool:
        there = self._text.startswith(character, self._at)
        self._at += there
        return there

    def _sign(self, sign: str) -> None:
        if sign == "S" and self._skip("+"):
            return
        if sign and self._skip("-"):
            self._negative = not self._negative

    def _digits(self, runs: tuple[str, ...]) -> str | None:
        """Return the next digits; None if their groups are not those of the format."""
        groups = [""]
        while self._at < len(self._text):
            character = self._text[self._at]
            if character.isdecimal():
                groups[-1] += str(int(character))
            elif character == ",":
                groups.append("")
            elif not _SPACE.fullmatch(character):
                break
            self._at += 1
        if len(groups) > len(runs):
            return None
        # Compared from the right.
        missing = len(runs) - len(groups)
        for run, group in zip(runs, [*[""] * missing, *groups], strict=True):
            if len(group) > len(run) or (run[0] == "0" and len(group) < len(run)):
                return None
        return "".join(groups)


class _Writing:
    """Writes a number from left to right."""

    def __init__(self, format: NumberFormat, value: Decimal) -> None:
        self._format = format
        self._negative = value < 0
        whole, _, places = f"{value.copy_abs():f}".partition(".")
        self._whole, self._places = whole.lstrip("0"), places.rstrip("0")
        self._written = ""

    def text(self) -> str:
        format = self._format
        count, scale = sum(map(len, format.groups)), format.places or 0
        fits = len(self._whole) <= count and len(self._places) <= scale
        digits = iter(f"{self._whole:>{count}}" if fits else "#" * count)
        if format.last == "PR" and self._negative:
            self._written += "<"
        self._sign(format.first)
        self._written += "$" * format.currency
        for at, run in enumerate(format.groups):
            if at:
                self._separator()
            for _ in run:
                self._digit(next(digits), run[0])
        if format.places is not None:
            if self._written.endswith(" "):
                self._written = f"{self._written[:-1]}0"
            self._written += "." + (f"{self._places:0<{scale}}" if fits else "#" * scale)
        if format.last == "PR":
            if self._negative:
                self._behind(">")
            else:
                self._point()
                self._written += "  "
        else:
            self._sign(format.last)
        self._point()
        return self._written

    def _sign(self, sign: str) -> None:
        if sign == "S" or (sign and self._negative):
            self._behind("-" if self._negative else "+")
        elif sign:
            self._point()
            self._written += " "

    def _behind(self, character: str) -> None:
        """Write a character behind the number, before the spaces at its end."""
        self._point()
        written = self._written.rstrip(" ")
        self._written = written + character + self._written[len(written) :]

    def _point(self) -> None:
        """Make a point without digits behind it a space."""
        if self._written.endswith("."):
            self._written = f"{self._written[:-1]} "

    def _digit(self, digit: str, run: str) -> None:
        if digit != " ":
            self._written += digit
        elif run == "0":
            self._written += "0"
        else:
            self._space()

    def _separator(self) -> None:
        if self._written[-1:].isdigit():
            self._written += ","
        else:
            self._space()

    def _space(self) -> None:
        """Write a space, before signs."""
        written = self._written.rstrip("+-<")
        self._written = f"{written} {self._written[len(written) :]}"
