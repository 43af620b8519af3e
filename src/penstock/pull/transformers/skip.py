"""skip, skip_while: all but the first values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.pull.fused import Kernel
from penstock.pull.options import whole
from penstock.pull.pieces import Transformer
from penstock.pull.synchronous import AWAIT_BEFORE, synchronous


def skip(count: int) -> Transformer:
    """All but the first `count` values (0 or less: all), in order.

    The first ask asks upstream `count + 1` times, every later one once. A stream that ends
    earlier is empty. Done, errors and aborts pass.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values("abcd"), skip(2), collect()).run()
    ['c', 'd']
    """

    whole("skip", "count", count)

    def make() -> Kernel:
        left = count

        def dropping(items: Iterable[Any]) -> Iterator[Any]:
            nonlocal left
            for item in items:
                if left > 0:
                    left -= 1
                else:
                    yield item

        return lambda items: dropping(items) if left > 0 else items

    return Transformer.of_kernel("skip", make)


def skip_while(test: Callable[[Any], Any]) -> Transformer:
    """All values from the first on for which `test(value)` is false; later ones are not tested.

    Asks upstream until it finds that one, and then once for each ask. Done, errors and aborts pass;
    what the test raises fails the stream on both sides.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values([1, 2, 9, 1]), skip_while(lambda x: x < 5), collect()).run()
    [9, 1]
    """
    checked = synchronous("skip_while", test, fix=AWAIT_BEFORE)

    def make() -> Kernel:
        begun = False

        def dropping(items: Iterable[Any]) -> Iterator[Any]:
            nonlocal begun
            for item in items:
                begun = begun or not checked(test(item))
                if begun:
                    yield item

        return lambda items: items if begun else dropping(items)

    return Transformer.of_kernel("skip_while", make)
