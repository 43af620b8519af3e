"""fork: each value to one of several branches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from penstock.errors import BadOption, SourceLocation, UnknownPort
from penstock.pull.fan_out.hub import branches
from penstock.pull.options import whole
from penstock.pull.piece_checks import only
from penstock.pull.pieces import Source
from penstock.pull.synchronous import AWAIT_BEFORE, synchronous


def fork(
    source: Source,
    classify: Callable[[Any], Hashable],
    keys: Sequence[Hashable] = (False, True),
    *,
    ahead: int | None = 0,
) -> tuple[Source, ...]:
    """A source for each of the keys: it gives the values for which `classify(value)` is that key.

    keys: with the default, `classify` is a predicate: what it does not hold for comes first.

    As with `tee`, all branches run in the same run. With `ahead=0` a value is asked for when every branch has
    asked for one, as it may be for any of them; otherwise so many values wait for a branch that does not
    ask. Values for a branch that has left are dropped. All that `tee` says of the ends holds.

    What `classify` raises, and a key that is none of `keys` (`UnknownPort`), fails the source with it, and
    then all branches.

    >>> from penstock.pull import collect, pull, together, values
    >>> odd, even = fork(values(range(5)), lambda x: x % 2 == 0)
    >>> together(pull(odd, collect()), pull(even, collect())).run()
    ([1, 3], [0, 2, 4])
    """
    location = SourceLocation.of_caller()
    only(Source, "fork", [source])
    if ahead is not None:
        whole("fork", "ahead", ahead, least=0)
    classify = synchronous("fork", classify, fix=AWAIT_BEFORE).calling(classify)
    numbers = {key: number for number, key in enumerate(keys)}
    if len(numbers) != len(keys) or not keys:
        raise BadOption(
            f"fork() cannot work with keys={keys!r}",
            where=[location],
            why="There is one branch for each key.",
            fix="give one or more keys, each of them once",
            piece="fork",
            option="keys",
        )

    def choose(value: Any) -> Iterable[int]:
        key = classify(value)
        if key not in numbers:
            raise UnknownPort(
                f"fork() has no branch for {key!r}",
                where=[location],
                why=f"classify({value!r}) is {key!r}; its keys are {', '.join(map(repr, keys))}.",
                fix="give this key, too; or classify it as one that is there",
                key=key,
                keys=tuple(keys),
            )
        return (numbers[key],)

    return branches("fork", location, source, len(keys), choose=choose, ahead=ahead)
