"""Letters of all scripts in upper, lower and title case: as Spark makes them."""

# ruff: noqa: RUF001
from __future__ import annotations

import sys
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

import pytest

from headrace.expr.functions.strings import initcap
from tests.queries.spark_answers import create_view, equal, value_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Text(NamedTuple):
    id: int
    s: str


NEWER = {"\u019b", "\u0264", "\ua7d3", "\ua7d5"}
"""Letters of Python 3.11 whose other case is newer."""

WORDS = [
    *("İSTANBUL", "istanbul ISPARTA", "iİ ıI", "ﬁne ﬀ ŉa", "ǆ Ǆ ǅa", "ß ßa SS", "ĳssel Ĳ", "l·l 'n o'neil"),
    *("ΑΣ", "ΑΣ Β", "ΑΣΒ", "Α.Σ ΑΣ. ΑΣ'Β", "Σ ΣΣ", "ΟΔΟΣ\u0301 ΑΣ\u00ad", "\u0345Σ", "ΐ ᾳ ᾼ ᾠ", "Ა აა ꭰ Ꮳ"),
    *("a\tb a\nb", "  a  b ", "1a b2c", "a-b c_d", "𐐨𐐀 𐐀𐐨", "ά\u0301Σ", ""),
]


def cased() -> list[str]:
    every = (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    known = (each for each in every if unicodedata.category(each) != "Cn" and each not in NEWER)
    return [each for each in known if each != each.lower() or each != each.upper() or each != each.title()]


@pytest.mark.spark
def test_letters_of_each_case_are_those_of_spark(spark: SparkSession) -> None:
    texts = [*WORDS, *(shown for c in cased() for shown in (c, f"a{c}", f"{c}a", f"A{c} {c}B"))]
    rows = [Text(id, text) for id, text in enumerate(texts)]
    create_view(spark, rows)
    assert not value_differences(spark, rows, ["upper(s)", "lower(s)", "initcap(s)"], equal)


def test_the_first_letter_of_a_word_is_that_of_the_word_before_it_was_lowered() -> None:
    assert initcap("İSTANBUL") == "İstanbul"
    assert initcap("ΟΔΟΣ ΑΒΓ") == "Οδος Αβγ"
