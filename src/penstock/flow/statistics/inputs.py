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


class Times(Enum):
    """What a time signal gives: `datetime`s, numbers of seconds, or either, as is seen when they come."""

    DATETIMES = "datetimes"
    SECONDS = "seconds"
    EITHER = "either"
