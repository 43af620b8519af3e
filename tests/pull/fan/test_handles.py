"""Handles used in any order, from outside of the pipelines, against models."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pull import Run, collect, many, notify, pull, values
from headrace.pull.protocol import End
from headrace.testing import RandomRuntime
from tests.pull.core.modules import Hand

SEEDS = st.integers(0, 10_000)


class Listener:
    """A run that listens, asked by hand; and what it must have heard."""

    def __init__(self, run: Run, hand: Hand) -> None:
        self.run = run
        self.hand = hand
        self.waiting: list[Any] = []
        self.asked = 0
        self.heard: list[Any] = []
        self.end: End | None = None
        self.left = False

    def settle(self) -> None:
        while self.asked and self.waiting:
            self.asked -= 1
            self.heard.append(self.waiting.pop(0))
        if self.asked and self.end is not None:
            self.heard += [self.end] * self.asked
            self.asked = 0


OPS = st.lists(
    st.sampled_from(["listen", "push", "push", "push"])
    | st.tuples(st.sampled_from(["ask", "ask", "ask", "leave"]), st.integers(0, 3))
    | st.just("end"),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(OPS, SEEDS)
def test_each_listener_hears_what_is_pushed_while_it_listens(ops: list[Any], seed: int) -> None:
    news = notify(bound=None)
    listeners: list[Listener] = []
    ended = False
    for number, op in enumerate(["listen", *ops]):
        if op == "listen":
            hand = Hand()
            run = pull(news.listen(), hand.sink).start(RandomRuntime(seed + number))
            listeners.append(Listener(run, hand))
            listeners[-1].end = True if ended else None
        elif op == "push":
            news.push(number)
            for listener in listeners:
                if listener.end is None and not listener.left:
                    listener.waiting.append(number)
        elif op == "end":
            news.end()
            ended = True
            for listener in listeners:
                listener.end = listener.end or True
        else:
            what, which = op
            listener = listeners[which % len(listeners)]
            if listener.left:
                continue
            if what == "ask":
                listener.asked += 1
                listener.hand.request("ask")
            else:
                listener.left = True
                listener.hand.request("leave", True)
                listener.heard += [True] * (listener.asked + 1)
                listener.waiting.clear()
                listener.asked = 0
        for listener in listeners:
            listener.settle()
            assert [value for _name, value in listener.hand.heard] == listener.heard
    assert news.listeners == sum(not (listener.left or listener.end) for listener in listeners)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=8), st.integers(0, 8), st.sampled_from([1, 3]), SEEDS)
def test_sources_that_are_added_any_time_are_all_there(
    sizes: list[int], before: int, window: int, seed: int
) -> None:
    inputs = many([values([(-1, 0)])], open_ended=True)
    sources = [values([(at, n) for n in range(size)]) for at, size in enumerate(sizes)]
    for source in sources[:before]:
        inputs.add(source)
    run = pull(inputs, collect()).start(RandomRuntime(seed), window=window)
    for source in sources[before:]:
        assert not run.finished
        inputs.add(source)
    inputs.cap()
    found = run.result()
    assert sorted(found) == [(-1, 0), *((at, n) for at, size in enumerate(sizes) for n in range(size))]
    assert all([n for at, n in found if at == which] == [*range(size)] for which, size in enumerate(sizes))
