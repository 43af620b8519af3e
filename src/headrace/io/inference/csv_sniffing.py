"""The dialect of a CSV file, found by looking at its beginning: encoding, separator, header."""

from __future__ import annotations

import csv
from collections import Counter
from contextlib import suppress
from itertools import islice
from pathlib import Path

from headrace.io.files.csv_dialect import CsvDialect, likely_encoding
from headrace.io.files.text_blocks import line_blocks, open_bytes
from headrace.io.inference.texts import NULL_WORDS, kind_of_text

_LOOKED_AT = 1 << 20
_RECORDS = 100


def sniff(path: Path) -> CsvDialect:
    """Find the dialect by which most records have as many fields as the first one, and more than one."""
    with open_bytes(path) as file:
        encoding = likely_encoding(file.read(_LOOKED_AT))
    dialects = [CsvDialect(sep=sep, encoding=encoding) for sep in ",;\t|"]
    best, records = max(
        ((dialect, _records(path, dialect)) for dialect in dialects), key=lambda found: _regularity(found[1])
    )
    return (
        best
        if not records or _is_header(records[0])
        else CsvDialect(best.sep, encoding=encoding, header=False)
    )


def _records(path: Path, dialect: CsvDialect) -> list[list[str]]:
    with dialect.in_utf8(open_bytes(path)) as file:
        records: list[list[str]] = []
        with suppress(csv.Error):  # by another separator, quotes may stand within fields
            records.extend(islice(filter(None, dialect.reader(line_blocks(file))), _RECORDS))
        return records


def _regularity(records: list[list[str]]) -> tuple[float, int]:
    widths = Counter(map(len, records))
    width, count = widths.most_common(1)[0] if widths else (0, 0)
    return (count / len(records) if width > 1 else 0.0), width


def _is_header(first: list[str]) -> bool:
    return len({*first}) == len(first) and all(
        name and name not in NULL_WORDS and kind_of_text(name) == "text" for name in first
    )
