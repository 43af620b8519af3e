"""Every public module of pull-streams is tried out by the checks, or is named here with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace.pull
from headrace.pull import (
    PullDuplex,
    PullSink,
    PullSource,
    PullTransformer,
    async_map,
    closing_handshake,
    collect,
    count,
    duplex_pair,
    from_file,
    from_lines,
    infinite,
    iterate,
    join_lines,
    lend,
    lines,
    map,
    once,
    paramap,
    pull,
    reconnect,
    split,
    take,
    to_file,
    to_lines,
    transformer,
    values,
)
from headrace.pull import sink as plain_sink
from headrace.pull import source as plain_source
from headrace.testing import check_sink, check_source, check_transformer, reference_source
from tests.pull.fan import test_rules as fan
from tests.pull.sinks import test_every_interleaving as sinks
from tests.pull.sources import test_every_order as sources
from tests.pull.transformers import test_every_interleaving as transformers

Options = dict[str, Any]


def tenfold(xs: list[int]) -> list[int]:
    return [10 * x for x in xs]


async def ten_times(x: int) -> int:
    """Later values are ready earlier."""
    await asyncio.sleep([0.3, 0.1, 0.2][x % 3])
    return 10 * x


def times_ten() -> PullTransformer:
    return map(lambda x: 10 * x)


def quits(after: int) -> PullTransformer:
    return pull(take(after), times_ten())


def passing(read: Any) -> Any:
    return read


def counting() -> Any:
    """A source in the callback form, written by hand."""
    given = 0

    def read(abort: Any, answer: Any) -> None:
        nonlocal given
        given += abort is None
        answer(abort or (None if given <= 3 else True), given)

    return plain_source(read, name="source")


def collecting(found: list[int]) -> PullSink:
    """A sink in the callback form, written by hand."""

    def connect(read: Any) -> list[int]:
        def answered(end: Any, value: Any = None) -> None:
            if end is None:
                found.append(value)
                read(None, answered)

        read(None, answered)
        return found

    return plain_sink(connect, name="sink")


def text_file(path: Path) -> Path:
    path.write_text("ab\ncd\n")
    return path


def echoed() -> PullSource:
    """What one end of a duplex pair sends, and the other end sends back."""
    here, there = duplex_pair()
    back = pull(there, times_ten(), there)
    return PullSource(here.source.part, here.source.then, (pull(values([1, 2]), here.sink), back))


def well_parted() -> PullSource:
    """Says goodbye, and is told so."""
    end = closing_handshake(PullDuplex(values([1, 2]), collect()), message="bye")
    heard = pull(reference_source(3, sync=False), map(lambda x: "bye" if x == 3 else x), end.sink)
    return PullSource(end.source.part, end.source.then, (*end.source.beside, heard))


SOURCES: dict[str, tuple[Callable[[Path], PullSource], Options]] = {
    "infinite": (lambda _: infinite(lambda: 7), {"endless": True}),
    "count": (lambda _: count(), {"endless": True}),
    "iterate": (lambda _: iterate(iter([1, 2, 3])), {"expected": [1, 2, 3]}),
    "once": (lambda _: once(7), {"expected": [7]}),
    "source": (lambda _: counting(), {"expected": [1, 2, 3]}),
    "reconnect": (lambda _: reconnect(lambda: reference_source(3, sync=False)), {"expected": [1, 2, 3]}),
    "from_file": (lambda path: from_file(text_file(path), chunk=3), {"expected": [b"ab\n", b"cd\n"]}),
    "from_lines": (lambda path: from_lines(text_file(path)), {"expected": ["ab", "cd"]}),
    "duplex_pair": (lambda _: echoed(), {"expected": [10, 20]}),
    "closing_handshake": (lambda _: well_parted(), {"expected": [1, 2, "bye"]}),
}

TRANSFORMERS: dict[str, tuple[Callable[[], PullTransformer], Options]] = {
    "transformer": (lambda: transformer(passing, name="transformer"), {"expected": list}),
    "async_map": (lambda: async_map(ten_times, 2), {"expected": tenfold}),
    "paramap": (lambda: paramap(lambda x: 10 * x, 2), {"expected": tenfold, "seeds": 20}),
    "lend": (lambda: lend(times_ten()), {"expected": tenfold}),
    "lend, two at once": (lambda: lend(ten_times, ten_times), {"expected": tenfold}),
    "lend, one quits": (lambda: lend(quits(1), times_ten(), quits(0)), {"expected": tenfold}),
    "split": (
        lambda: pull(map(lambda x: b"%d\n" % x), split()),
        {"expected": lambda xs: [b"%d" % x for x in xs], "one_to_one": False},
    ),
    "lines": (
        lambda: pull(map(lambda x: b"%d\n" % x), lines()),
        {"expected": lambda xs: [str(x) for x in xs], "one_to_one": False},
    ),
    "join_lines": (
        lambda: pull(map(str), join_lines()),
        {"expected": lambda xs: [b"%d\n" % x for x in xs]},
    ),
}

SINKS: dict[str, tuple[Callable[[Path], PullSink], Options]] = {
    "sink": (lambda _: collecting([]), {"result": list, "partial": list}),
    "to_file": (lambda path: pull(map(lambda x: b"%d" % x), to_file(path)), {"result": len}),
    "to_lines": (lambda path: pull(map(str), to_lines(path)), {}),
}

NAMED = {
    "aiter_values": "no piece: it reads a source from outside; tests/pull/bridges",
    "back_off": "no piece: how long reconnect waits; tests/pull/reconnect",
    "check": "no module: it judges traces; tests/pull/rules",
    "connect": "waits for the network in real time; tests/pull/io",
    "fork": "its branches need each other; tests/pull/fan/test_rules.py",
    "from_stream": "waits for the network in real time; tests/pull/io",
    "iter_values": "no piece: it reads a source from outside; tests/pull/bridges",
    "listen": "waits for the network in real time; tests/pull/io",
    "parse": "no module: it reads traces; tests/pull/rules",
    "probe": "no module: it looks at an edge; every trace here is its",
    "probe_around": "no module: it looks at an edge; every trace here is its",
    "process": "waits for processes in real time; tests/pull/io",
    "pull": "no module: it composes them; tests/pull/core/test_compose.py",
    "to_stream": "waits for the network in real time; tests/pull/io",
    "together": "no module: several pipelines; tests/pull/core",
}
"""Public functions that the checks do not try out, and why."""


def made(path: Path) -> Iterator[PullSource | PullTransformer | PullSink]:
    """The pieces of all tables: here and beside the tests of each area."""
    for make, _ in SOURCES.values():
        yield make(path)
    for row in (*TRANSFORMERS.values(), *fan.SOURCES.values(), *fan.TRANSFORMERS.values()):
        yield row[0]()
    for row in (*sources.SOURCES.values(), *sinks.SINKS.values(), *transformers.CHECKED.values()):
        yield row[0]()
    for make, _ in SINKS.values():
        yield make(path)


def named(piece: PullSource | PullTransformer | PullSink) -> Iterator[str]:
    """The names of the modules that a piece is made of."""
    parts: list[Any] = [*(piece.before if isinstance(piece, PullSink) else piece.then)]
    if not isinstance(piece, PullTransformer):
        parts.append(piece.part)
    for part in parts:
        yield part.name.split()[0]
    for pipeline in piece.beside:
        for segment in pipeline.segments:
            yield from named(segment.source)
            yield from named(segment.sink)


def public_functions() -> set[str]:
    return {name for name in headrace.pull.__all__ if not isinstance(getattr(headrace.pull, name), type)}


def test_every_public_module_is_tried_out_or_named_with_a_reason(tmp_path: Path) -> None:
    tried = {name for piece in made(tmp_path / "file") for name in named(piece)}
    assert public_functions() - tried - NAMED.keys() == set()
    assert NAMED.keys() - public_functions() == set(), "a name that is not public"
    assert NAMED.keys() & tried == set(), "a reason for what is tried out"


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_keeps_the_rules(name: str, tmp_path: Path) -> None:
    make, options = SOURCES[name]
    check_source(lambda: make(tmp_path / "file"), **options)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_keeps_the_rules(name: str) -> None:
    make, options = TRANSFORMERS[name]
    check_transformer(make, **options)


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_keeps_the_rules(name: str, tmp_path: Path) -> None:
    make, options = SINKS[name]
    check_sink(lambda: make(tmp_path / "file"), **options)
