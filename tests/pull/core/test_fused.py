"""Synchronous transformers side by side run as one module, and mean the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pull import PullTransformer, Recorder, collect, map, probe, probe_around, pull, take, values
from headrace.pull.rules.checker import check
from tests.pull.core.modules import Hand, Manual


def keep(test: Any) -> PullTransformer:
    return PullTransformer.of_kernel("keep", lambda: lambda items: (item for item in items if test(item)))


def repeat() -> PullTransformer:
    return PullTransformer.of_kernel("repeat", lambda: lambda items: (i for i in items for _ in range(i % 4)))


STAGES = {
    "add": (lambda: map(lambda x: x + 1), lambda xs: [x + 1 for x in xs]),
    "odd": (lambda: keep(lambda x: x % 2), lambda xs: [x for x in xs if x % 2]),
    "repeat": (repeat, lambda xs: [x for x in xs for _ in range(x % 4)]),
    "halve": (lambda: map(lambda x: x // 2), lambda xs: [x // 2 for x in xs]),
}


@given(
    st.lists(st.integers(0, 50), max_size=20),
    st.lists(st.sampled_from(sorted(STAGES)), max_size=5),
    st.integers(1, 4),
    st.integers(1, 5),
    st.booleans(),
)
def test_stages_mean_the_same_fused_or_not_in_any_window_and_batch(
    items: list[int], names: list[str], window: int, batch: int, fuse: bool
) -> None:
    expected = items
    for name in names:
        expected = STAGES[name][1](expected)
    pipeline = pull(values(items), *[STAGES[name][0]() for name in names], collect(batch=batch))
    assert pipeline.run(window=window, fuse=fuse) == expected


def test_neighbours_are_one_module_and_a_probe_between_them_keeps_them_apart() -> None:
    def modules(*stages: PullTransformer) -> list[str]:
        return [module.name for module in pull(values([1]), *stages, Hand().sink).start().modules]

    assert modules(map(abs), keep(bool), take(3), map(abs)) == ["values", "map+keep", "take", "map", "hand"]
    assert modules(map(abs), probe(Recorder()), map(abs)) == ["values", "map", "map", "hand"]


@pytest.mark.parametrize("batch", [1, 2, 100])
@pytest.mark.parametrize("fuse", [True, False])
def test_values_before_a_failure_come_out_first(batch: int, fuse: bool) -> None:
    stopped: list[Exception | None] = []
    source = values([4, 2, 1, 0, 5], on_stop=stopped.append)
    run = pull(source, map(lambda x: 8 // x), map(str), collect(batch=batch)).start(fuse=fuse)
    with pytest.raises(ZeroDivisionError) as raised:
        run.result()
    assert run.partial == ["2", "4", "8"]
    assert stopped == [raised.value]


def test_one_value_is_asked_for_at_a_time() -> None:
    manual, hand = Manual(), Hand()
    pull(manual.source, keep(lambda x: x > 1), map(str), hand.sink).start()
    assert manual.requests == []
    hand.request("1")
    assert manual.requests == [None]
    manual.answer(0, None, 1)
    assert manual.requests == [None, None]
    manual.answer(1, None, 2)
    assert (manual.requests, hand.heard) == ([None, None], [("1", "2")])


def test_an_abort_while_an_ask_pends_is_passed_on_and_confirmed_in_order() -> None:
    manual, hand, recorder = Manual(), Hand(), Recorder()
    pull(manual.source, probe_around(keep(bool), recorder), hand.sink).start()
    hand.request("1")
    hand.request("2")
    hand.request("3", True)
    manual.answer(2, True)
    assert hand.heard == [("1", True), ("2", True), ("3", True)]
    assert check(recorder.trace(), profile="spec") == ()
