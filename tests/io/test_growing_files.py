"""A file that grows while it is read gives the rows that it gives when read at once, or is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import InputChanged, UnreadableSource
from headrace.io import BadRecord, CsvFiles, Feed, JsonFiles, Memory, open_source
from headrace.io.files.file_source import Files
from tests.io.feeds import feed, read, write


class Pair(NamedTuple):
    text: str
    number: int


Found = list[tuple[Any, ...] | BadRecord]
Step = tuple[int, int, int, bool]
"""Bytes that come, ticks that read them, records per tick, and whether the run is started anew before."""


def as_csv(rows: list[Pair]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([Pair._fields, *rows])
    return text.getvalue().encode()


def as_json(rows: list[Pair]) -> bytes:
    return "".join(json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in rows).encode()


FORMATS: dict[str, tuple[type[Files], dict[str, Any], Callable[[list[Pair]], bytes]]] = {
    "csv": (CsvFiles, {}, as_csv),
    "csv.gz": (CsvFiles, {}, lambda rows: b"".join(map(gzip.compress, as_csv(rows).splitlines(True)))),
    "utf-16.csv": (CsvFiles, {"encoding": "utf-16"}, lambda rows: as_csv(rows).decode().encode("utf-16")),
    "json": (JsonFiles, {}, as_json),
    "json.gz": (JsonFiles, {}, lambda rows: b"".join(map(gzip.compress, as_json(rows).splitlines(True)))),
}


class GrowingFile:
    """A file and the runs that read it. refused: the file changed in a way that a run doesn't accept."""

    def __init__(self, folder: Path, form: str, content: bytes) -> None:
        kind, options, _ = FORMATS[form]
        self.source = kind(folder / "in", dead_letter=folder / "dead", **options)
        self.path, self.content = folder / "in" / f"1.{form}", content
        self.found: Found = []
        self.refused = False
        self._feed: Feed = feed(Pair, follow=True)
        self._reader: Any = None
        write(self.path, b"")

    def grow(self, size: int) -> None:
        start = self.path.stat().st_size
        with self.path.open("ab") as file:
            file.write(self.content[start : start + size])

    def read(self, ticks: int, limit: int, *, anew: bool) -> None:
        try:
            if anew or self._reader is None:
                self._reader = open_source(self.source, self._feed)
            for _ in range(ticks):
                batch = self._reader.read(limit)
                if batch is None:
                    return
                self.found += [*batch.rows, *batch.bad]
        except UnreadableSource:  # as of now: the rest of a quoted field or of a stream is still to come
            self._reader = None
        except InputChanged:
            self.refused = True


TEXTS = st.text(st.sampled_from('aé€😀",\n '), max_size=4)
ROWS = st.lists(st.builds(Pair, TEXTS, st.integers(0, 2000)), min_size=1, max_size=8)
STEPS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=12
)


@pytest.mark.parametrize("form", FORMATS)
@given(rows=ROWS, steps=STEPS)
@example(rows=[Pair("a", 1), Pair("b", 25)], steps=[(21, 1, 2, True)])
@example(rows=[Pair("é", 1)], steps=[(14, 1, 2, True)])
def test_rows_of_a_file_that_grows_are_those_of_the_whole_file_or_it_is_refused(
    form: str, rows: list[Pair], steps: list[Step]
) -> None:
    with TemporaryDirectory() as folder:
        file = GrowingFile(Path(folder), form, FORMATS[form][2](rows))
        for size, ticks, limit, anew in steps:
            file.grow(size)
            file.read(ticks, limit, anew=anew)
            if file.refused:
                return
        file.grow(len(file.content))
        file.read(len(rows) + 1, 1, anew=True)
        file.read(1, 1, anew=True)
        if not file.refused:
            assert file.found == read(file.source, feed(Pair))
            assert file.found == rows


@pytest.mark.parametrize("form", FORMATS)
@given(rows=ROWS, limits=st.lists(st.integers(1, 3)))
def test_a_file_is_continued_behind_the_part_that_was_read(
    form: str, rows: list[Pair], limits: list[int]
) -> None:
    write_rows = FORMATS[form][2]
    with TemporaryDirectory() as folder:
        file = GrowingFile(Path(folder), form, write_rows(rows))
        file.grow(len(file.content))
        for limit in limits:
            file.read(1, limit, anew=True)
        part = len(file.found)
        file.content = write_rows([*rows, Pair("more", 1)])
        write(file.path, file.content)
        file.read(len(rows) + 2, 1, anew=True)
        assert file.refused == (part == len(rows))
        assert file.found == (rows if file.refused else [*rows, Pair("more", 1)])


@pytest.mark.parametrize(
    ("kind", "start", "rest"),
    [
        (CsvFiles, b"text,number\na,1\nb,2", b"5\nc,3\n"),
        (CsvFiles, b"text,number\na,1\nb,2\n", b"c,3\n"),
        (JsonFiles, b'{"text": "a", "number": 1}\n{"text": "b", "number": 2}', b"\n"),
    ],
)
def test_a_run_refuses_a_file_that_grew_after_its_last_row_was_read(
    kind: type[Files], start: bytes, rest: bytes, tmp_path: Path
) -> None:
    flow = hr.Flow("pairs")
    flow.sink("out", flow.source("pairs", Pair))
    path, memory = tmp_path / "in" / "1", Memory()
    write(path, start)

    def run() -> None:
        hr.run(
            flow, {"pairs": kind(path.parent)}, {"out": memory}, tick_rows=2, checkpoint=tmp_path / "state"
        )

    run()
    assert memory.rows() == [("a", 1), ("b", 2)]
    write(path, start + rest)
    with pytest.raises(InputChanged, match="grew after it was read"):
        run()


def test_rows_before_an_unreadable_rest_make_a_tick_of_their_own(tmp_path: Path) -> None:
    content = gzip.compress(b"".join(b'{"text": "a", "number": %d}\n' % n for n in range(30_000)))
    write(tmp_path / "1.json.gz", content[:-20])
    reader = open_source(JsonFiles(tmp_path), feed(Pair))
    found: list[Any] = []

    def read_all() -> None:
        while (batch := reader.read(1)) is not None:
            found.extend(batch.rows)

    with pytest.raises(UnreadableSource, match="cannot read"):
        read_all()
    assert found
    assert found == [("a", n) for n in range(len(found))]
