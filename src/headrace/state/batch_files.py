"""Files of sorted batches: what is in them, and their mapping into memory."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as compute
from pyarrow.ipc import new_file, open_file
from xxhash import xxh3_128_hexdigest

from headrace.arrangement.batch import Layout, SortedBatch, own_copy, select
from headrace.arrangement.codes import Codes
from headrace.arrangement.packed_batch import PackedBatch, PackedRows, narrowed
from headrace.state.chain import FileRef, Part, check_size, damaged

_CODES = "#codes"
"""Name of the column beside those of the layout."""


_OLDEST, _NEWEST = pl.CompatLevel.oldest(), pl.CompatLevel.newest()
pc: Any = compute


_MANY = 1_000
"""Rows from which a column of weights costs more than making it anew, and copies more than a plan."""


def content_of(layout: Layout, batch: SortedBatch) -> pa.Buffer:
    """Encode a batch as the content of a file."""
    if len(batch) < _MANY:
        # Polars would plan queries. Readers copy the texts of so few rows.
        named = {column.name: _arrow(column.to_arrow(compat_level=_OLDEST)) for column in batch.frame}
    else:
        # A column in several pieces would be copied by each reader.
        frame = batch.frame.rechunk()
        if len(layout.sums) == 1 and bool((frame[layout.sums[0]] == 1).all()):
            # Rows that were never taken back: their weights need no column.
            frame = frame.drop(layout.sums)
        named = {column.name: _packed(column) for column in frame}
    if not layout.exact:
        named[_CODES] = _packed_codes(batch.codes)
    rows, sink = pa.RecordBatch.from_arrays([*named.values()], [*named]), pa.BufferOutputStream()
    with new_file(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def _arrow(column: Any) -> pa.Array[Any]:
    return column


_REPEATED = 4
"""Rows for each text, or code, from which on it pays to have it once."""


def _packed(column: pl.Series) -> pa.Array[Any]:
    """Encode a column: integers as narrow ones, texts by number if they are repeated."""
    if column.dtype not in (pl.String, pl.Binary):
        return _arrow(narrowed(column).to_arrow(compat_level=_OLDEST))
    texts = _alone(column)
    if texts.n_unique() * _REPEATED > len(texts):
        return _arrow(texts.to_arrow(compat_level=_NEWEST))
    numbered: Any = _arrow(texts.to_arrow(compat_level=_OLDEST)).dictionary_encode()
    count = len(numbered.dictionary)
    number = pa.uint8() if count <= 1 << 8 else pa.uint16() if count <= 1 << 16 else pa.uint32()
    return pa.DictionaryArray.from_arrays(numbered.indices.cast(number), numbered.dictionary)


def _packed_codes(codes: Codes) -> pa.Array[Any]:
    """Encode codes, which ascend: each once if they are repeated."""
    ends = np.flatnonzero(np.append(codes[1:] != codes[:-1], True))
    if len(ends) * _REPEATED > len(codes):
        return _numbers(codes)
    return pa.RunEndEncodedArray.from_arrays(_numbers((ends + 1).astype(np.int32)), _numbers(codes[ends]))


def _numbers(numbers: Any) -> pa.Array[Any]:
    # Given an array of NumPy, Arrow would look for pandas.
    return _arrow(pl.Series(numbers).to_arrow())


def _alone(column: pl.Series) -> pl.Series:
    """Return a column without texts of removed rows that are still in its buffers."""
    if column.dtype not in (pl.String, pl.Binary):
        return column
    return pl.Series(column.name, column.to_arrow(compat_level=_OLDEST))


def alone(batch: SortedBatch) -> SortedBatch:
    """Return a copy of a small batch that does not keep the larger batches it was taken from in memory."""
    frame = pl.DataFrame([_alone(column) for column in own_copy(batch.frame)])
    return SortedBatch(batch.codes.copy(), frame, batch.bounds)


def batch_in(layout: Layout, content: pa.Buffer, bounds: tuple[float, ...]) -> SortedBatch:
    """Return the batch in a file's content. Columns are read lazily.

    bounds: of the batch that was written.

    Raises `ValueError` or an error of Arrow for a file with other columns.
    """
    table = open_file(content).read_all()
    named: dict[str, Any] = {name: _whole(table[name]) for name in table.column_names}
    texts = {
        name: pl.Series(name, column.dictionary)
        for name, column in named.items()
        if pa.types.is_dictionary(column.type)
    }
    columns = [pl.Series(n, named[n].indices if n in texts else named[n]) for n in layout.types if n in named]
    frame = pl.DataFrame(columns)
    if len(layout.sums) == 1 and layout.sums[0] not in named:
        # A constant takes no memory until it is looked at, as `DataFrame.__getitem__` does.
        frame = frame.with_columns(pl.lit(1, pl.Int64).alias(layout.sums[0]))
    if set(frame.columns) != set(layout.types):
        raise ValueError("it has other columns")
    rows = PackedRows(select(frame, layout.types), layout.types, texts)
    if not rows.are_of_types():
        raise ValueError("it has other columns")
    if layout.exact:
        codes = layout.codes_of(layout.keys_of(rows.of(select(frame, layout.keys)).unpacked()))
    else:
        found = named[_CODES]
        encoded = pa.types.is_run_end_encoded(found.type)
        codes = (pc.run_end_decode(found) if encoded else found).to_numpy()
    codes = np.asarray(codes, np.int64)
    if rows.is_plain:
        return SortedBatch(codes, rows.frame, bounds)
    return PackedBatch(codes, rows, bounds)


def _whole(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    return column.chunk(0) if column.num_chunks == 1 else cast("Any", column.combine_chunks())


class MappedFiles:
    """Files of one arrangement, mapped by this process. folder: base of the file names."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder = folder
        self.layout = layout
        self._mapped: dict[FileRef, tuple[tuple[int, int], SortedBatch]] = {}

    def keep(self, parts: Iterable[Part]) -> None:
        """Release all files except these. Raise `CheckpointDamaged` if one of these is missing or truncated.

        A file modified since it was mapped is mapped and checked again when it is read.
        """
        known, self._mapped = self._mapped, {}
        for part in parts:
            stamp = _stamp(check_size(self._path(part.file.name), part.file))
            found = known.get(part.file)
            if found is not None and found[0] == stamp:
                self._mapped[part.file] = found

    def open(self, part: Part) -> SortedBatch:
        """Return the rows of a file. Raises `CheckpointDamaged` if it isn't the one that `part` names."""
        found = self._mapped.get(part.file)
        if found is None:
            found = self._mapped[part.file] = self._map(part)
        return found[1]

    def write(self, name: str, rows: SortedBatch) -> Part:
        """Write rows to a new file. Call `make_durable` before a commit names it."""
        path, content = self._path(name), content_of(self.layout, rows)
        try:
            _write_anew(path, content)
        except OSError as error:
            error.filename = path
            raise
        ref = FileRef(name, content.size, xxh3_128_hexdigest(content))
        part = Part(ref, len(rows), int(rows.codes[-1]), rows.bounds)
        if content.size <= _SMALL:
            self._mapped[ref] = (_stamp(os.stat(path)), alone(rows))
        return part

    def _map(self, part: Part) -> tuple[tuple[int, int], SortedBatch]:
        path, ref = self._path(part.file.name), part.file
        stamp = _stamp(check_size(path, ref))
        try:
            # It is closed at once: as many files may be mapped as a process can have open.
            with pa.memory_map(path) as file:
                content = file.read_buffer()
        except (OSError, pa.ArrowException) as error:
            raise damaged(path, f"it cannot be read: {error}") from error
        if content.size != ref.size or xxh3_128_hexdigest(content) != ref.digest:
            raise damaged(path, "its content does not match the checksum in the commit")
        try:
            return stamp, batch_in(self.layout, content, part.bounds)
        except (pa.ArrowException, ValueError) as error:
            raise damaged(path, f"it is not a state file: {error}") from error

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"


