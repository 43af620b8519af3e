"""A source that is opened again when it fails, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import (
    PullSource,
    Recorder,
    back_off,
    cat,
    collect,
    error,
    probe,
    pull,
    reconnect,
    take,
    values,
)
from headrace.pull.errors import NotComposable
from headrace.testing import (
    RandomRuntime,
    SinkCase,
    VirtualRuntime,
    check_source,
    reference_sink,
    reference_source,
)


class Lost(Exception):
    pass


def breaking(lives: Sequence[int], *, sync: bool = True) -> Callable[[int], PullSource]:
    """Numbers from where the last source broke, to 5; the n-th source breaks after `lives[n]` values."""
    left = list(lives)

    def make(position: int) -> PullSource:
        life = left.pop(0) if left else 5
        numbers = range(position, min(position + life, 5))
        end = None if position + life > 5 else error(Lost(f"after {position + life}"))
        return values(numbers) if end is None else cat([values(numbers), end])

    return make


def test_values_go_on_where_the_source_broke() -> None:
    with VirtualRuntime() as runtime:
        run = pull(reconnect(breaking([2, 0, 1]), wait=1.0), collect()).start(runtime)
        assert run.result() == [0, 1, 2, 3, 4]
        assert runtime.time == 3.0


def test_the_last_error_ends_the_stream_after_so_many_attempts() -> None:
    opened: list[int] = []

    def make(position: int) -> PullSource:
        opened.append(position)
        return error(Lost(f"attempt {len(opened)}"))

    with VirtualRuntime() as runtime:
        run = pull(reconnect(make, attempts=3, wait=lambda failures: 10.0**failures), collect()).start(
            runtime
        )
        with pytest.raises(Lost, match="attempt 3") as lost:
            run.result()
        assert opened == [0, 0, 0]
        assert runtime.time == 110.0
        assert lost.value.__notes__ == ["attempt 3; the first failed by Lost('attempt 1')"]


def test_a_value_makes_the_attempts_begin_anew() -> None:
    lives = [1, 0, 1, 0, 1, 0, 1, 0]
    with VirtualRuntime() as runtime:
        run = pull(reconnect(breaking(lives), attempts=3, wait=1.0), collect()).start(runtime)
        assert run.result() == [0, 1, 2, 3, 4]


def test_what_make_raises_counts_as_a_failure() -> None:
    tried: list[int] = []

    def make() -> PullSource:
        tried.append(1)
        if len(tried) < 3:
            raise Lost("no route")
        return values("ab")

    with VirtualRuntime() as runtime:
        assert pull(reconnect(make, wait=1.0), collect()).start(runtime).result() == ["a", "b"]
        assert runtime.time == 2.0


def test_an_abort_during_the_wait_is_confirmed_at_once_and_nothing_is_opened_any_more() -> None:
    opened: list[int] = []

    def make(position: int) -> PullSource:
        opened.append(position)
        return error(Lost("lost"))

    recorder = Recorder()
    sink = SinkCase(stops_after=0, waits=False)
    with VirtualRuntime(passing=False) as runtime:
        run = pull(reconnect(make, wait=100.0), probe(recorder), reference_sink(sink)).start(runtime)
        assert run.finished
        assert str(recorder.trace()) == "D:ask1 D:abort2 U:ans1=done U:ans2=done"
        runtime.advance(1000.0)
        assert opened == [0]
        assert runtime.left == 0


def test_an_abort_goes_to_the_open_source_and_is_confirmed_after_it() -> None:
    recorder = Recorder()
    sink = SinkCase(stops_after=0, waits=False)
    source = pull(reference_source(3, sync=False), probe(recorder))
    with VirtualRuntime() as runtime:
        run = pull(reconnect(lambda: source, wait=1.0), reference_sink(sink)).start(runtime)
        assert run.result().end is True
        assert str(recorder.trace()) == "D:ask1 D:abort2 U:ans1=done U:ans2=done"


def test_nothing_is_opened_before_somebody_asks() -> None:
    opened: list[int] = []

    def make(position: int) -> PullSource:
        opened.append(position)
        return values("ab")

    pull(reconnect(make), reference_sink(SinkCase(stops_after=0))).run()
    assert opened == []
    assert pull(reconnect(make), take(1), collect()).run() == ["a"]
    assert opened == [0]


def test_a_position_function_says_where_to_go_on() -> None:
    told: list[Any] = []

    def make(position: Any) -> PullSource:
        told.append(position)
        return values("cd") if told[1:] else cat([values("ab"), error(Lost("lost"))])

    with VirtualRuntime() as runtime:
        source = reconnect(make, wait=1.0, position=lambda count, last: (count, last))
        assert pull(source, collect()).start(runtime).result() == ["a", "b", "c", "d"]
    assert told == [(0, None), (2, "b")]


@pytest.mark.seeds(20)
def test_asks_that_pend_when_the_source_fails_are_made_again_in_order(seed: int) -> None:
    case = SinkCase(concurrency=3)
    with RandomRuntime(seed) as runtime:
        run = pull(reconnect(breaking([2, 1]), wait=1.0), reference_sink(case)).start(runtime)
        assert run.result().values == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("lives", [(), (2,), (2, 0, 0, 1)])
def test_the_rules_hold_in_every_combination_and_order(lives: tuple[int, ...]) -> None:
    source = lambda: reconnect(breaking(lives), wait=1.0)  # noqa: E731
    assert check_source(source, expected=[0, 1, 2, 3, 4]) > 200


def test_the_rules_hold_where_it_gives_up() -> None:
    def lost() -> PullSource:
        return pull(reconnect(lambda: reference_source(0, Lost("lost"), sync=False), attempts=3, wait=1.0))

    assert check_source(lost, expected=[], end=Lost) > 200


def test_waits_double_up_to_the_most_and_are_shortened_by_chance() -> None:
    longest = back_off(1.0, 60.0, jitter=lambda: 1.0)
    assert [longest(failures) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    shortest = back_off(1.0, 60.0, jitter=lambda: 0.0)
    assert [shortest(failures) for failures in (1, 2, 100_000)] == [0.5, 1.0, 30.0]
    usual = back_off(1.0, 60.0)
    assert all(1.0 <= usual(2) <= 2.0 for _ in range(100))


@pytest.mark.parametrize("options", [{"attempts": 0}, {"attempts": 1.5}, {"wait": 0}, {"wait": -1.0}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        reconnect(lambda: values([]), **options)


def test_what_is_no_source_is_named() -> None:
    with pytest.raises(NotComposable, match="reconnect"):
        pull(reconnect(lambda: [1, 2]), collect()).run()  # type: ignore[arg-type,return-value]
