"""Tables of random queries, and their random rows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tests.queries import array_spellings, json_spellings, map_spellings, scalar_spellings


class Left(NamedTuple):
    id: int
    a: int | None
    s: str | None


class Right(NamedTuple):
    id: int
    b: int | None
    t: str | None


class Event(NamedTuple):
    ts: datetime | None
    k: str | None
    n: int | None


TABLES: Mapping[str, type] = {
    "l": Left,
    "r": Right,
    "events": Event,
    "v": scalar_spellings.V,
    "lists": array_spellings.V,
    "maps": map_spellings.V,
    "texts": json_spellings.V,
}

_DRAWN: Mapping[str, Sequence[Any]] = {
    "v": scalar_spellings.ROWS,
    "lists": array_spellings.rows(0),
    "maps": map_spellings.rows(0),
    "texts": json_spellings.rows(0, 200),
}
"""Rows from which those of a table are drawn, where they are not made."""

_START = datetime(2020, 1, 1, tzinfo=UTC)


def random_row(choice: random.Random, table: str) -> Any:
    if table in _DRAWN:
        return choice.choice(_DRAWN[table])
    number = choice.choice([None, *range(-1, 5)])
    text = choice.choice([None, "a", "ab", "b", ""])
    if table == "events":
        later = timedelta(minutes=choice.randrange(90), seconds=choice.randrange(2))
        return Event(choice.choice([None, *[_START + later] * 6]), text, number)
    return TABLES[table](choice.randrange(6), number, text)