_SMALL = 1 << 16
"""Bytes up to which a file need not be mapped by the process that wrote it."""


_MAX_KEPT = 1_024
"""Number of arrangements whose files stay mapped while nothing reads them."""


_kept: OrderedDict[tuple[str, str], MappedFiles] = OrderedDict()
_lock = threading.Lock()


def kept_files(folder: Path, name: str, layout: Layout) -> MappedFiles:
    """Return this process's mapped files of a named arrangement, kept for the next time it is opened."""
    key = str(folder), name
    with _lock:
        found = _kept.get(key)
        if found is None or found.layout != layout:
            found = _kept[key] = MappedFiles(folder, layout)
        _kept.move_to_end(key)
        while len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)
    return found


def forget_folder(folder: Path) -> None:
    """Release all files of a folder that is no longer read."""
    with _lock:
        for key in [key for key in _kept if key[0] == str(folder)]:
            del _kept[key]


def _write_anew(path: str, content: pa.Buffer) -> None:
    try:
        # What an attempt left that was not committed may be mapped: its content stays.
        os.unlink(path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(memoryview(cast("Any", content)))


def _stamp(found: os.stat_result) -> tuple[int, int]:
    """Return a stamp that changes if a file is modified."""
    return found.st_ino, found.st_mtime_ns
