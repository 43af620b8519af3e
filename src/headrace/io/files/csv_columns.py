"""Blocks of CSV records as Arrow columns, with the meaning of the `csv` module and `text_values`.

Arrow accepts text behind a closing quote and quotes that are never closed, so the quotes of a block are
checked before.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv as pcv

from headrace.expr.types import BytesType, Field, StrType
from headrace.io.arrow import arrow_field
from headrace.io.files.csv_dialect import CsvDialect
from headrace.io.files.text_blocks import BOM
from headrace.io.files.text_columns import longest, typed_column
from headrace.io.files.text_values import Unfit


class CsvColumns:
    """Parser of blocks of CSV records. positions: of the fields, None for those not in the file."""

    def __init__(
        self,
        dialect: CsvDialect,
        width: int,
        fields: Sequence[Field],
        positions: Sequence[int | None],
    ) -> None:
        self._dialect = dialect
        self._names = [str(at) for at in range(width)]
        self._columns = list(zip(fields, positions, strict=True))
        self._schema = pa.schema([arrow_field(f) for f in fields])
        self._read = sorted({at for at in positions if at is not None} or {0})

    def table(self, block: bytes) -> pa.Table | None:
        """Convert a well quoted block to a table of the fields, or return None where that is not certain."""
        if block.startswith(BOM):  # Arrow would leave it out
            return None
        limit = csv.field_size_limit()
        quoted = not self._dialect.is_plain(block)
        try:
            found = self._text(block, self._names if quoted else [self._names[at] for at in self._read])
            if max(map(longest, found.columns)) > limit or not (quoted or _lines_within(block, limit)):
                return None
            columns = [self._column(found, f, at) for f, at in self._columns]
        except (pa.ArrowException, Unfit):
            return None
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _text(self, block: bytes, names: list[str]) -> pa.Table:
        return pcv.read_csv(
            pa.BufferReader(block),
            read_options=pcv.ReadOptions(
                use_threads=False, block_size=len(block) + 1, column_names=self._names
            ),
            parse_options=pcv.ParseOptions(
                delimiter=self._dialect.sep,
                quote_char=self._dialect.quote or False,
                newlines_in_values=True,
            ),
            convert_options=pcv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=names,
                null_values=["", *self._dialect.null],
                strings_can_be_null=True,
            ),
        )

    def _column(self, found: pa.Table, declared: Field, at: int | None) -> pa.Array:
        if at is None:
            return pa.nulls(found.num_rows, self._schema.field(declared.name).type)
        texts = found.column(self._names[at]).combine_chunks()
        if texts.null_count and not declared.nullable:
            if self._dialect.null or not isinstance(declared.type, StrType | BytesType):
                raise Unfit(declared.name)
            texts = texts.fill_null("")
        return typed_column(texts, declared.type)


def _lines_within(block: bytes, most: int) -> bool:
    at = 0
    while len(block) - at > most:
        end = block.rfind(b"\n", at, at + most + 1)
        if end < 0:
            return False
        at = end + 1
    return True
