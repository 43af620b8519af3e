"""What files, sockets and processes are given that looks usual and is not."""

from __future__ import annotations

import array
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import BadOption, UnreadableSource
from headrace.pull import (
    collect,
    concat,
    connect,
    flat_map,
    from_file,
    listen,
    process,
    pull,
    to_file,
    together,
    values,
)
from headrace.pull.errors import AlreadyUsed, ConnectionFailed, UnwritableFile

CAT = "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"


def cat() -> Any:
    return process([sys.executable, "-S", "-c", CAT])


def test_a_view_of_wide_items_arrives_whole() -> None:
    numbers = array.array("i", range(200_000))
    received = pull(values([memoryview(numbers)]), cat(), concat(b"")).run()
    assert received == numbers.tobytes()


@pytest.mark.parametrize(
    "view",
    [
        memoryview(array.array("i", [1, 2, 3])),
        memoryview(b"abcdef")[::2],
        memoryview(array.array("i")),
    ],
    ids=["wide", "with gaps", "empty"],
)
def test_the_result_is_how_many_bytes_a_view_has(view: memoryview, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    assert pull(values([view]), to_file(path)).run() == view.nbytes
    assert path.read_bytes() == view.tobytes()


def test_a_process_that_stands_twice_in_a_run_is_refused() -> None:
    both = cat()
    with pytest.raises(AlreadyUsed, match="second time in a run"):
        together(
            pull(values([b"1"]), both, collect()),
            pull(values([b"2"]), both, collect()),
        ).run()


def test_a_process_that_is_opened_again_in_a_run_does_not_end_in_silence() -> None:
    source = process([sys.executable, "-S", "-c", "print(1)"]).source
    with pytest.raises(AlreadyUsed):
        pull(values([1, 2]), flat_map(lambda _: source), collect()).run()


def test_a_process_gives_its_values_in_each_run() -> None:
    pipeline = pull(process([sys.executable, "-S", "-c", "print(1)"]).source, concat(b""))
    assert [pipeline.run(), pipeline.run()] == [b"1\n", b"1\n"]


@pytest.mark.parametrize("port", [-1, 65536, 70000, 80.0, "80"])
def test_a_port_that_is_none_is_refused(port: Any) -> None:
    with pytest.raises(BadOption, match="port="):
        connect("127.0.0.1", port)
    with pytest.raises(BadOption, match="port="):
        listen(port=port)


def test_a_host_whose_name_is_too_long_cannot_be_reached() -> None:
    with pytest.raises(ConnectionFailed, match="cannot reach"):
        pull(connect("a" * 70 + ".example", 80).source, collect()).run()
    with pytest.raises(ConnectionFailed, match="cannot listen"):
        pull(listen("a" * 70 + ".example"), collect()).run()


def test_a_path_that_no_file_can_have_is_named() -> None:
    with pytest.raises(UnreadableSource):
        pull(from_file("a\0b"), collect()).run()
    with pytest.raises(UnwritableFile):
        pull(values([b"x"]), to_file("a\0b")).run()


def test_a_file_whose_name_is_as_long_as_may_be_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127)
    assert pull(values([b"x"]), to_file(path)).run() == 1
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
