"""Files: read as they are asked for, there as a whole or not at all, closed before an end is told."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import BadOption, UnreadableSource
from headrace.pull import (
    cat,
    collect,
    concat,
    count,
    error,
    from_file,
    from_lines,
    join_lines,
    map,
    pull,
    reduce,
    take,
    to_file,
    to_lines,
    values,
)
from headrace.pull.errors import LineTooLong, UndecodableText, UnwritableFile, WrongValue
from headrace.testing import check_source
from tests.pull.core.modules import Hand, Manual


class Failure(Exception):
    pass


def descriptors() -> list[str]:
    """What the files are that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return [path for path in found if path.startswith("/") and not path.startswith(("/dev", "/proc"))]


def is_open(path: Path) -> bool:
    return any(Path(found).parent == path.parent for found in descriptors())


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    path = tmp_path / "letters"
    path.write_bytes(b"abcdefgh")
    return path


# --- from_file -----------------------------------------------------------------------------------


def test_a_file_is_read_chunk_by_chunk(letters: Path) -> None:
    assert pull(from_file(letters, chunk=3), collect()).run() == [b"abc", b"def", b"gh"]
    assert pull(from_file(str(letters)), collect()).run() == [b"abcdefgh"]
    assert not is_open(letters)


def test_an_empty_file_is_an_empty_stream(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert pull(from_file(tmp_path / "empty"), collect()).run() == []


def test_a_file_is_opened_at_the_first_ask_and_read_once_for_each(letters: Path) -> None:
    hand = Hand()
    pull(from_file(letters, chunk=4), hand.sink).start()
    assert not is_open(letters)
    hand.request("1")
    assert is_open(letters)
    letters.write_bytes(b"abcdEFGH")
    hand.request("2")
    assert hand.heard == [("1", b"abcd"), ("2", b"EFGH")]
    hand.request("3")
    assert (hand.heard[2:], is_open(letters)) == ([("3", True)], False)


def test_a_file_is_closed_when_an_abort_is_confirmed(letters: Path) -> None:
    hand = Hand()
    pull(from_file(letters, chunk=4), hand.sink).start()
    hand.request("1")
    hand.request("2", True)
    assert (hand.heard[1:], is_open(letters)) == ([("2", True)], False)


def test_a_file_is_closed_when_the_run_is_given_up(letters: Path) -> None:
    hand = Hand()
    run = pull(from_file(letters, chunk=4), hand.sink).start()
    hand.request("1")
    run.abandon()
    assert not is_open(letters)


def test_a_file_that_is_not_there_is_named_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSource, match="cannot open") as raised:
        pull(from_file(tmp_path / "none"), collect()).run()
    assert "FileNotFoundError" in raised.value.why
    assert "from_file(" in raised.value.where[0].location.text


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSource):
        pull(from_file(tmp_path), collect()).run()


def test_chunks_have_a_size() -> None:
    with pytest.raises(BadOption):
        from_file("x", chunk=0)


# --- from_lines ----------------------------------------------------------------------------------


def test_lines_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("één\r\ntwo\n\nfour".encode())
    assert pull(from_lines(path), collect()).run() == ["één", "two", "", "four"]
    path.write_bytes("één\n".encode("latin-1"))
    assert pull(from_lines(path, "latin-1"), collect()).run() == ["één"]
    with pytest.raises(UndecodableText):
        pull(from_lines(path), collect()).run()


def test_lines_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "text"
    with path.open("w") as file:
        file.writelines(f"{number}\n" for number in range(1_000_000))
    assert pull(from_lines(path), take(2), collect()).run() == ["0", "1"]
    assert not is_open(path)
    assert pull(from_lines(path), reduce(lambda total, _line: total + 1, 0, batch=1000)).run() == 1_000_000


def test_a_compressed_file_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    assert pull(count(999), map(str), to_lines(path)).run() == 1000
    assert gzip.decompress(path.read_bytes()).splitlines()[-1] == b"999"
    assert pull(from_lines(path), take(3), collect()).run() == ["0", "1", "2"]
    pull(values(["more"]), to_lines(path, append=True)).run()
    assert pull(from_lines(path), collect()).run()[-2:] == ["999", "more"]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: b"no gzip", lambda data: data[:50] + b"?" * 99]
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(damage(gzip.compress(b"".join(b"%d\n" % number for number in range(999)))))
    with pytest.raises(UnreadableSource, match="cannot read"):
        pull(from_lines(path), collect()).run()
    assert not is_open(path)


def test_a_line_that_never_ends_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\n" + b"x" * 100)
    run = pull(from_lines(path, longest=50), collect()).start()
    with pytest.raises(LineTooLong, match=r"from_lines|lines"):
        run.result()
    assert (run.partial, is_open(path)) == (["one"], False)


# --- to_file, to_lines -----------------------------------------------------------------------------


def test_a_file_is_replaced_when_the_stream_is_done(letters: Path) -> None:
    source = Manual()
    run = pull(source.source, to_file(letters)).start()
    source.answer(0, None, b"new")
    assert letters.read_bytes() == b"abcdefgh"
    source.answer(1, True)
    assert (run.result(), letters.read_bytes()) == (3, b"new")
    assert os.listdir(letters.parent) == ["letters"]


def test_an_empty_stream_makes_an_empty_file(tmp_path: Path) -> None:
    assert pull(values([]), to_file(tmp_path / "new")).run() == 0
    assert (tmp_path / "new").read_bytes() == b""


