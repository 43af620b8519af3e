"""streamz: events pushed depth first."""

from __future__ import annotations

from typing import Any

from streamz import Stream


def chain(numbers: list[int]) -> int:
    last = [0]
    source = Stream()
    source.map(lambda x: x + 1).filter(lambda x: x % 2 == 0).map(lambda x: x * 3).accumulate(
        lambda total, x: total + x, start=0
    ).sink(lambda total: last.__setitem__(0, total))
    for x in numbers:
        source.emit(x)
    return last[0]


def diamond(values: list[float]) -> tuple[int, float]:
    out: list[float] = []
    source = Stream()
    both = source.map(lambda a: a + 1).combine_latest(source.map(lambda a: a + 2))
    both.map(lambda pair: pair[0] / pair[1]).sink(out.append)
    for value in values:
        source.emit(value)
    return len(out), round(sum(out), 3)


def running_word_count(words: list[str]) -> tuple[int, int]:
    seen = [0, 0]

    def count(counts: dict[str, int], word: str) -> tuple[dict[str, int], int]:
        n = counts[word] = counts.get(word, 0) + 1
        return counts, n

    def take(n: int) -> None:
        seen[0] += 1
        seen[1] += n

    source = Stream()
    source.accumulate(count, start={}, returns_state=True).sink(take)
    for word in words:
        source.emit(word)
    return seen[0], seen[1]


def moving_average(values: list[float]) -> tuple[int, float]:
    out: list[float] = []
    source = Stream()
    source.sliding_window(100, return_partial=False).map(lambda window: sum(window) / 100).sink(out.append)
    for value in values:
        source.emit(value)
    return len(out), round(sum(out), 3)


__all__: list[Any] = ["chain", "diamond", "moving_average", "running_word_count"]
