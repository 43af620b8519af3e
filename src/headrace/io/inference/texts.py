"""Columns of texts, as CSV has them: which type reads all of their values.

The types are those whose parser accepts every value, and recognised conservatively: "007" and numbers beyond
64 bits are text. Numbers are decimals if all have the same number of digits after the point and one of them
ends in 0, as prices do; floats otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headrace.expr.types import (
    BOOL,
    DATE,
    FLOAT64,
    INT64,
    STR,
    TIMESTAMP,
    DataType,
    DecimalType,
)
from headrace.io.files.text_values import Unfit, parser_of

NULL_WORDS = frozenset({"NA", "N/A", "n/a", "NULL", "null", "None", "-", r"\N"})
"""Texts taken for null in a column that otherwise holds no text."""

LONGEST_INT = 1 << 63
_INT = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_FIXED = re.compile(r"-?(?:0|[1-9][0-9]*)\.([0-9]+)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)?(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_day, _moment = parser_of(DATE), parser_of(TIMESTAMP)


def kind_of_text(text: str) -> str:
    """Classify a text that is not empty: bool, int, number, date, timestamp or text."""
    if text in ("true", "false", "True", "False", "TRUE", "FALSE"):
        return "bool"
    if _INT.fullmatch(text):
        return "int" if -LONGEST_INT <= int(text) < LONGEST_INT else "text"
    if _NUMBER.fullmatch(text) and text[-1].isdigit():
        return "number" if "." in text or "e" in text.lower() else "text"
    if _DAY.match(text):
        try:
            _moment(text)
            return "timestamp" if len(text) > 10 else "date"
        except Unfit:
            pass
    return "text"


@dataclass(slots=True)
class TextColumn:
    """What the texts of a column have in common. words: null words among them."""

    kinds: set[str] = field(default_factory=set[str])
    words: set[str] = field(default_factory=set[str])
    has_empty: bool = False
    _scales: set[int] = field(default_factory=set[int])
    _digits: int = 0
    _is_padded: bool = False

    def add(self, text: str) -> None:
        if not text:
            self.has_empty = True
        elif text in NULL_WORDS:
            self.words.add(text)
        else:
            kind = kind_of_text(text)
            self.kinds.add(kind)
            if kind == "number":
                fixed = _FIXED.fullmatch(text)
                self._scales.add(len(fixed[1]) if fixed else -1)
                self._digits = max(self._digits, len(text))
                self._is_padded |= text.endswith("0")

    @property
    def type(self) -> DataType:
        match sorted(self.kinds):
            case ["bool"]:
                return BOOL
            case ["int"]:
                return INT64
            case ["number"] if self._is_padded and len(self._scales) == 1 and self._digits <= 18:
                (scale,) = self._scales
                return FLOAT64 if scale < 0 else DecimalType(18, scale)
            case ["number"] | ["int", "number"]:
                return FLOAT64
            case ["date"]:
                return DATE
            case ["timestamp"] | ["date", "timestamp"]:
                return TIMESTAMP
            case _:
                return STR