def test_all_kinds_of_bytes_are_written(tmp_path: Path) -> None:
    pull(values([b"a", bytearray(b"b"), memoryview(b"c")]), to_file(tmp_path / "new")).run()
    assert (tmp_path / "new").read_bytes() == b"abc"


def stopped(run: Any, source: Manual) -> None:
    run.stop()
    source.answer(2, True)


def failed(_run: Any, source: Manual) -> None:
    source.answer(1, Failure("upstream"))


def wrong(_run: Any, source: Manual) -> None:
    source.answer(1, None, "text")
    source.answer(2, True)


def given_up(run: Any, _source: Manual) -> None:
    run.abandon()


ENDINGS = pytest.mark.parametrize("ending", [stopped, failed, wrong, given_up])


@ENDINGS
@pytest.mark.parametrize("append", [False, True])
def test_nothing_is_left_of_a_file_whose_stream_did_not_end_well(
    letters: Path, ending: Any, append: bool
) -> None:
    source = Manual()
    run = pull(source.source, to_file(letters, append=append)).start()
    source.answer(0, None, b"x" * 100_000)
    ending(run, source)
    assert letters.read_bytes() == b"abcdefgh"
    assert (os.listdir(letters.parent), is_open(letters)) == (["letters"], False)


@ENDINGS
def test_what_was_written_stays_where_it_is_written_in_place(letters: Path, ending: Any) -> None:
    source = Manual()
    run = pull(source.source, to_file(letters, atomic=False)).start()
    source.answer(0, None, b"xyz")
    ending(run, source)
    assert (letters.read_bytes(), is_open(letters)) == (b"xyz", False)


@ENDINGS
def test_nothing_is_left_of_a_compressed_file_either(tmp_path: Path, ending: Any) -> None:
    path, source = tmp_path / "x.gz", Manual()
    run = pull(source.source, to_lines(path)).start()
    source.answer(0, None, "xyz")
    if ending is wrong:
        source.answer(1, None, 3)
        source.answer(2, True)
    else:
        ending(run, source)
    assert (os.listdir(tmp_path), is_open(path)) == ([], False)


def test_how_much_came_before_a_failure_is_kept(tmp_path: Path) -> None:
    run = pull(cat([values([b"abc"]), error(Failure("upstream"))]), to_file(tmp_path / "x")).start()
    with pytest.raises(Failure):
        run.result()
    assert run.partial == 3


def test_a_file_is_appended_to(letters: Path) -> None:
    assert pull(values([b"ij"]), to_file(letters, append=True)).run() == 2
    assert letters.read_bytes() == b"abcdefghij"


def test_the_file_that_a_link_leads_to_is_replaced_and_keeps_its_rights(letters: Path) -> None:
    letters.chmod(0o640)
    link = letters.parent / "link"
    link.symlink_to(letters)
    pull(values([b"new"]), to_file(link)).run()
    assert (link.is_symlink(), letters.read_bytes()) == (True, b"new")
    assert letters.stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_in_place() -> None:
    assert pull(values([b"abc"]), to_file("/dev/null")).run() == 3
    assert Path("/dev/null").is_char_device()


def test_a_file_that_cannot_be_opened_fails_upstream_before_it_is_asked(tmp_path: Path) -> None:
    heard: list[Any] = []
    with pytest.raises(UnwritableFile, match="cannot open") as raised:
        pull(values([b"a"], on_stop=heard.append), to_file(tmp_path / "none" / "x")).run()
    assert heard == [raised.value]
    assert "to_file(" in raised.value.where[0].location.text


def test_a_full_disk_fails_upstream() -> None:
    with pytest.raises(UnwritableFile, match="cannot write /dev/full"):
        pull(values([b"x" * 100_000]), to_file("/dev/full")).run()


def test_a_disk_that_is_full_at_the_end_is_noticed() -> None:
    with pytest.raises(UnwritableFile, match="cannot write /dev/full"):
        pull(values([b"x"]), to_file("/dev/full")).run()


def test_text_is_no_bytes_and_bytes_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(WrongValue, match=r"to_file\(\) takes bytes, got str"):
        pull(values(["a"]), to_file(tmp_path / "x")).run()
    with pytest.raises(WrongValue, match=r"to_lines\(\) takes text, got bytes"):
        pull(values([b"a"]), to_lines(tmp_path / "x")).run()
    assert os.listdir(tmp_path) == []


def test_lines_are_written_with_their_ends_in_the_encoding(tmp_path: Path) -> None:
    path = tmp_path / "x"
    pull(values(["é", ""]), to_lines(path, "utf-16-le")).run()
    assert path.read_bytes() == "é\n\n".encode("utf-16-le")


def test_a_file_goes_through_a_pipeline_as_it_is(tmp_path: Path, letters: Path) -> None:
    pull(from_file(letters, chunk=1), to_file(tmp_path / "copy")).run()
    assert pull(from_file(tmp_path / "copy"), concat(b"")).run() == b"abcdefgh"
    assert pull(from_lines(letters), join_lines(), concat(b"")).run() == b"abcdefgh\n"


def test_from_file_keeps_the_rules_in_every_order(letters: Path) -> None:
    chunks = [b"abc", b"def", b"gh"]
    check_source(lambda: from_file(letters, chunk=3), expected=chunks, seeds=50)
    assert not is_open(letters)
