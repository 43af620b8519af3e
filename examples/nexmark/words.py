"""The texts of events: lists to choose from, made once for a seed.

A text that is put together for each event would cost as much as all its numbers; these are
chosen by number. Lengths, shares and forms are those of the benchmark's generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from random import Random
from typing import Any

import pyarrow as pa

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Boise", "Eugene", "Flagstaff", "Fresno", "Laramie", "Oakland", "Salem", "Spokane", "Tacoma", "Tucson",
)  # fmt: skip
FIRST_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gil", "Hana", "Ivo", "Jo", "Kim")
LAST_NAMES = ("Abbott", "Brook", "Castle", "Dale", "Ellis", "Ford", "Grant", "Hill", "Irving")
THINGS = ("bicycle", "clock", "guitar", "lamp", "map", "radio", "rug", "table", "teapot", "vase")
KINDS = ("antique", "blue", "broken", "brass", "heavy", "painted", "rare", "signed", "small", "wooden")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
"""Channels besides the hot ones."""

EXTRAS = 4_096
"""Different texts in each column `extra`."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Words:
    """Arrow arrays of texts. Two of one length that are said to go together are chosen by one number.

    channels, urls:      go together: the hot ones first, then `CHANNELS` others.
    names, emails:       go together; an email lacks its number and what follows it.
    items, descriptions: descriptions 100 * i to 100 * i + 99 are of item i.
    """

    names: Any
    emails: Any
    cities: Any
    states: Any
    four_digits: Any
    items: Any
    descriptions: Any
    channels: Any
    urls: Any
    extra_of_persons: Any
    extra_of_auctions: Any
    extra_of_bids: Any


@lru_cache(maxsize=4)
def words(seed: int) -> Words:
    random = Random(seed)
    people = list(product(FIRST_NAMES, LAST_NAMES))
    items = [f"{kind} {thing}" for kind, thing in product(KINDS, THINGS)]
    folders = ["".join(random.choices(_LETTERS, k=5)) for _ in range(1_000)]
    urls = [_address(random, folders) for _ in HOT_CHANNELS]
    urls += [_address(random, folders) + _channel_id(random, number) for number in range(CHANNELS)]
    # With these a person has 200 bytes on average, an auction 500, a bid 100 without channel and url.
    return Words(
        names=pa.array([f"{first} {last}" for first, last in people]),
        emails=pa.array([f"{first}.{last}".lower() for first, last in people]),
        cities=pa.array(CITIES),
        states=pa.array(STATES),
        four_digits=pa.array([f"{number:04d}" for number in range(10_000)]),
        items=pa.array(items),
        descriptions=pa.array([f"{item} with a {other}" for item, other in product(items, items)]),
        channels=pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]),
        urls=pa.array(urls),
        extra_of_persons=_extras(random, 120),
        extra_of_auctions=_extras(random, 410),
        extra_of_bids=_extras(random, 68),
    )


def _address(random: Random, folders: list[str]) -> str:
    path = "/".join(random.choices(folders, k=3))
    return f"https://auctions.example.com/{path}/item.htm?query=1"


def _channel_id(random: Random, number: int) -> str:
    return f"&channel_id={number * 2_654_435_761 % 2**31}" if random.random() < 0.9 else ""


def _extras(random: Random, length: int) -> Any:
    """Texts of `length` letters, a fifth more or less: parts of a long one."""
    letters = "".join(random.choices(_LETTERS, k=EXTRAS))
    texts: list[str] = []
    for _ in range(EXTRAS):
        begin = int(random.random() * (EXTRAS - 2 * length))
        count = int(random.uniform(0.8, 1.2) * length)
        texts.append(letters[begin : begin + count])
    return pa.array(texts)
