"""filter, filter_not: the values that pass a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.pieces import Transformer
from penstock.pull.synchronous import AWAIT_BEFORE, synchronous


def filter(test: Callable[[Any], Any] | None = None) -> Transformer:
    """The values for which `test(value)` is true, in order; without a test, those that are true themselves.

    For one ask it asks upstream until a value passes. Done and errors are passed on, an abort
    goes upstream and its confirmation comes back. What the test raises fails the source with it;
    when that has confirmed, downstream gets it (in the original the exception escapes).

    >>> from penstock.pull import collect, pull, values
    >>> pull(values(range(6)), filter(lambda x: x % 2), collect()).run()
    [1, 3, 5]
    """
    keep = bool if test is None else test
    checked = synchronous("filter", keep, fix=AWAIT_BEFORE)
    # Not the builtin: a StopIteration of the test would pass for the end of a batch.
    return Transformer.of_kernel(
        "filter",
        lambda: lambda items: (i for i in items if (kept := keep(i)) is True or (kept and checked(kept))),
    )


def filter_not(test: Callable[[Any], Any] | None = None) -> Transformer:
    """The values for which `test(value)` is false, in order; otherwise as `filter`.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values(range(6)), filter_not(lambda x: x % 2), collect()).run()
    [0, 2, 4]
    """
    drop = bool if test is None else test
    checked = synchronous("filter_not", drop, fix=AWAIT_BEFORE)
    return Transformer.of_kernel(
        "filter_not",
        lambda: (
            lambda items: (
                i for i in items if (dropped := drop(i)) is not True and not (dropped and checked(dropped))
            )
        ),
    )
