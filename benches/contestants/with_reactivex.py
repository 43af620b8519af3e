"""reactivex: events pushed depth first."""

from __future__ import annotations

import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject


def chain(numbers: list[int]) -> int:
    last = [0]
    rx.from_iterable(numbers).pipe(
        ops.map(lambda x: x + 1), ops.filter(lambda x: x % 2 == 0), ops.map(lambda x: x * 3), ops.sum()
    ).subscribe(lambda total: last.__setitem__(0, total))
    return last[0]


def diamond(values: list[float]) -> tuple[int, float]:
    out: list[float] = []
    source: Subject[float] = Subject()
    b, c = source.pipe(ops.map(lambda a: a + 1)), source.pipe(ops.map(lambda a: a + 2))
    rx.combine_latest(b, c).pipe(ops.map(lambda p: p[0] / p[1])).subscribe(out.append)
    for value in values:
        source.on_next(value)
    return len(out), round(sum(out), 3)


def running_word_count(words: list[str]) -> tuple[int, int]:
    counts: dict[str, int] = {}
    seen = [0, 0]

    def count(state: int, word: str) -> int:
        n = counts[word] = counts.get(word, 0) + 1
        return n

    def take(n: int) -> None:
        seen[0] += 1
        seen[1] += n

    rx.from_iterable(words).pipe(ops.scan(count, 0)).subscribe(take)
    return seen[0], seen[1]
