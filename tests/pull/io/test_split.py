"""split, lines, join_lines: chunks that end anywhere, lines that never end, bytes that are no text."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.pull import (
    PullTransformer,
    cat,
    collect,
    error,
    infinite,
    join_lines,
    lines,
    map,
    pull,
    split,
    take,
    values,
)
from headrace.pull.errors import LineTooLong, UndecodableText, WrongValue
from headrace.testing import check_transformer
from tests.pull.core.modules import Hand, Manual


class Failure(Exception):
    pass


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes, cut at these places."""
    ends = sorted({min(cut, len(data)) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)])]


@given(
    st.lists(st.sampled_from([b"", b"a", b"bc", b";", b"-", b";;", b";-"]), max_size=20),
    st.lists(st.integers(0, 40), max_size=10),
    st.sampled_from([b";", b";-", b";;"]),
    st.sampled_from([1, 3]),
)
def test_pieces_do_not_depend_on_how_the_bytes_are_cut(
    parts: list[bytes], cuts: list[int], separator: bytes, window: int
) -> None:
    data = b"".join(parts)
    *whole, rest = data.split(separator)
    expected = [*whole, rest] if rest else whole
    source = values(chunked(data, cuts))
    assert pull(source, split(separator), collect()).run(window=window) == expected
    assert pull(source, split(separator), collect(batch=4)).run(window=window) == expected


@given(st.text(alphabet="aé\n\r€😀", max_size=30), st.lists(st.integers(0, 60), max_size=10))
def test_lines_do_not_depend_on_how_the_bytes_are_cut(text: str, cuts: list[int]) -> None:
    for encoding in ("utf-8", "utf-16", "utf-16-le"):
        found = pull(values(chunked(text.encode(encoding), cuts)), lines(encoding), collect()).run()
        *whole, rest = text.split("\n")
        ended = [line.removesuffix("\r") for line in whole]
        assert found == ([*ended, rest] if rest else ended)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_lines_that_are_joined_are_the_same_again(encoding: str) -> None:
    texts = ["a", "", "é"]
    assert pull(values(texts), join_lines(encoding), lines(encoding), collect()).run() == texts


# --- what is too long, what is no text -----------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_the_pieces_before_one_that_is_too_long_are_answered(cut: int) -> None:
    data = b"a\nbb\nccc\ndddd\ne\n"
    source = values(chunked(data, list(range(0, 100, cut))))
    run = pull(source, split(longest=3), collect()).start()
    with pytest.raises(LineTooLong) as raised:
        run.result()
    assert (run.partial, raised.value.facts["line"]) == ([b"a", b"bb", b"ccc"], 4)
    assert "split(longest=3)" in raised.value.where[0].location.text


@pytest.mark.parametrize("separator", [b"\n", b"--"])
def test_a_last_piece_without_separator_may_be_too_long_too(separator: bytes) -> None:
    assert pull(values([b"abc"]), split(separator, longest=3), collect()).run() == [b"abc"]
    with pytest.raises(LineTooLong):
        pull(values([b"abcd"]), split(separator, longest=3), collect()).run()


@pytest.mark.parametrize("chunk", [b"x", b"x" * 10_000])
def test_a_line_that_never_ends_does_not_fill_the_memory(chunk: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LineTooLong):
            pull(infinite(lambda: chunk), lines(longest=100_000), collect()).run()
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_line_that_is_too_long_fails_upstream_with_that() -> None:
    heard: list[Any] = []
    with pytest.raises(LineTooLong) as raised:
        pull(values([b"abcd", b"e"], on_stop=heard.append), split(longest=3), collect()).run()
    assert heard == [raised.value]


def test_the_lines_before_bytes_that_are_no_text_are_answered() -> None:
    run = pull(values([b"one\ntw", b"o\nth\xffree\nfour"]), lines(), collect()).start()
    with pytest.raises(UndecodableText, match="line 3") as raised:
        run.result()
    assert run.partial == ["one", "two"]
    assert r"\xff" in raised.value.why


def test_text_that_breaks_off_is_an_error() -> None:
    run = pull(values([b"one\n", b"tw\xc3"]), lines(), collect()).start()
    with pytest.raises(UndecodableText, match="line 2"):
        run.result()
    assert run.partial == ["one"]


@pytest.mark.parametrize("transformer", [split(), lines()], ids=["split", "lines"])
def test_a_value_that_is_no_bytes_is_named(transformer: PullTransformer) -> None:
    with pytest.raises(WrongValue, match="takes bytes, got int"):
        pull(values([b"a", 3]), transformer, collect()).run()


def test_what_is_no_text_cannot_be_joined() -> None:
    with pytest.raises(WrongValue, match="takes text, got int") as raised:
        pull(values(["a", 3]), join_lines(), collect()).run()
    assert "join_lines()" in raised.value.where[0].location.text
    with pytest.raises(WrongValue, match="ascii cannot write"):
        pull(values(["é"]), join_lines("ascii"), collect()).run()


def test_options_are_checked_where_they_are_written() -> None:
    for make in (
        lambda: split(b""),
        lambda: split(longest=0),
        lambda: lines("nonesuch"),
        lambda: lines("hex"),
    ):
        with pytest.raises(BadOption):
            make()


# --- ends and asks -----------------------------------------------------------------------------------


def test_what_has_no_separator_yet_is_dropped_where_upstream_fails() -> None:
    run = pull(cat([values([b"a\nb\nc"]), error(Failure("upstream"))]), lines(), collect()).start()
    with pytest.raises(Failure):
        run.result()
    assert run.partial == ["a", "b"]


def test_upstream_is_asked_when_no_piece_is_left() -> None:
    source, hand = Manual(), Hand()
    pull(source.source, lines(), hand.sink).start()
    hand.request("1")
    source.answer(0, None, b"a\nb\nc")
    hand.request("2")
    assert (hand.heard, source.requests) == ([("1", "a"), ("2", "b")], [None])
    hand.request("3")
    hand.request("4", True)
    assert source.requests == [None, None, True]
    source.answer(2, True)
    assert hand.heard[2:] == [("3", True), ("4", True)]


def test_lines_that_are_left_are_dropped_by_an_abort() -> None:
    heard: list[Any] = []
    source = values([b"a\nb\nc\n"], on_stop=heard.append)
    assert pull(source, lines(), take(1), collect()).run() == ["a"]
    assert heard == [None]


def per_value(text: str) -> PullTransformer:
    """Each value as bytes of this form."""
    return map(lambda value: (text % ((value,) * text.count("%d"))).encode())


def test_split_keeps_the_rules_in_every_order() -> None:
    check_transformer(
        lambda: pull(per_value("%d;"), split(b";"), map(int)),
        one_to_one=False,
        expected=lambda values: values,
        seeds=100,
    )


def test_lines_keeps_the_rules_where_a_chunk_is_many_lines() -> None:
    check_transformer(
        lambda: pull(per_value("%d\n-%d\n"), lines(), map(int)),
        one_to_one=False,
        expected=lambda values: [number for value in values for number in (value, -value)],
        seeds=100,
    )


def test_split_keeps_the_rules_where_many_chunks_are_a_piece() -> None:
    check_transformer(
        lambda: pull(per_value("%d"), split(b"2"), map(int)),
        one_to_one=False,
        expected=lambda values: [1, 3] if 3 in values else [1] if values else [],
        seeds=100,
    )


def test_a_piece_that_is_too_long_keeps_the_rules_in_every_order() -> None:
    check_transformer(
        lambda: pull(per_value("%d"), split(longest=2), map(int)),
        one_to_one=False,
        fails=LineTooLong,
        seeds=100,
    )
