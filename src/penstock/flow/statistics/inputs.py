"""What is known of the values that enter a statistic before there are any."""

from __future__ import annotations

from enum import Enum


class Holes(Enum):
    """Which values are missing: they take a place in a window by count, and count as no value.

    NONE:     none can be.
    NAN:      NaN is.
    NAN_NONE: NaN is, and None.
    """

    NONE = "no value is missing"
    NAN = "NaN is missing"
    NAN_NONE = "NaN and None are missing"


class Result(Enum):
    """What a statistic is of: a float, a bool, a value as it came, a float where those are, or anything."""

    FLOAT = "float"
    BOOL = "bool"
    AS_GIVEN = "as given"
    FLOAT_OF_FLOATS = "float of floats"
    ANY = "any"


class Times(Enum):
    """What a time signal gives: `datetime`s, numbers of seconds, or either, as is seen when they come."""

    DATETIMES = "datetimes"
    SECONDS = "seconds"
    EITHER = "either"
