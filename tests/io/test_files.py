"""Which files are read, when, and what is remembered of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import BadInput, InputChanged, UnreadableSource
from headrace.io import JsonFiles, open_source
from tests.golden import MESSAGES, assert_golden
from tests.io.feeds import Point, batches, feed, read, write


def row(x: int) -> str:
    return f'{{"x": {x}}}\n'


def xs(source: JsonFiles) -> list[int]:
    return [x for x, _ in read(source, feed(Point))]  # type: ignore[misc]


def test_files_come_in_the_order_of_their_names_and_unfinished_ones_do_not_come(tmp_path: Path) -> None:
    for x, name in enumerate(["c", "a.json", "B.json", "_d.json", ".e.json", "f.json.tmp", "sub/g.json"]):
        write(tmp_path / name, row(x))
    assert xs(JsonFiles(tmp_path)) == [2, 1, 0]


def test_a_pattern_and_a_single_file_are_paths_too(tmp_path: Path) -> None:
    for x, name in enumerate(["b/1.json", "a/2.json", "a/_3.json", "a/4.csv"]):
        write(tmp_path / name, row(x))
    assert xs(JsonFiles(f"{tmp_path}/*/*.json")) == [1, 0]
    assert xs(JsonFiles(tmp_path / "a/4.csv")) == [3]


@pytest.mark.parametrize("path", ["nowhere", "empty", "*.json"])
def test_nothing_to_read_is_an_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableSource):
        open_source(JsonFiles(tmp_path / path), feed(Point))


def test_who_follows_a_folder_waits_for_its_first_file(tmp_path: Path) -> None:
    reader = open_source(JsonFiles(tmp_path), feed(Point, follow=True))
    assert reader.read(None) is None
    assert not reader.done
    write(tmp_path / "b.json", row(1))
    batch = reader.read(None)
    assert batch is not None
    assert batch.rows == [(1, None)]
    write(tmp_path / "a.json", row(2))
    batch = reader.read(None)
    assert batch is not None
    assert batch.rows == [(2, None)], "a file counts by being new, not by its place among the names"
    assert reader.read(None) is None


def test_files_that_were_taken_are_not_read_again_even_if_others_come_between(tmp_path: Path) -> None:
    to = feed(Point)
    for name in ("a", "c"):
        write(tmp_path / name, row(ord(name)))
    assert len(read(JsonFiles(tmp_path), to)) == 2
    write(tmp_path / "b", row(0))
    assert read(JsonFiles(tmp_path), to) == [(0, None)]
    assert read(JsonFiles(tmp_path), to) == []


@pytest.mark.parametrize("again", ["in", "in/*", "./in/*", "{}/in/*", "in/a"])
@pytest.mark.parametrize("first", ["in", "in/*", "./in/*", "{}/in/*", "in/a"])
def test_files_are_known_again_by_another_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, again: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "a", row(1) + row(2))
    to = feed(Point)
    reader = open_source(JsonFiles(first.format(tmp_path)), to)
    reader.read(1)
    reader.close()
    assert read(JsonFiles(again.format(tmp_path)), to) == [(2, None)]
    assert read(JsonFiles(first.format(tmp_path)), to) == []


def test_a_file_of_the_same_name_elsewhere_is_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    to = feed(Point)
    for folder in ("one", "other"):
        write(tmp_path / folder / "a", row(1))
        assert read(JsonFiles(f"{folder}/*"), to) == [(1, None)]


def test_files_per_tick_takes_whole_files(tmp_path: Path) -> None:
    for name in "abcde":
        write(tmp_path / name, row(1) * ord(name))
    source = JsonFiles(tmp_path, files_per_tick=2)
    sizes = [len(batch) for batch in batches(source, feed(Point), limit=1)]
    assert sizes == [97 + 98, 99 + 100, 101]


def test_files_per_tick_is_a_number(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        JsonFiles(tmp_path, files_per_tick=0)


def test_a_file_that_vanishes_is_an_error_that_names_it(tmp_path: Path) -> None:
    write(tmp_path / "a", row(1))
    reader = open_source(JsonFiles(tmp_path), feed(Point))
    (tmp_path / "a").unlink()
    with pytest.raises(UnreadableSource, match="cannot read"):
        reader.read(None)


def test_a_gzip_file_that_is_cut_off_is_an_error_that_names_it(tmp_path: Path) -> None:
    import gzip

    write(tmp_path / "a.gz", gzip.compress(row(1).encode() * 10_000)[:-20])
    with pytest.raises(UnreadableSource, match=r"a\.gz"):
        read(JsonFiles(tmp_path), feed(Point))


def test_a_batch_that_fails_is_not_taken(tmp_path: Path) -> None:
    write(tmp_path / "a", row(1) + "?\n")
    to = feed(Point)
    with pytest.raises(Exception, match=r"row 2 of .*a"):
        read(JsonFiles(tmp_path), to)
    assert to.taken == {}


def test_a_file_that_shrank_after_a_part_of_it_was_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", row(1) * 3)
    to = feed(Point)
    reader = open_source(JsonFiles(tmp_path), to)
    reader.read(2)
    reader.close()
    write(tmp_path / "a", row(7))
    with pytest.raises(InputChanged) as error:
        read(JsonFiles(tmp_path), to)
    assert_golden(MESSAGES / "input_changed.txt", f"{error.value}\n".replace(f"{tmp_path}", "in"))
