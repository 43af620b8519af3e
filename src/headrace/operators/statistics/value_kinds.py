"""Kinds of input and result values of statistics, known before the first value."""

from __future__ import annotations

from enum import Enum


class Holes(Enum):
    """Values that count as missing. They occupy a slot of a window by count, but are ignored otherwise.

    NONE:     no values.
    NAN:      NaN.
    NAN_NONE: NaN and None.
    """

    NONE = "no value is missing"
    NAN = "NaN is missing"
    NAN_NONE = "NaN and None are missing"


class Result(Enum):
    """Type of a statistic's results: float, bool, the type of the input, float for floats, or any."""

    FLOAT = "float"
    BOOL = "bool"
    AS_GIVEN = "as given"
    FLOAT_OF_FLOATS = "float of floats"
    ANY = "any"


class Times(Enum):
    """Type of the values of a time signal: `datetime`, seconds, or either, determined at run time."""

    DATETIMES = "datetimes"
    SECONDS = "seconds"
    EITHER = "either"
